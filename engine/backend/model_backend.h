// The seam between the engine and what computes: a model that is ready to serve. Torch-free.
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

// What a model keeps of a prompt from one step to the next, to save work: the results are the same
// bits without. Whoever runs the prompt owns it, and gives it up when the prompt is computed, or
// its blocks are.
class PromptScratch {
 public:
  virtual ~PromptScratch() = default;
};

// The new tokens of one step, sequence by sequence.
struct StepInput {
  // The new tokens of one sequence: positions start to start + count - 1.
  struct Sequence {
    const int32_t* blocks;  // position p lives in blocks[p / block_positions]; start + count fit
    int64_t start;
    int64_t count;
    int64_t prompt;  // how many of the sequence's first positions are its prompt's
    // Null, or of the same model, and of no other prompt.
    PromptScratch* scratch = nullptr;
  };

  std::vector<int64_t> ids;         // [tokens]
  std::vector<Sequence> sequences;  // in the order of their tokens
  std::vector<int64_t> logit_rows;  // [rows], the tokens whose logits are wanted
  // [rows], the tokens whose LikelyTokens are wanted, and the scale of each one's weights: positive
  // and finite. Empty unless the model finds them.
  std::vector<int64_t> likely_rows;
  std::vector<float> likely_scales;
};

// The likeliest tokens of a row of logits, equals by lower id: all that most choices of a token
// need. NaN counts as -inf, and +inf as the largest float. At the scale s, the inverse of a
// temperature, a logit x weighs exp(s (x - the largest)).
struct LikelyTokens {
  std::span<const int32_t> tokens;  // ascending
  std::span<const float> logits;    // of these tokens
  double log_sum_exp = 0;           // of the whole row; -inf if no token is possible
  double weight_sum = 0;            // of the whole row, at the scale asked for
};

// Memory that a model holds on a GPU besides its KV cache, in bytes, as allocated.
struct DeviceMemory {
  std::string device;   // "cuda:0, NVIDIA H100 80GB HBM3"
  std::string kernels;  // "grouped attention, 9 of 9 products by cuBLASLt"
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;  // what steps compute in
};

// What is known of a model before its first step. Never changes.
struct BackendInfo {
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // of one sequence
  CacheGeometry geometry;
  int64_t blocks = 0;       // that the cache holds
  int64_t cache_bytes = 0;  // really allocated
  // The position of a prompt from which on MLA expands keys and values; absent if it never does.
  std::optional<int64_t> expand_from = {};
  // Whether all cache rows of a prompt have other bits than the same tokens would have if they were
  // generated. Otherwise only rows from expand_from on have, if that is present.
  bool prompt_rows_differ = false;
  std::optional<DeviceMemory> device_memory = {};  // absent on the CPU
  // How many tokens LikelyTokens has, the vocabulary at most; 0 if the model does not find them.
  int64_t likely_tokens = 0;

  int64_t pool_positions() const { return blocks * geometry.block_positions; }
};

// The device of a model cannot compute any more in this process. The message is one line.
class DeviceLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Owns its weights and the cache's memory. Not thread-safe: one thread calls Step, the same one for
// all models that share a KernelContext.
class ModelBackend {
 public:
  virtual ~ModelBackend() = default;

  // Writes the cache rows of the new tokens, attends over the cache and returns logits
  // [rows, vocab_size], valid until the next call. A token's logits depend on its own sequence
  // alone; a step that throws has changed nothing but the rows of its own tokens, and what is kept
  // of their prompts.
  // Throws std::out_of_range if an id or a position is not the model's, and DeviceLost.
  virtual std::span<const float> Step(const StepInput& step) = 0;
  // The likely tokens of the last step's likely_rows, valid until the next step.
  virtual std::span<const LikelyTokens> likely() const { return {}; }
  // The whole logits [rows, vocab_size] of some of the last step's likely_rows, by their indices
  // there. Valid until the next call of this or of Step. Throws DeviceLost.
  virtual std::span<const float> FetchLogits(std::span<const int64_t> /*likely_rows*/) {
    return {};
  }

  // For a prompt of so many tokens that takes several steps; null if nothing is kept of it. Goes
  // before the model does.
  virtual std::unique_ptr<PromptScratch> MakePromptScratch(int64_t /*prompt*/) { return nullptr; }

  virtual const BackendInfo& info() const = 0;
};

// Throws std::out_of_range if an id or a position is not the model's.
void CheckStep(const StepInput& step, const BackendInfo& info);

// Bytes that MLA with the heads of this config may keep of all prompts under way together: the keys
// and values of four whole contexts, in float32, and no more than 256 MiB.
int64_t MostScratchBytes(const ModelConfig& config);

// A BackendOptions::expand_from at which MLA never expands keys and values.
inline constexpr int64_t kNeverExpand = std::numeric_limits<int64_t>::max();

// Token rows of a step on a GPU, unless a server is told otherwise.
inline constexpr int64_t kDefaultGpuBatchTokens = 2048;

// How a model is made ready to serve, whichever backend it is for.
struct BackendOptions {
  int64_t kv_cache_bytes = 0;  // the cache takes as many whole blocks as fit
  int64_t block_positions = 16;
  int64_t max_step_tokens = 512;  // of all sequences; a GPU's workspace is made for them
  CacheFormat cache_format = CacheFormat::kFloat32;
  // The position of a prompt from which on MLA attends by expanded attention, in those layers where
  // that can pay. Absent: from where it pays (backend/cpu/cost_model.h).
  std::optional<int64_t> expand_from = {};
};

// The info of a model of this config, whose cache_bytes are yet to be known. Throws LoadError if
// the cache would hold no block.
BackendInfo MakeInfo(const ModelConfig& config, const BackendOptions& options,
                     std::optional<int64_t> expand_from);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_MODEL_BACKEND_H_
