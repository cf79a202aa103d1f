#include "engine/tools/plan/outline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "engine/backend/cpu/step_cost.h"
#include "engine/base/file.h"
#include "engine/base/names.h"
#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/base/table.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/tensor_specs.h"

namespace triptych::tools {
namespace {

using checkpoint::ModelOutline;
using checkpoint::OutlineWeights;

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;
constexpr int64_t kStateBytes = 4;  // of an element, in float32

// In floating point, because shapes of a config may overflow integers.
OutlineWeights WeightsOf(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  OutlineWeights weights{.experts = experts.n_routed_experts,
                         .chosen = experts.num_experts_per_tok};
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    double elements = 1;
    for (const int64_t size : spec.shape) elements *= static_cast<double>(size);
    const bool table = spec.name == kEmbeddingName && !config.tie_word_embeddings;
    (table                   ? weights.embedding
     : IsOfExpert(spec.name) ? weights.expert
                             : weights.always) += elements;
  }
  if (weights.experts > 0) weights.expert /= static_cast<double>(weights.experts);
  return weights;
}

// The outline of a model that is served, by its own family.
ModelOutline OutlineOf(const ModelConfig& config) {
  ModelOutline outline;
  outline.cached = CachedLayersOf(config);
  outline.context = config.max_position_embeddings;
  const OutlineWeights weights = WeightsOf(config);
  if (weights.All() <= checkpoint::kMostWeights) outline.weights = weights;
  outline.as_mha = {{.row = CachedRow::kHeads,
                     .layers = config.num_hidden_layers,
                     .query_heads = config.num_attention_heads,
                     .heads = config.num_attention_heads,
                     .parts = {config.QueryDim(), config.ValueDim()}}};
  for (const CachedLayers& group : outline.cached) {
    if (group.window == 0) continue;
    outline.facts.push_back(WindowFact(group.layers, config.num_hidden_layers, group.window));
  }
  return outline;
}

double BytesOf(double weights, WeightFormat format) {
  return weights * static_cast<double>(WeightBytes(format, kQuantizationGroup, 1)) /
         static_cast<double>(kQuantizationGroup);
}

// FLOP per second of products with these weights: on a GPU they are widened to bfloat16.
double PeakOf(const Machine& machine, WeightFormat format) {
  switch (machine.device) {
    case DeviceKind::kCpu:
      return kernels::PeakFlops(machine.limits, format);
    case DeviceKind::kCuda:
      return machine.limits.bfloat16_flops;
  }
  return 0;
}

double AttentionPeak(const Machine& machine) {
  switch (machine.device) {
    case DeviceKind::kCpu:
      return machine.limits.float32_flops;
    case DeviceKind::kCuda:
      return machine.limits.bfloat16_flops;
  }
  return 0;
}

// The least seconds of a decode step of `batch` sequences, as StepSeconds has it, on the device of
// `outline`, which holds a part of the weights.
double LeastStepSeconds(const ModelOutline& outline, const OutlineUse& use, const Machine& machine,
                        WeightFormat format, int64_t devices, int64_t batch) {
  const OutlineWeights& weights = *outline.weights;
  const auto tokens = static_cast<double>(batch), parts = static_cast<double>(devices);
  ModelConfig experts;
  experts.experts.n_routed_experts = weights.experts;
  experts.experts.num_experts_per_tok = weights.chosen;
  const cpu::StepCost cost{.read_bytes = std::llround(BytesOf(weights.always, format) / parts),
                           .expert_bytes = std::llround(BytesOf(weights.expert, format) / parts)};
  const double active = weights.Active() - weights.embedding;
  double core_flops = 0;
  for (const CachedLayers& group : outline.cached) {
    core_flops += static_cast<double>(group.layers * group.QueryFlops()) *
                  static_cast<double>(group.Attended(use.context));
  }
  const auto cache =
      static_cast<double>(QueryBytes(outline.cached, use.cache, use.context) + StateBytes(outline));
  return kernels::LeastSeconds(machine.limits, PeakOf(machine, format),
                               cpu::ReadBytes(experts, cost, tokens), 2 * tokens * active / parts) +
         kernels::LeastSeconds(machine.limits, AttentionPeak(machine), tokens * cache,
                               tokens * core_flops);
}

std::string Devices(int64_t devices) {
  return devices > 1 ? ", on each of " + FormatCount(devices) + " devices" : "";
}

}  // namespace

PlannedModel ReadPlannedModel(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool file = std::filesystem::is_regular_file(path, ignored) && path.extension() != ".gguf";
  std::filesystem::path json_file = file ? path : path / checkpoint::kConfigFile;
  if (!Exists(json_file) && Exists(path / checkpoint::kMistralConfigFile)) {
    json_file = path / checkpoint::kMistralConfigFile;
  }
  PlannedModel model;
  if (path.extension() == ".gguf") {
    model.config = checkpoint::ReadConfig(path);
    model.outline = OutlineOf(*model.config);
    model.outline.model_type = "gguf";
    return model;
  }
  const std::string source = json_file.string();
  const checkpoint::JsonFields fields(ParseJson(ReadText(json_file, kMaxConfigBytes), source),
                                      source);
  try {
    checkpoint::PublishedConfig published = checkpoint::ParsePublishedConfig(fields);
    model.config = file ? std::move(published.config) : checkpoint::ReadConfig(path);
    model.outline = OutlineOf(*model.config);
    model.outline.model_type = published.family->model_type;
  } catch (const LoadError& e) {
    const bool typed = fields.Has("model_type");
    if (typed && dynamic_cast<const checkpoint::UnsupportedError*>(&e) == nullptr) throw;
    // "model_type is "gpt_oss"", without the file and the families that are served.
    model.not_served = typed ? e.what() : "model_type is missing";
    if (model.not_served.starts_with(source + ": ")) model.not_served.erase(0, source.size() + 2);
    model.not_served.resize(std::min(model.not_served.find("; "), model.not_served.size()));
    model.outline = checkpoint::ParseModelOutline(fields);
  }
  return model;
}

int64_t OutlineWeightBytes(const OutlineWeights& weights, WeightFormat format) {
  return std::llround(BytesOf(weights.All(), format));
}

int64_t StateBytes(const ModelOutline& outline) {
  return kStateBytes * outline.state_elements.value_or(0);
}

int64_t OutlineSequenceBytes(const ModelOutline& outline, CacheFormat cache, int64_t context) {
  return SequenceBytes(outline.cached, cache, context) + StateBytes(outline);
}

int64_t OutlineSequences(const ModelOutline& outline, WeightFormat format, const OutlineUse& use,
                         int64_t devices) {
  const int64_t bytes = OutlineSequenceBytes(outline, use.cache, use.context);
  const int64_t rest = use.memory - OutlineWeightBytes(*outline.weights, format) / devices;
  return rest < 0 || bytes == 0 ? 0 : rest / bytes;
}

ModelOutline OnEachDevice(const ModelOutline& outline, int64_t devices) {
  ModelOutline own = outline;
  if (devices == 1) return own;
  try {
    own.cached = triptych::OnEachDevice(std::move(own.cached), devices);
    own.as_mha = triptych::OnEachDevice(std::move(own.as_mha), devices);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument("--tensor-parallel: " + std::string(e.what()));
  }
  for (size_t i = 0; i < own.cached.size(); ++i) {
    const CachedLayers& whole = outline.cached[i];
    if (whole.row != CachedRow::kHeads) {
      own.facts.push_back("each device holds whole latents");
      break;
    }
    if (whole.heads < devices) {
      own.facts.push_back("each key/value head is on " + FormatCount(devices / whole.heads) +
                          " devices");
      break;
    }
  }
  if (outline.state_layers > 0) {
    own.unknown.push_back("how devices share states; they are counted whole on each");
  }
  return own;
}

std::string DescribeOutline(const ModelOutline& outline, int64_t devices) {
  std::string text;
  if (outline.cached.empty()) text += "0 bytes a position: no layer caches rows of positions\n";
  for (int i = 0; !Name(static_cast<CacheFormat>(i)).empty() && !outline.cached.empty(); ++i) {
    const auto format = static_cast<CacheFormat>(i);
    text += std::string(Name(format)) + ": " + CacheFormula(outline.cached, format) +
            Devices(devices) + "\n";
  }
  if (!outline.cached.empty() && outline.cached != outline.as_mha) {
    const int64_t own = BytesPerPosition(outline.cached, CacheFormat::kBFloat16);
    const int64_t mha = BytesPerPosition(outline.as_mha, CacheFormat::kBFloat16);
    text += "as MHA in bfloat16: " + CacheFormula(outline.as_mha, CacheFormat::kBFloat16) +
            Devices(devices) + ": " +
            FormatDecimal(static_cast<double>(mha) / static_cast<double>(own), 1) + "x\n";
  }
  if (outline.state_elements) {
    text += "constant per sequence: " + FormatCount(StateBytes(outline)) +
            " bytes = " + outline.state_formula + " x 4 bytes\n";
  }
  for (const std::string& fact : outline.facts) text += fact + "\n";
  if (outline.weights) {
    text += FormatCount(std::llround(outline.weights->All())) + " weights";
    if (outline.weights->experts > 0) {
      text += ", " + FormatCount(std::llround(outline.weights->Active())) + " of them for a token";
    }
    text += ": ";
    for (int i = 0; !Name(static_cast<WeightFormat>(i)).empty(); ++i) {
      const auto format = static_cast<WeightFormat>(i);
      text += (i > 0 ? ", " : "") + FormatBytes(OutlineWeightBytes(*outline.weights, format)) +
              " in " + std::string(Name(format));
    }
    text += "\n";
  }
  for (const std::string& sentence : outline.unknown) text += "not known: " + sentence + "\n";
  return text;
}

std::string OutlineTable(const ModelOutline& outline, const OutlineUse& use, const Machine& machine,
                         int64_t devices, const std::optional<WeightFormat>& only) {
  std::vector<WeightFormat> formats;
  for (int i = 0; !Name(static_cast<WeightFormat>(i)).empty(); ++i) {
    if (!only || *only == static_cast<WeightFormat>(i))
      formats.push_back(static_cast<WeightFormat>(i));
  }
  std::vector<Table::Column> columns = {{"", Table::Align::kLeft}};
  for (const WeightFormat format : formats) columns.push_back({std::string(Name(format))});
  Table table(columns);
  const auto add = [&](const std::string& title, const auto& cell) {
    std::vector<std::string> cells = {title};
    for (const WeightFormat format : formats) cells.push_back(cell(format));
    table.AddRow(std::move(cells));
  };
  const auto sequences = [&](WeightFormat format) {
    return OutlineSequences(outline, format, use, devices);
  };
  const auto speed = [&](WeightFormat format, int64_t batch) -> std::string {
    if (batch < 1 || batch > sequences(format)) return "-";
    return FormatDecimal(static_cast<double>(batch) /
                             LeastStepSeconds(outline, use, machine, format, devices, batch),
                         1);
  };
  add("weights", [&](WeightFormat format) {
    return FormatBytes(OutlineWeightBytes(*outline.weights, format) / devices);
  });
  add("sequences that fit", [&](WeightFormat format) { return FormatCount(sequences(format)); });
  for (const int64_t batch : kBatches) {
    add("tokens/s, " + FormatCount(batch) + (batch == 1 ? " sequence" : " sequences"),
        [&](WeightFormat format) { return speed(format, batch); });
  }
  add("tokens/s, all that fit",
      [&](WeightFormat format) { return speed(format, sequences(format)); });
  return table.ToString();
}

OrderedJson OutlineJson(const PlannedModel& model, const ModelOutline& on_device, int64_t devices,
                        const std::optional<OutlineUse>& use) {
  const auto number = [](const auto& optional) {
    return optional ? OrderedJson(*optional) : OrderedJson(nullptr);
  };
  OrderedJson json = {{"model_type", on_device.model_type},
                      {"served", model.config.has_value()},
                      {"devices", devices},
                      {"context", number(on_device.context)},
                      {"facts", on_device.facts},
                      {"unknown", on_device.unknown}};
  OrderedJson& each = json["each_device"];
  each["state_elements"] = number(on_device.state_elements);
  each["kv_cache"] = OrderedJson::array();
  for (int i = 0; !Name(static_cast<CacheFormat>(i)).empty(); ++i) {
    const auto format = static_cast<CacheFormat>(i);
    OrderedJson row = {{"dtype", Name(format)},
                       {"bytes_per_position", BytesPerPosition(on_device.cached, format)},
                       {"mha_bytes_per_position", BytesPerPosition(on_device.as_mha, format)},
                       {"formula", CacheFormula(on_device.cached, format)}};
    if (use) row["sequence_bytes"] = OutlineSequenceBytes(on_device, format, use->context);
    each["kv_cache"].push_back(row);
  }
  OrderedJson& all = json["all_devices"];
  all["parameters"] = nullptr;
  if (!on_device.weights) return json;
  all["parameters"] = std::llround(on_device.weights->All());
  all["active_parameters"] = std::llround(on_device.weights->Active());
  for (int i = 0; !Name(static_cast<WeightFormat>(i)).empty(); ++i) {
    const auto format = static_cast<WeightFormat>(i);
    OrderedJson row = {{"dtype", Name(format)},
                       {"bytes", OutlineWeightBytes(*on_device.weights, format)}};
    if (use) row["sequences"] = OutlineSequences(on_device, format, *use, devices);
    all["weights"].push_back(row);
  }
  return json;
}

}  // namespace triptych::tools
