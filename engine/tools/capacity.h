// The number of a model's sequences that fit in memory, and how fast they would go.
#ifndef TRIPTYCH_ENGINE_TOOLS_CAPACITY_H_
#define TRIPTYCH_ENGINE_TOOLS_CAPACITY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/backend/cpu/step_cost.h"
#include "engine/backend/model_backend.h"
#include "engine/base/formats.h"
#include "engine/kernels/limits.h"
#include "engine/model/config.h"
#include "engine/tools/machine.h"

namespace triptych::tools {

// A model as one kind of attention, in so much memory. All bytes are the engine's own account.
struct KindPlan {
  ModelConfig config;
  WeightFormats dtypes;
  DeviceKind device = DeviceKind::kCpu;
  cpu::StepCost cost;
  int64_t server_bytes = 0;  // that the server itself takes; on a GPU its steps' workspace
  int64_t prompt_bytes = 0;  // that MLA may keep of prompts under way
  int64_t cache_bytes = 0;   // what is left for the cache
  BackendInfo info = {};     // as it would be served with that
  int64_t sequences = 0;     // of the planned context, whose blocks fit
};

// The config as each kind in turn, MHA, GQA and MLA, as `convert` would make them of one that
// is not rotated. Absent groups are the model's own, or the most whose rows are no wider than
// MLA's; an absent rank is the model's own, or the one at which nothing is lost. Throws
// std::invalid_argument, naming the flag, where `convert` would refuse them.
std::vector<ModelConfig> EachKindOf(const ModelConfig& config, std::optional<int64_t> groups,
                                    std::optional<int64_t> rank);

// On a GPU, MLA always attends reduced, and a step has at most 2048 tokens, the server's default
// there. REQUIRES on a GPU: weights and cache in bfloat16.
// Throws std::invalid_argument if the memory does not hold the weights and a block; LoadError as
// CountStep, MakeInfo and CountCudaModelBytes do.
KindPlan PlanKind(const ModelConfig& config, const WeightFormats& dtypes, CacheFormat cache,
                  int64_t memory, int64_t context, DeviceKind device = DeviceKind::kCpu);

// The peak at which a plan's attention computes: float32's on the CPU, bfloat16's on a GPU.
double AttentionFlops(const KindPlan& plan, const kernels::Limits& limits);

// The least seconds of a step in which each of `batch` sequences, whose cache has `context`
// positions, generates one token. Products take the longer of their weights at the read bandwidth
// and their FLOP at the peak; attention, which follows, likewise, with the rows of all sequences
// and at AttentionFlops.
double StepSeconds(const KindPlan& plan, const kernels::Limits& limits, int64_t batch,
                   double context);

// Of two models served in batches of that size: the number of positions, of `context` at most,
// where the one that is faster changes. Absent if one of them is faster throughout.
struct Crossover {
  bool at_first = false;  // whether `a` is the faster one at one position
  std::optional<double> positions = {};
};
Crossover FindCrossover(const KindPlan& a, const KindPlan& b, const kernels::Limits& limits,
                        int64_t batch, int64_t context);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CAPACITY_H_
