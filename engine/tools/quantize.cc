#include "engine/tools/quantize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/base/quantities.h"
#include "engine/checkpoint/tensors/integer_rows.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/kernels/quantization.h"
#include "engine/tools/card.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/input_moments.h"
#include "engine/tools/output_directory.h"

namespace triptych::tools {
namespace {

// Damping, as a share of the moments' mean: bounds the compensation by inputs that hardly vary.
constexpr double kDamping = 0.01;

// Scales of a group of columns.
//   columns: [outputs, a group or less] float32, contiguous; returns [outputs, 1] float64
at::Tensor ScalesOf(const at::Tensor& columns, WeightFormat format) {
  at::Tensor scales = at::empty({columns.size(0), 1}, at::kDouble);
  const auto width = static_cast<size_t>(columns.size(1));
  std::array<int8_t, kQuantizationGroup> integers;
  for (int64_t row = 0; row < columns.size(0); ++row) {
    const std::span<const float> group(columns.data_ptr<float>() + row * columns.size(1), width);
    scales.data_ptr<double>()[row] = FromBFloat16(kernels::Quantize(format, group, integers));
  }
  return scales;
}

// About the bytes of the sums for these matrices. Matrices of one part of a layer that are as wide
// have the same inputs, almost always.
int64_t MomentBytes(const Weights& weights, const std::set<std::string>& names) {
  std::set<std::pair<std::string, int64_t>> inputs;
  for (const std::string& name : names) {
    const std::string part = name.substr(0, name.rfind('.', name.rfind('.') - 1));
    inputs.emplace(part, weights.at(name).size(1));
  }
  int64_t bytes = 0;
  for (const auto& [part, width] : inputs) bytes += 8 * width * width;
  return bytes;
}

// The routed experts whose matrices are among `without_inputs`: those that saw no token. In the
// order of layers and experts, by the prefixes of their tensors.
std::vector<std::string> UnseenExperts(const ModelConfig& config,
                                       const std::set<std::string>& without_inputs) {
  std::vector<std::string> unseen;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.HasExperts(layer)) continue;
    for (int64_t expert = 0; expert < config.experts.n_routed_experts; ++expert) {
      const std::string prefix = ExpertPrefix(layer, expert);
      const std::string down = prefix + "down_proj.weight";
      if (without_inputs.contains(down)) unseen.push_back(prefix);
    }
  }
  return unseen;
}

// "3 experts saw no token of the text and are rounded to the nearest: NAME, NAME and 1 more".
std::string UnseenText(const std::vector<std::string>& unseen) {
  constexpr size_t kNamed = 4;
  std::string text = std::to_string(unseen.size()) +
                     (unseen.size() == 1 ? " expert saw no token of the text and is"
                                         : " experts saw no token of the text and are") +
                     " rounded to the nearest:";
  for (size_t i = 0; i < std::min(unseen.size(), kNamed); ++i) {
    text += (i > 0 ? ", " : " ") + unseen[i].substr(0, unseen[i].size() - 1);
  }
  if (unseen.size() > kNamed) text += " and " + std::to_string(unseen.size() - kNamed) + " more";
  return text;
}

void CheckOptions(const QuantizeOptions& options) {
  if (!options.calibrate.empty() && options.format != WeightFormat::kInt4) {
    throw std::runtime_error("--calibrate goes with --dtype int4: int8 gains nothing by it");
  }
  CheckNewDirectory("--to", options.to);
}

}  // namespace

at::Tensor RoundToNearest(const at::Tensor& weight, WeightFormat format) {
  at::Tensor rounded = weight.to(at::kFloat).contiguous().clone();
  const int64_t inputs = rounded.size(1);
  const checkpoint::IntegerRow stored = checkpoint::IntegerRowOf(format, inputs);
  std::vector<std::byte> integers(stored.elements);
  std::vector<uint16_t> scales(stored.scales);
  for (int64_t row = 0; row < rounded.size(0); ++row) {
    const std::span<float> weights(rounded.data_ptr<float>() + row * inputs,
                                   static_cast<size_t>(inputs));
    checkpoint::StoreRow(format, weights, integers, scales);
    checkpoint::ReadRow(format, integers, scales, weights);
  }
  return rounded;
}

at::Tensor RoundCalibrated(const at::Tensor& weight, const at::Tensor& moments) {
  const int64_t inputs = weight.size(1);
  const at::Tensor damping = moments.diagonal().mean() * kDamping;
  const at::Tensor damped = moments + damping.clamp_min(1e-30) * at::eye(inputs, moments.options());
  const at::Tensor inverse = at::cholesky_inverse(at::linalg_cholesky(damped));
  const at::Tensor upper = at::linalg_cholesky(inverse, /*upper=*/true);  // [inputs, inputs]

  at::Tensor left = weight.to(at::kDouble).clone();  // columns, with compensation so far
  at::Tensor rounded = at::empty(weight.sizes(), at::kFloat);
  for (int64_t begin = 0; begin < inputs; begin += kQuantizationGroup) {
    const int64_t width = std::min(kQuantizationGroup, inputs - begin);
    at::Tensor group = left.narrow(1, begin, width);
    const at::Tensor scales =
        ScalesOf(group.to(at::kFloat).contiguous(), WeightFormat::kInt4);  // [outputs, 1]
    const at::Tensor steps = at::where(scales == 0, at::ones_like(scales), scales);
    at::Tensor errors = at::empty({weight.size(0), width}, at::kDouble);
    for (int64_t i = 0; i < width; ++i) {
      const at::Tensor column = group.narrow(1, i, 1);  // [outputs, 1]
      const at::Tensor nearest = at::round(column / steps).clamp(-8, 7) * scales;
      const at::Tensor row = upper.narrow(0, begin + i, 1);  // [1, inputs]
      const at::Tensor error = (column - nearest) / row.select(1, begin + i);
      rounded.narrow(1, begin + i, 1).copy_(nearest);
      errors.narrow(1, i, 1).copy_(error);
      group.narrow(1, i, width - i).sub_(at::mm(error, row.narrow(1, begin + i, width - i)));
    }
    const int64_t end = begin + width;
    left.narrow(1, end, inputs - end)
        .sub_(at::mm(errors, upper.narrow(0, begin, width).narrow(1, end, inputs - end)));
  }
  return rounded;
}

std::set<std::string> RoundByInputs(Checkpoint& model, const std::set<std::string>& names,
                                    const Corpus& corpus, int64_t moment_bytes) {
  std::map<int64_t, std::set<std::string>> layers;
  std::set<std::string> outside;  // of the layers
  for (const std::string& name : names) {
    const std::optional<int64_t> layer = LayerOf(name);
    (layer ? layers[*layer] : outside).insert(name);
  }
  std::set<std::string> without_inputs;
  const auto round = [&](const std::string& name,
                         const std::map<std::string, at::Tensor>& moments) {
    at::Tensor& weight = model.weights.at(name);
    const auto found = moments.find(name);
    if (found == moments.end()) without_inputs.insert(name);
    weight = found == moments.end() ? RoundToNearest(weight, WeightFormat::kInt4)
                                    : RoundCalibrated(weight, found->second);
  };
  // All layers read the embedding, which may be the output matrix too: it is rounded last.
  std::map<std::string, at::Tensor> moments_outside;
  std::set<std::string> together = outside;
  for (auto layer = layers.rbegin(); layer != layers.rend();) {
    do {
      together.insert(layer->second.begin(), layer->second.end());
      ++layer;
    } while (layer != layers.rend() &&
             MomentBytes(model.weights, together) + MomentBytes(model.weights, layer->second) <=
                 moment_bytes);
    std::map<std::string, at::Tensor> moments = InputMoments(model, together, corpus);
    for (const std::string& name : together) {
      if (!outside.contains(name)) {
        round(name, moments);
      } else if (const auto found = moments.find(name); found != moments.end()) {
        moments_outside.insert(*found);
      }
    }
    together.clear();
  }
  for (const std::string& name : outside) round(name, moments_outside);
  return without_inputs;
}

void QuantizeModel(const QuantizeOptions& options) {
  CheckOptions(options);
  // Not every tokenizer can be written: fail before all weights are read.
  const std::map<std::string, std::string> tokenizer_files =
      checkpoint::TokenizerFiles(options.from);
  Checkpoint model = LoadCheckpoint(options.from, TensorFormat::kFloat32);
  ModelConfig stored = model.config;
  stored.quantization = {.format = options.format, .embeddings = !options.keep_embeddings};
  const std::set<std::string> names = IntegerTensors(stored);

  std::optional<Corpus> corpus;
  std::vector<std::string> unseen;
  std::optional<double> loss_before;
  if (!options.calibrate.empty()) {
    const std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(options.from);
    checkpoint::CheckVocabulary(*tokenizer, model.config, options.from.string());
    corpus.emplace(options.calibrate, *tokenizer, options.held_out, model.config,
                   options.from.string());
    if (corpus->held_out_tokens() > 0) loss_before = HeldOutLoss(model, *corpus);
    const int64_t weight_bytes =
        WeightBytes(WeightFormat::kFloat32, 1, ParameterCount(model.config));
    unseen = UnseenExperts(model.config, RoundByInputs(model, names, *corpus, weight_bytes));
    if (!unseen.empty()) std::fprintf(stderr, "%s\n", UnseenText(unseen).c_str());
  } else {
    for (const std::string& name : names) {
      at::Tensor& weight = model.weights.at(name);
      weight = RoundToNearest(weight, options.format);
    }
  }

  if (corpus) AddTrainingText(stored.training_texts, corpus->identity());
  std::string report = "Matrices as integers of ";
  report += options.format == WeightFormat::kInt8 ? "8" : "4";
  report += " bits, a scale for each 32";
  if (options.keep_embeddings) report += ", except the embedding and the output matrix";
  report += corpus ? ", rounded by what they multiply on the training part of `" +
                         corpus->file_name() + "`.\n"
                   : ", each rounded to the nearest.\n";
  if (!unseen.empty()) report += UnseenText(unseen) + ".\n";
  report +=
      "Weights: " + std::to_string(ParameterBytes(model.config, StoredFormats(model.config))) +
      " to " + std::to_string(ParameterBytes(model.config, StoredFormats(stored))) + " bytes.\n";
  Card card{.directory = options.to,
            .config = stored,
            .corpus = corpus ? &*corpus : nullptr,
            .held_out_loss = {},
            .facts = {},
            .command = options.command,
            .report = {},
            .source = options.from};
  if (loss_before) {
    card.held_out_loss = HeldOutLoss(model, *corpus);
    report += "Held-out loss on `" + corpus->file_name() +
              "`, of the stored weights: " + FormatDecimal(*loss_before, 4) + " to " +
              FormatDecimal(*card.held_out_loss, 4) + " nats per token.\n";
  }
  card.report = report;
  SaveCheckpoint(options.to, stored, model.weights, ToMarkdown(card), tokenizer_files);
  std::printf("%s: %s", options.to.c_str(), report.c_str());
}

}  // namespace triptych::tools
