#include "engine/model/cached_layers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

#include "engine/base/quantities.h"

namespace triptych {
namespace {

std::string Counted(int64_t count, const char* noun) {
  return FormatCount(count) + " " + noun + (count == 1 ? "" : "s");
}

// "(512 + 64)", "2 x 8 heads x 128", "8 heads x (192 + 128)"; with wide numbers "(512 + 2 x 64)".
std::string RowText(const CachedLayers& group, CacheFormat format) {
  std::string sum;
  for (const int64_t part : group.parts) {
    sum += (sum.empty() ? "" : " + ") + std::to_string(part);
  }
  if (group.WideNumbers(format) > 0) {
    sum = std::to_string(group.parts[0]) + " + 2 x " + std::to_string(group.parts[1]);
  }
  if (group.parts.size() > 1) sum = "(" + sum + ")";
  switch (group.row) {
    case CachedRow::kLatent:
      return sum;
    case CachedRow::kIndexer:
      return sum + " of the indexer";
    case CachedRow::kHeads:
      break;
  }
  const std::string heads = Counted(group.heads, "head");
  if (group.parts.size() == 2 && group.parts[0] == group.parts[1]) {
    return "2 x " + heads + " x " + std::to_string(group.parts[0]);
  }
  return heads + " x " + sum;
}

std::string TermText(const CachedLayers& group, CacheFormat format) {
  const std::string row = RowText(group, format);
  const std::string norms = group.inverse_norms == 0
                                ? ""
                                : " + " + Counted(group.inverse_norms, "inverse norm") + " x " +
                                      std::to_string(kInverseNormBytes) + " bytes";
  const auto of_elements = [&](const char* size) {
    return norms.empty() ? row + size : "(" + row + size + norms + ")";
  };
  std::string bytes;
  switch (format) {
    case CacheFormat::kFloat32:
      bytes = of_elements(" x 4 bytes");
      break;
    case CacheFormat::kBFloat16:
      bytes = of_elements(" x 2 bytes");
      break;
    case CacheFormat::kInt8: {
      const int64_t elements = group.RowElements();
      bytes = "(" + row + " x 1 byte + " + (elements % 2 == 1 ? "1 byte + " : "") +
              Counted(CeilDiv(elements, kQuantizationGroup), "scale") + " x 2 bytes" + norms + ")";
      break;
    }
    case CacheFormat::kInt4: {
      const int64_t elements = group.RowElements() + group.WideNumbers(format);
      const int64_t padding = -elements & 3;
      bytes = "(" + row + " x 1/2 byte + " +
              (padding > 0 ? std::to_string(padding) + " x 1/2 byte + " : "") +
              Counted(CeilDiv(elements, kQuantizationGroup), "scale") + " x 2 bytes" + norms + ")";
      break;
    }
  }
  return Counted(group.layers, "layer") + " x " + bytes;
}

bool SameRows(const CachedLayers& a, const CachedLayers& b) {
  return a.row == b.row && a.heads == b.heads && a.parts == b.parts &&
         a.inverse_norms == b.inverse_norms;
}

int64_t GroupBytes(const CachedLayers& group, CacheFormat format) {
  return group.layers * (RowBytes(format, group.RowElements() + group.WideNumbers(format)) +
                         group.inverse_norms * kInverseNormBytes);
}

}  // namespace

int64_t CachedLayers::RowElements() const {
  return heads * std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

int64_t CachedLayers::WideNumbers(CacheFormat format) const {
  const bool decoupled = row == CachedRow::kLatent && parts.size() == 2;
  return triptych::WideNumbers(format, decoupled ? parts[1] : 0);
}

int64_t CachedLayers::Kept(int64_t positions) const {
  return window > 0 ? std::min(window, positions) : positions;
}

int64_t CachedLayers::Attended(int64_t positions) const {
  const int64_t kept = Kept(positions);
  return attended > 0 ? std::min(attended, kept) : kept;
}

int64_t CachedLayers::QueryFlops() const {
  int64_t width = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  if (row == CachedRow::kLatent) width += parts.front();  // read as key and as value
  return 2 * query_heads * width;
}

std::vector<CachedLayers> CachedLayersOf(const ModelConfig& config) {
  std::vector<CachedLayers> cached;
  const bool mla = config.attention == AttentionKind::kMla;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    CachedLayers own{.row = mla ? CachedRow::kLatent : CachedRow::kHeads,
                     .query_heads = config.num_attention_heads,
                     .heads = mla ? 1 : config.num_key_value_heads,
                     .parts = {config.head_dim, config.head_dim}};
    if (mla) own.parts = {config.kv_lora_rank.at(layer)};
    if (mla && config.qk_rope_head_dim > 0) own.parts.push_back(config.qk_rope_head_dim);
    own.inverse_norms = config.NormedKeys();
    if (config.Window(layer) != kNoWindow) own.window = config.Window(layer);
    auto same = std::find_if(cached.begin(), cached.end(), [&](const CachedLayers& group) {
      return SameRows(group, own) && group.window == own.window;
    });
    if (same == cached.end()) same = cached.insert(same, own);
    ++same->layers;
  }
  return cached;
}

int64_t BytesPerPosition(const std::vector<CachedLayers>& cached, CacheFormat format) {
  return SequenceBytes(cached, format, 1);
}

int64_t SequenceBytes(const std::vector<CachedLayers>& cached, CacheFormat format,
                      int64_t positions) {
  int64_t bytes = 0;
  for (const CachedLayers& group : cached) {
    bytes += GroupBytes(group, format) * group.Kept(positions);
  }
  return bytes;
}

int64_t QueryBytes(const std::vector<CachedLayers>& cached, CacheFormat format, int64_t positions) {
  int64_t bytes = 0;
  for (const CachedLayers& group : cached) {
    bytes += GroupBytes(group, format) * group.Attended(positions);
  }
  return bytes;
}

std::string CacheFormula(const std::vector<CachedLayers>& cached, CacheFormat format) {
  std::vector<CachedLayers> terms;  // without windows
  std::map<int64_t, int64_t> windowed;
  for (const CachedLayers& group : cached) {
    if (group.window > 0) windowed[group.window] += GroupBytes(group, format);
    const auto same = std::find_if(terms.begin(), terms.end(),
                                   [&](const CachedLayers& term) { return SameRows(term, group); });
    if (same == terms.end()) {
      terms.push_back(group);
    } else {
      same->layers += group.layers;
    }
  }
  std::string text = Counted(BytesPerPosition(cached, format), "byte") + " a position";
  for (const CachedLayers& term : terms) {
    text += (&term == terms.data() ? " = " : " + ") + TermText(term, format);
  }
  for (const auto& [window, bytes] : windowed) {
    text +=
        ", of which " + FormatCount(bytes) + " only for the last " + Counted(window, "position");
  }
  return text;
}

std::string WindowFact(int64_t windowed, int64_t layers, int64_t window) {
  return FormatCount(windowed) + " of " + FormatCount(layers) + " layers attend the last " +
         FormatCount(window) + " positions and keep no others";
}

std::vector<CachedLayers> OnEachDevice(std::vector<CachedLayers> cached, int64_t devices) {
  for (CachedLayers& group : cached) {
    const auto refuse = [&](const char* heads, int64_t count, const char* allowed) {
      throw std::invalid_argument(std::to_string(devices) + " devices cannot share " +
                                  std::to_string(count) + " " + heads + "; allowed: " + allowed);
    };
    if (group.query_heads % devices != 0) {
      refuse("heads", group.query_heads, "a divisor of them");
    }
    if (group.row == CachedRow::kHeads) {
      if (group.heads % devices != 0 && devices % group.heads != 0) {
        refuse("key/value heads", group.heads, "a divisor or a multiple of them");
      }
      group.heads = std::max(group.heads / devices, int64_t{1});
    }
    group.query_heads /= devices;
  }
  return cached;
}

}  // namespace triptych
