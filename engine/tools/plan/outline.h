// Bytes, capacity and expected speed of a model by its config alone, whether it is served or not.
#ifndef TRIPTYCH_ENGINE_TOOLS_PLAN_OUTLINE_H_
#define TRIPTYCH_ENGINE_TOOLS_PLAN_OUTLINE_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/formats.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/model_outline.h"
#include "engine/model/config.h"
#include "engine/tools/plan/machine.h"

namespace triptych::tools {

// The numbers of sequences for which plans state a speed.
inline constexpr std::array<int64_t, 3> kBatches = {1, 8, 32};

// A config as it is planned.
struct PlannedModel {
  checkpoint::ModelOutline outline;   // of `config`, if it is served
  std::optional<ModelConfig> config;  // absent: the model is not served
  std::string not_served;             // why
};

// Reads a checkpoint's config, or a config.json alone. A model is not served if its family or a
// value of a field is not, or if the file names no family. Throws LoadError for any other config
// that its family refuses.
PlannedModel ReadPlannedModel(const std::filesystem::path& path);

// Memory of each device, and the sequences in it.
struct OutlineUse {
  int64_t memory = 0;
  int64_t context = 0;  // positions of every sequence
  CacheFormat cache = CacheFormat::kBFloat16;
};

// Bytes of the weights, of the state of a sequence in float32, and of one sequence.
int64_t OutlineWeightBytes(const checkpoint::OutlineWeights& weights, WeightFormat format);
int64_t StateBytes(const checkpoint::ModelOutline& outline);
int64_t OutlineSequenceBytes(const checkpoint::ModelOutline& outline, CacheFormat cache,
                             int64_t context);
// Sequences that fit in memory with the weights, which `devices` devices share. Nothing else is
// deducted.
int64_t OutlineSequences(const checkpoint::ModelOutline& outline, WeightFormat format,
                         const OutlineUse& use, int64_t devices);

// A copy with the rows and states on one of `devices` devices. Throws std::invalid_argument, with
// --tensor-parallel in the message.
checkpoint::ModelOutline OnEachDevice(const checkpoint::ModelOutline& outline, int64_t devices);

// Lines with the formula in every cache format, against MHA, with facts and weights.
std::string DescribeOutline(const checkpoint::ModelOutline& outline, int64_t devices);

// A table of capacity and least time by weight format: of all, or of one.
std::string OutlineTable(const checkpoint::ModelOutline& outline, const OutlineUse& use,
                         const Machine& machine, int64_t devices,
                         const std::optional<WeightFormat>& only);

// The same numbers as JSON: rows and states in "each_device", weights and the sequences that fit in
// "all_devices" together.
OrderedJson OutlineJson(const PlannedModel& model, const checkpoint::ModelOutline& on_device,
                        int64_t devices, const std::optional<OutlineUse>& use);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_PLAN_OUTLINE_H_
