// The seam between the engine and what computes: a model that is ready to serve. Torch-free.
#ifndef TRIPTYCH_ENGINE_BACKEND_SERVING_MODEL_H_
#define TRIPTYCH_ENGINE_BACKEND_SERVING_MODEL_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
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
};

// What is known of a model before its first step. Never changes.
struct ServingModelInfo {
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // of one sequence
  CacheGeometry geometry;
  int64_t blocks = 0;       // that the cache holds
  int64_t cache_bytes = 0;  // really allocated
  // The position of a prompt from which on MLA expands keys and values; absent if it never does.
  std::optional<int64_t> expand_from;

  int64_t pool_positions() const { return blocks * geometry.block_positions; }
};

// Owns its weights and the cache's memory. Not thread-safe: one thread calls Step, the same one for
// all models that share a KernelContext.
class ServingModel {
 public:
  virtual ~ServingModel() = default;

  // Writes the cache rows of the new tokens, attends over the cache and returns logits
  // [rows, vocab_size], valid until the next call. A token's logits depend on its own sequence
  // alone; a step that throws has changed nothing but the rows of its own tokens, and what is kept
  // of their prompts.
  // Throws std::out_of_range if an id or a position is not the model's.
  virtual std::span<const float> Step(const StepInput& step) = 0;

  // For a prompt of so many tokens that takes several steps; null if nothing is kept of it. Goes
  // before the model does.
  virtual std::unique_ptr<PromptScratch> MakePromptScratch(int64_t /*prompt*/) { return nullptr; }

  virtual const ServingModelInfo& info() const = 0;
};

// Throws std::out_of_range if an id or a position is not the model's.
void CheckStep(const StepInput& step, const ServingModelInfo& info);

// Bytes that MLA with the heads of this config may keep of all prompts under way together: the keys
// and values of four whole contexts, in float32, and no more than 256 MiB.
int64_t MostScratchBytes(const ModelConfig& config);

// A BackendOptions::expand_from at which MLA never expands keys and values.
inline constexpr int64_t kNeverExpand = std::numeric_limits<int64_t>::max();

// How a model is made ready to serve, whichever backend it is for.
struct BackendOptions {
  int64_t kv_cache_bytes = 0;  // the cache takes as many whole blocks as fit
  int64_t block_positions = 16;
  CacheFormat cache_format = CacheFormat::kFloat32;
  // The position of a prompt from which on MLA attends by vanilla attention, in those layers where
  // that can pay. Absent: from where it pays (backend/cpu/cost_model.h).
  std::optional<int64_t> expand_from = {};
};

// The info of a model of this config, whose cache_bytes are yet to be known. Throws LoadError if
// the cache would hold no block.
ServingModelInfo MakeInfo(const ModelConfig& config, const BackendOptions& options,
                          std::optional<int64_t> expand_from);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_SERVING_MODEL_H_
