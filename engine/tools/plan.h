// Prints how many sequences of a model fit in memory, how fast they would go, and which attention
// wins.
#ifndef TRIPTYCH_ENGINE_TOOLS_PLAN_H_
#define TRIPTYCH_ENGINE_TOOLS_PLAN_H_

#include <cstdint>
#include <filesystem>
#include <optional>

#include "engine/base/formats.h"

namespace triptych {

struct PlanOptions {
  std::filesystem::path model;          // directory, of which config.json alone is read
  int64_t memory = 0;                   // bytes, for all that a server holds
  std::optional<int64_t> context = {};  // positions of every sequence; the model's most if absent
  std::optional<int64_t> groups = {};   // GQA's G; EachKindOf's if absent
  std::optional<int64_t> rank = {};     // MLA's r; EachKindOf's if absent
  std::optional<WeightFormat> dtype = {};       // of the weights; the checkpoint's if absent
  std::optional<WeightFormat> embeddings = {};  // the other weights' if absent, or as stored
  std::optional<CacheFormat> cache = {};        // the weights' if absent
  std::filesystem::path machine = {};           // file; measured here if empty
  std::filesystem::path write_machine = {};     // where to write what was measured, or empty
  int threads = 1;                              // to measure with
};

// Prints the plan of each kind. Throws LoadError, std::invalid_argument or std::runtime_error.
void Plan(const PlanOptions& options);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TOOLS_PLAN_H_
