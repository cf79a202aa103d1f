// Draft model: a smaller model that drafts the tokens of an engine's sequences.
#ifndef TRIPTYCH_ENGINE_SERVING_DRAFT_MODEL_H_
#define TRIPTYCH_ENGINE_SERVING_DRAFT_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/model_backend.h"

namespace triptych::serving {

// Drafts the likeliest tokens. Its cache rows of a position are in the block of the position's
// rows: its cache has blocks of the same numbers as the engine's model. Not thread-safe.
class DraftModel {
 public:
  // `vocab_size`: of the engine's model; no other tokens are drafted. REQUIRES: the model's steps
  // return logits.
  DraftModel(std::unique_ptr<ModelBackend> model, int64_t vocab_size);

  const BackendInfo& info() const { return model_->info(); }

  // Begins a step without rows.
  void Begin();
  // Adds rows of `tokens`, which are at positions `start` and on of a sequence with these blocks.
  // `drafts`: the token after them is drafted.
  void Add(const int32_t* blocks, int64_t start, std::span<const int32_t> tokens, bool drafts);
  int64_t rows() const { return std::ssize(step_.ids); }
  // Computes the rows. Returns the drafted tokens in the order of Add, valid until the next call.
  // Throws as ModelBackend::Step does.
  std::span<const int32_t> Step();

 private:
  int32_t Likeliest(const float* logits);

  const std::unique_ptr<ModelBackend> model_;
  const int64_t drafted_vocab_;
  StepInput step_;
  std::vector<float> maxima_;  // of blocks of logits
  std::vector<int32_t> tokens_;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_DRAFT_MODEL_H_
