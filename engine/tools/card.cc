#include "engine/tools/card.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "engine/base/asked_weight_formats.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/quantities.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/write_weights.h"
#include "engine/model/cached_layers.h"

namespace triptych::tools {
namespace {

// A longer card of a source is left out.
constexpr uint64_t kMaxSourceBytes = uint64_t{1} << 16;

std::string CacheText(const ModelConfig& config) {
  const CacheFormat format = DefaultCacheFormat(StoredFormats(config).layers);
  const int64_t elements = ElementsPerPosition(config);
  std::ostringstream text;
  text << elements << " elements per position in all layers, "
       << BytesPerPosition(CachedLayersOf(config), format) << " bytes in " << Name(format);
  const int64_t mha = config.num_hidden_layers * MhaRowElements(config);
  if (elements != mha) {
    char ratio[32];
    std::snprintf(ratio, sizeof(ratio), "%.3g",
                  static_cast<double>(mha) / static_cast<double>(elements));
    text << ": MHA would need " << ratio << " times as many";
  }
  return text.str();
}

std::string SizeText(const ModelConfig& config) {
  std::ostringstream text;
  text << config.num_hidden_layers << " layers, width " << config.hidden_size << ", "
       << config.num_attention_heads << " heads of " << config.head_dim << ", MLP of "
       << config.intermediate_size << " (" << Name(config.mlp) << "), positions "
       << Name(config.position_embedding) << ", context " << config.max_position_embeddings << ", "
       << ParameterCount(config) << " parameters in " << WeightsText(StoredFormats(config));
  return text.str();
}

// The card of a source with its headings one level deeper; "" if it cannot be read.
std::string SourceCard(const std::filesystem::path& source) {
  std::string card;
  try {
    card = ReadText(source / kCardFile, kMaxSourceBytes);
  } catch (const LoadError&) {
    return "";
  }
  std::istringstream lines(card);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    text += (line.starts_with('#') ? "#" : "") + line + "\n";
  }
  return text;
}

}  // namespace

std::string KindText(const ModelConfig& config) {
  std::ostringstream text;
  for (const char letter : Name(config.attention)) text << static_cast<char>(letter - 'a' + 'A');
  switch (config.attention) {
    case AttentionKind::kMha:
      break;
    case AttentionKind::kGqa:
      text << " with " << config.num_key_value_heads << " groups";
      break;
    case AttentionKind::kMla: {
      const auto [least, most] =
          std::minmax_element(config.kv_lora_rank.begin(), config.kv_lora_rank.end());
      text << " with latents of " << *least;
      if (*least != *most) text << " to " << *most;
      break;
    }
  }
  return text.str();
}

std::string LastName(const std::filesystem::path& path) {
  const std::filesystem::path whole =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path));
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::string ToMarkdown(const Card& card) {
  std::ostringstream text;
  const auto row = [&](const std::string& name, const std::string& value) {
    text << "| " << name << " | " << value << " |\n";
  };
  text << "# " << LastName(card.directory) << "\n\n| | |\n|---|---|\n";
  row("attention", KindText(card.config));
  row("cache", CacheText(card.config));
  row("size", SizeText(card.config));
  if (card.held_out_loss) {
    row("held-out loss", FormatDecimal(*card.held_out_loss, 4) + " nats per token");
  }
  if (card.corpus != nullptr) {
    const Corpus& corpus = *card.corpus;
    std::ostringstream text_and_digest, split;
    text_and_digest << "`" << corpus.file_name() << "`, " << corpus.bytes() << " bytes, sha256 `"
                    << corpus.identity().sha256 << "`";
    split << "the last " << corpus.identity().held_out << " of it, " << corpus.held_out_tokens()
          << " of " << corpus.train_tokens() + corpus.held_out_tokens() << " tokens";
    row("text", text_and_digest.str());
    row("held out", split.str());
  }
  for (const auto& [name, value] : card.facts) row(name, value);
  if (!card.source.empty()) row("made from", LastName(card.source));
  if (!card.command.empty()) text << "\nMade by\n\n    " << card.command << "\n";
  text << "\n" << card.report;
  if (!card.source.empty()) {
    if (const std::string source = SourceCard(card.source); !source.empty()) {
      text << "\n" << source;
    }
  }
  return text.str();
}

}  // namespace triptych::tools
