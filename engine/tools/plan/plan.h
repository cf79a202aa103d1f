// Plan of a model by its config: bytes of its cache, sequences that fit in memory, and their speed.
#ifndef TRIPTYCH_ENGINE_TOOLS_PLAN_PLAN_H_
#define TRIPTYCH_ENGINE_TOOLS_PLAN_PLAN_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/base/asked_weight_formats.h"
#include "engine/base/formats.h"

namespace triptych::tools {

struct PlanOptions {
  std::filesystem::path model;  // config.json, or a checkpoint, of which only the config is read
  // Bytes of memory of the whole server, or of each device. Absent: the free memory of the GPU
  // `device`, the memory of a published GPU, or no plan: only bytes per position and of weights.
  std::optional<int64_t> memory = {};
  std::optional<int64_t> context =
      {};                              // positions of every sequence; the model's context if absent
  std::optional<int64_t> groups = {};  // G of GQA; as EachKindOf has it if absent
  std::optional<int64_t> rank = {};    // r of MLA; as EachKindOf has it if absent
  // Default: the checkpoint's. A GPU allows only bfloat16, its default.
  AskedWeightFormats weights = {};
  std::optional<CacheFormat> cache = {};  // as the weights if absent
  // File, or name of a published machine; if empty, `device` is measured.
  std::string machine = {};
  std::string device = "cpu";                // "cpu", "cuda" or "cuda:N"
  std::filesystem::path write_machine = {};  // output file for the measurement, or empty
  int threads = 1;                           // of the measurement of a CPU
  // Devices that share every layer's heads. Above 1, no kinds are compared.
  int64_t tensor_parallel = 1;
  bool json = false;  // prints numbers of the config alone, as one JSON object
};

// Prints the plan: as MHA, GQA and MLA if the model is served, else as it is. Throws LoadError,
// std::invalid_argument or std::runtime_error.
void Plan(const PlanOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_PLAN_PLAN_H_
