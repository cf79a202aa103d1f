// The plan of a model: how many sequences fit in memory, how fast they would go, and which
// attention wins.
#ifndef TRIPTYCH_ENGINE_TOOLS_PLAN_H_
#define TRIPTYCH_ENGINE_TOOLS_PLAN_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/base/formats.h"

namespace triptych::tools {

struct PlanOptions {
  std::filesystem::path model;  // directory, of which config.json alone is read
  // Bytes for all that a server holds. If absent, those that are free on the GPU `device`.
  std::optional<int64_t> memory = {};
  std::optional<int64_t> context = {};  // positions of every sequence; the model's most if absent
  std::optional<int64_t> groups = {};   // GQA's G; EachKindOf's if absent
  std::optional<int64_t> rank = {};     // MLA's r; EachKindOf's if absent
  // The weights' format; if absent, the checkpoint's. A GPU allows bfloat16 alone, its default.
  std::optional<WeightFormat> dtype = {};
  std::optional<WeightFormat> embeddings = {};  // the other weights' if absent, or as stored
  std::optional<CacheFormat> cache = {};        // the weights' if absent
  std::filesystem::path machine = {};           // file; `device` is measured if empty
  std::string device = "cpu";                   // "cpu", "cuda" or "cuda:N"
  std::filesystem::path write_machine = {};     // where to write what was measured, or empty
  int threads = 1;                              // to measure the CPU with
};

// Prints the plan of each kind. Throws LoadError, std::invalid_argument or std::runtime_error.
void Plan(const PlanOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_PLAN_H_
