// Interface between the engine and its backends: a model that is ready to serve.
#ifndef TRIPTYCH_ENGINE_BACKEND_MODEL_BACKEND_H_
#define TRIPTYCH_ENGINE_BACKEND_MODEL_BACKEND_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/formats.h"
#include "engine/kv_cache/geometry.h"
#include "engine/model/config.h"

namespace triptych {

// Work that a model keeps from one prefill step of a prompt to the next. Results have the same bits
// without it. The sequence owns it and releases it when the prompt is computed or the sequence's
// blocks are released.
class PromptScratch {
 public:
  virtual ~PromptScratch() = default;
};

// The new tokens of one step, sequence by sequence.
struct StepInput {
  // The new tokens of one sequence: positions start to start + count - 1.
  struct Sequence {
    // Position p of group g is in blocks[p / block_positions * groups + g]; start + count fit.
    // Blocks of windowed groups that no new token attends may be BlockTable::kNone.
    const int32_t* blocks;
    int64_t start;
    int64_t count;
    int64_t prompt;  // length of the prompt: positions 0 to prompt - 1 are its own
    // Null, or made by this model for this prompt.
    PromptScratch* scratch = nullptr;
  };

  std::vector<int64_t> ids;         // [tokens]
  std::vector<Sequence> sequences;  // in the order of their tokens
  std::vector<int64_t> logit_rows;  // [rows], tokens whose logits are returned
  // [rows], tokens whose LikelyTokens are found, and the scale of each one's weights. REQUIRES:
  // scales are positive and finite; both are empty if BackendInfo::likely_tokens is 0.
  std::vector<int64_t> likely_rows;
  std::vector<float> likely_scales;
};

// The likeliest tokens of a row of logits, ties by lower id: all that most sampling needs. NaN
// counts as -inf, and +inf as the largest float. At scale s, the inverse of a temperature, a logit
// x weighs exp(s (x - max)).
struct LikelyTokens {
  std::span<const int32_t> tokens;  // ascending
  std::span<const float> logits;    // of these tokens
  double log_sum_exp = 0;           // of the whole row; -inf if no token is possible
  double weight_sum = 0;            // of the whole row, at the row's scale
};

// Memory that a model has allocated on a GPU besides its KV cache.
struct DeviceMemory {
  std::string device;   // "cuda:0, NVIDIA H100 80GB HBM3"
  std::string kernels;  // "grouped attention, 9 of 9 products by cuBLASLt 13.0.2"
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;  // scratch memory of steps
};

// Properties of a model, fixed before its first step.
struct BackendInfo {
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // of one sequence
  CacheGeometry geometry;
  int64_t blocks = 0;       // in the cache
  int64_t cache_bytes = 0;  // as allocated
  // The first prompt position that MLA attends by the expanded path; absent if it never does.
  std::optional<int64_t> expand_from = {};
  // Whether every cache row of a prompt may have other bits than if the same token had been
  // generated. If false, only rows from expand_from on differ; none, if that is absent.
  bool prompt_rows_differ = false;
  std::optional<DeviceMemory> device_memory = {};  // absent on the CPU
  // Number of tokens in LikelyTokens, at most vocab_size; 0 if the model does not find them.
  int64_t likely_tokens = 0;
  // Fewest prefill rows that are worth their fixed cost in a step that also decodes.
  int64_t least_prefill_rows = 1;
  int64_t max_step_tokens = 512;  // BackendOptions::max_step_tokens
  // Whether logits and cache rows of generated tokens have the same bits if one step computes
  // several of a sequence, the last of them never read later. Without it the engine drafts nothing.
  // Only where likely_tokens is 0.
  bool verifies_drafts = false;

  // Positions of one sequence that the cache holds.
  int64_t pool_positions() const;
};

// Tokens of a model's routed experts since it was loaded. The load of an expert is the number of
// its tokens, divided by the mean of its layer's experts; 1 before the first token.
struct ExpertLoad {
  int64_t tokens = 0;  // of all experts: each token counts once for each expert that it chose
  double least = 1;    // load of all layers' experts
  double most = 1;
  int64_t untouched = 0;  // experts that no token has chosen
};

// A model's device is unusable for the rest of this process. The message is one line.
class DeviceLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A model on its device. Owns the weights and the KV cache's memory. Not thread-safe: one thread
// calls Step, the same one for all models that share a KernelContext.
class ModelBackend {
 public:
  virtual ~ModelBackend() = default;

  // Writes the cache rows of the new tokens, attends over the cache and returns logits [rows,
  // vocab_size], valid until the next call. A token's logits depend on its own sequence only. A
  // step that throws has changed only the rows of its own tokens and the scratch of their prompts.
  // Throws std::out_of_range if an id or a position is out of range, and DeviceLost.
  virtual std::span<const float> Step(const StepInput& step) = 0;
  // The likely tokens of the last step's likely_rows, valid until the next step.
  virtual std::span<const LikelyTokens> likely() const { return {}; }
  // The full logits [rows, vocab_size] of some of the last step's likely_rows, given as indices
  // into them. Valid until the next call of this or of Step. Throws DeviceLost.
  virtual std::span<const float> FetchLogits(std::span<const int64_t> /*likely_rows*/) {
    return {};
  }

  // Scratch for a prompt of `prompt` tokens whose prefill takes several steps; null if the model
  // keeps none. Must be destroyed before the model.
  virtual std::unique_ptr<PromptScratch> MakePromptScratch(int64_t /*prompt*/) { return nullptr; }

  // A model that shares the weights and has a cache of its own, of this number of blocks; null if
  // the backend cannot. Either may be destroyed first. Throws std::bad_alloc.
  virtual std::unique_ptr<ModelBackend> WithOwnCache(int64_t /*blocks*/) const { return nullptr; }

  virtual const BackendInfo& info() const = 0;
  // Absent if the model has no experts, or the backend does not count. Callable from any thread.
  virtual std::optional<ExpertLoad> expert_load() const { return std::nullopt; }
};

// Throws std::out_of_range if an id or a position is out of range.
void CheckStep(const StepInput& step, const BackendInfo& info);

// Limit of all PromptScratch of an MLA model with this config together, in bytes: the float32 keys
// and values of four full contexts, at most 256 MiB.
int64_t MostScratchBytes(const ModelConfig& config);

// Value of BackendOptions::expand_from at which MLA never expands keys and values.
inline constexpr int64_t kNeverExpand = std::numeric_limits<int64_t>::max();

// Default size of the largest step on a GPU, in tokens.
inline constexpr int64_t kDefaultGpuBatchTokens = 2048;

// Options that all backends share.
struct BackendOptions {
  int64_t kv_cache_bytes = 0;  // rounded down to whole blocks
  int64_t block_positions = 16;
  int64_t max_step_tokens = 512;  // of all sequences; sizes a GPU's workspace
  CacheFormat cache_format = CacheFormat::kFloat32;
  // The first prompt position that MLA attends by the expanded path, in layers where that can pay.
  // Absent: the crossover of backend/cpu/cost_model.h, or 0 on a GPU.
  std::optional<int64_t> expand_from = {};
};

// The info of a model with this config; the backend fills in cache_bytes. Throws LoadError if the
// cache would hold no block.
BackendInfo MakeInfo(const ModelConfig& config, const BackendOptions& options,
                     std::optional<int64_t> expand_from);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_MODEL_BACKEND_H_
