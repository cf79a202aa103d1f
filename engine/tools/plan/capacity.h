// Capacity and expected speed of a model: sequences that fit in memory, and seconds of a step.
#ifndef TRIPTYCH_ENGINE_TOOLS_PLAN_CAPACITY_H_
#define TRIPTYCH_ENGINE_TOOLS_PLAN_CAPACITY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/backend/cpu/step_cost.h"
#include "engine/backend/model_backend.h"
#include "engine/base/formats.h"
#include "engine/kernels/limits.h"
#include "engine/model/config.h"
#include "engine/tools/plan/machine.h"

namespace triptych::tools {

// A model as one attention kind, in a given memory. All bytes are those that the engine reports.
struct KindPlan {
  ModelConfig config;
  WeightFormats dtypes;
  DeviceKind device = DeviceKind::kCpu;
  cpu::StepCost cost;
  int64_t server_bytes = 0;  // of the server itself; on a GPU of the workspace of a step
  int64_t prompt_bytes = 0;  // maximum of MLA's expanded prompts
  int64_t cache_bytes = 0;   // of the cache: the rest
  BackendInfo info = {};     // as served with that cache
  int64_t sequences = 0;     // number of sequences of the planned context that fit
};

// The config as MHA, GQA and MLA, in this order, with the shapes that `convert` makes. Decoupled
// keys of a rotary model are half as wide as a head. Absent groups: the model's own, or the most
// with rows no wider than MLA's. Absent rank: the model's own, or the highest. Throws
// std::invalid_argument, with the flag's name, for values that `convert` refuses.
std::vector<ModelConfig> EachKindOf(const ModelConfig& config, std::optional<int64_t> groups,
                                    std::optional<int64_t> rank);

// The plan of one kind. On a GPU, MLA decodes reduced, and a step has at most 2048 tokens, the
// server's default there. REQUIRES on a GPU: weights and cache in bfloat16. Throws
// std::invalid_argument if the memory does not hold the weights and a block; LoadError as
// CountStep, MakeInfo and CountCudaModelBytes.
KindPlan PlanKind(const ModelConfig& config, const WeightFormats& dtypes, CacheFormat cache,
                  int64_t memory, int64_t context, DeviceKind device = DeviceKind::kCpu);

// Peak FLOP/s of a plan's attention: float32 on the CPU, bfloat16 on a GPU.
double AttentionFlops(const KindPlan& plan, const kernels::Limits& limits);

// Mean over the layers of the positions that a query attends, itself included, at the end of
// `context` positions.
double AttendedPositions(const KindPlan& plan, double context);

// The least seconds of a decode step of `batch` sequences with `context` positions each. Products
// take the longer of reading their weights and of their FLOP at the peak. Attention then takes the
// longer of reading the rows of all sequences and of its FLOP at AttentionFlops.
double StepSeconds(const KindPlan& plan, const kernels::Limits& limits, int64_t batch,
                   double context);

// The faster of two models, by the number of positions.
struct Crossover {
  bool at_first = false;  // true if `a` is faster at one position
  // Positions at which the faster model changes; absent if one is faster throughout.
  std::optional<double> positions = {};
};
// In steps of `batch` sequences, for 1 to `context` positions.
Crossover FindCrossover(const KindPlan& a, const KindPlan& b, const kernels::Limits& limits,
                        int64_t batch, int64_t context);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_PLAN_CAPACITY_H_
