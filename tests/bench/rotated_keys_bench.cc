// Benchmark of the bits of rotated keys: held-out loss of a rotary model, and of its conversions to
// MLA without healing, with cache rows in int8, and in int4 with rotated keys in 4 and in 8 bits.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/decoupled_keys.h"
#include "engine/decoder/frame.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/weights.h"
#include "engine/model/latent_shape.h"
#include "engine/tools/corpus.h"
#include "engine/tools/input_moments.h"
#include "engine/tools/latent_cut.h"

namespace triptych {
namespace {

// Rows of MLA, in sixteenths of the model's own.
constexpr int64_t kRows[] = {16, 12, 8, 6, 4, 3};

struct Rounding {
  const char* name;
  CacheFormat format;
  bool wide;  // rotated keys have 8 bits; Triptych serves MLA so, and heads with 4
};
constexpr Rounding kRoundings[] = {{"float32", CacheFormat::kFloat32, false},
                                   {"int8", CacheFormat::kInt8, false},
                                   {"int4, keys in 4 bits", CacheFormat::kInt4, false},
                                   {"int4, keys in 8 bits", CacheFormat::kInt4, true}};

class RoundedModel {
 public:
  explicit RoundedModel(const Checkpoint& model)
      : config_(model.config), frame_(model.config, model.weights, ComputeType::kFloat32) {
    const LayerRotary rotary = MakeRotary(config_, at::kCPU);
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      if (config_.attention == AttentionKind::kMla) {
        layers_.push_back(std::make_unique<ReducedLatentAttention>(
            LatentAttention(LatentShapeOf(config_, layer), FindLatent(model.weights, layer),
                            rotary.shared)
                .Reduced(ReducedForm::kFactored)));
      } else {
        layers_.push_back(std::make_unique<GroupedAttention>(
            config_.num_attention_heads, config_.num_key_value_heads,
            FindGrouped(model.weights, layer), GroupedOptionsOf(config_, layer, rotary)));
      }
    }
  }

  // Bytes of a position in all layers.
  int64_t Bytes(const Rounding& rounding) const {
    int64_t bytes = 0;
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const Parts parts = PartsOf(layer);
      bytes += RowBytes(rounding.format, parts.rest + (rounding.wide ? 2 : 1) * parts.keys);
    }
    return bytes;
  }

  // Mean loss in nats per token.
  double Loss(const Rounding& rounding, const std::vector<tools::Window>& windows) const {
    const at::NoGradGuard no_grad;
    const auto attend = [&](int64_t layer, const at::Tensor& normal) {
      const CachedAttention& attention = *layers_[layer];
      const at::Tensor positions = PositionsOf(normal);
      const auto [keys, values] = attention.KeysAndValues(
          Rounded(rounding, PartsOf(layer), attention.Rows(normal, positions)));
      return attention.Output(AttendDense(attention.Queries(normal, positions), keys, values,
                                          attention.scores(), /*causal=*/true));
    };
    const auto add = [](const at::Tensor& x, const at::Tensor& branch) { return x + branch; };
    double sum = 0;
    int64_t tokens = 0;
    for (const tools::Window& window : windows) {
      const at::Tensor start =
          frame_.Embed(window.inputs, at::arange(window.inputs.size(1), window.inputs.options()));
      const at::Tensor logits = frame_.Logits(frame_.Hidden(start, attend, add)).flatten(0, 1);
      sum += at::cross_entropy_loss(logits, window.targets.flatten(), {}, at::Reduction::Sum)
                 .item<double>();
      tokens += window.targets.numel();
    }
    return sum / static_cast<double>(tokens);
  }

 private:
  // A row is rotated keys and a rest: latents, or values.
  struct Parts {
    int64_t rest;
    int64_t keys;
    int64_t head;  // width of a head's key and value; 0: all heads share the row
    bool keys_first;
  };
  Parts PartsOf(int64_t layer) const {
    if (config_.attention == AttentionKind::kMla) {
      return {config_.kv_lora_rank[layer], config_.qk_rope_head_dim, 0, false};
    }
    const int64_t width = config_.num_key_value_heads * config_.head_dim;
    return {width, width, config_.head_dim, true};
  }

  static at::Tensor Rounded(const Rounding& rounding, const Parts& parts, const at::Tensor& rows) {
    if (!rounding.wide) {
      return AsCached(rows, rounding.format,
                      parts.head > 0 ? parts.head : std::gcd(parts.rest, parts.keys));
    }
    const at::Tensor keys = rows.narrow(-1, parts.keys_first ? 0 : parts.rest, parts.keys);
    const at::Tensor rest = rows.narrow(-1, parts.keys_first ? parts.keys : 0, parts.rest);
    const at::Tensor rounded =
        AsCached(at::cat({rest, keys}, -1), rounding.format,
                 parts.head > 0 ? parts.head : std::gcd(parts.rest, 2 * parts.keys), parts.keys);
    const std::vector<at::Tensor> apart = rounded.split_with_sizes({parts.rest, parts.keys}, -1);
    return parts.keys_first ? at::cat({apart[1], apart[0]}, -1) : rounded;
  }

  ModelConfig config_;
  DecoderFrame frame_;
  std::vector<std::unique_ptr<const CachedAttention>> layers_;
};

void Measure(const std::string& name, const Checkpoint& model,
             const std::vector<tools::Window>& windows) {
  const RoundedModel rounded(model);
  std::printf("| %s |", name.c_str());
  for (const Rounding& rounding : kRoundings) {
    std::printf(" %lld: %.4f |", static_cast<long long>(rounded.Bytes(rounding)),
                rounded.Loss(rounding, windows));
  }
  std::printf("\n");
  std::fflush(stdout);
}

// Each row of latents and decoupled keys, by activations, with every width of the keys.
void MeasureConversions(const Checkpoint& from, const tools::Corpus& corpus,
                        const std::vector<tools::Window>& windows) {
  const std::vector<at::Tensor> covariances = tools::InputCovariances(from, corpus);
  const MixedPairs pairs(from, /*fold=*/1, covariances);
  std::vector<int64_t> widths = tools::DecoupledWidths(from.config);
  std::reverse(widths.begin(), widths.end());
  for (const int64_t width : widths) {
    const DecoupledKeys keys = pairs.Strongest(width);
    const std::vector<KeyValueSvd> svds = DecomposeLayers(from, covariances, keys);
    for (const int64_t sixteenths : kRows) {
      const int64_t rank = CacheRowElements(from.config, 0) * sixteenths / 16 - width;
      if (rank < 1 || rank > FullRank(from.config, width)) continue;
      const std::vector<int64_t> ranks(from.config.num_hidden_layers, rank);
      Measure("MLA, " + std::to_string(rank) + " + " + std::to_string(width),
              AsStored(ToLatent(from, svds, ranks, keys)), windows);
    }
  }
}

int Main(int argc, char** argv) {
  std::filesystem::path path, text;
  std::optional<double> held_out;
  CLI::App app("Held-out losses of a rotary model by the bits of its cached rotated keys");
  app.add_option("--model", path, "rotary model; MHA and GQA are also measured as MLA")->required();
  app.add_option("--text", text, "text that the model was trained on")->required();
  app.add_option("--held-out", held_out, "fraction of the text that is held out");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);  // which orders sums
  const Checkpoint model = LoadCheckpoint(path, TensorFormat::kFloat32);
  const bool latent = model.config.attention == AttentionKind::kMla;
  if (model.config.RotaryDim() == 0 || model.config.qk_norm) {
    throw std::runtime_error(path.string() + ": allowed: rotary positions without qk_norm");
  }
  if (!latent) CheckConversion(model, {.attention = AttentionKind::kMla}, path.string());
  const tools::Corpus corpus(text, *checkpoint::LoadTokenizer(path), held_out, model.config,
                             path.string());
  corpus.RequireHeldOut();
  const std::vector<tools::Window> windows =
      corpus.HeldOutWindows(/*batch=*/1, tools::HeldOutLength(model.config));
  std::printf("| model, r + d_R |");
  for (const Rounding& rounding : kRoundings) std::printf(" %s |", rounding.name);
  std::printf("\n|---|---|---|---|---|\n");
  Measure("its own", AsStored(model), windows);
  if (!latent) MeasureConversions(model, corpus, windows);
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  try {
    return triptych::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rotated_keys_bench: %s\n", e.what());
    return 2;
  }
}
