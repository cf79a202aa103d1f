// Runner of sequences on a model, in any chunks and any batches.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_SEQUENCE_RUNNER_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_SEQUENCE_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/backend/model_backend.h"
#include "tests/backend/cuda/references.h"

namespace triptych {

// Logits by sequence: [ids, vocab].
using SequenceLogits = std::vector<std::vector<float>>;

class SequenceRunner {
 public:
  // Tokens of a sequence: `count` from position `start` on.
  struct Piece {
    size_t sequence;
    int64_t start;
    int64_t count;
  };

  // Gives each sequence blocks scattered over the cache, which last to its end, except those before
  // a window: as the engine, Step gives them back. The model must outlive the runner. Throws
  // std::runtime_error if the cache is too small.
  SequenceRunner(ModelBackend& model, std::vector<ReferenceSequence> sequences);

  // A step of these pieces without logits.
  StepInput Input(const std::vector<Piece>& pieces) const;
  // Runs a step and stores the logits of all its tokens.
  void Step(const std::vector<Piece>& pieces);

  // Computes each sequence by itself: the prompt in chunks of these sizes, cyclically; the rest in
  // chunks of `generated` tokens.
  void RunAlone(const std::vector<int64_t>& prompt_chunks, int64_t generated);
  // Computes all sequences together. At each step one more joins. Prompts are computed in random
  // chunks, which can include generated tokens, as after a preemption.
  void RunTogether(uint64_t seed);
  // Computes each sequence by itself, except for its last tokens, which share steps with all
  // others.
  void RunInCrowd(int64_t last_tokens);

  const std::vector<ReferenceSequence>& sequences() const { return sequences_; }
  const SequenceLogits& logits() const { return logits_; }  // NaN for positions not computed

 private:
  // Gives back the blocks of windowed groups that no token from `position` on attends.
  void GiveBack(size_t sequence, int64_t position);

  ModelBackend& model_;
  const std::vector<ReferenceSequence> sequences_;
  std::vector<std::vector<int32_t>> tables_;  // as StepInput::Sequence::blocks
  SequenceLogits logits_;
};

// Number of cache blocks that these sequences need together, without giving any back.
int64_t BlocksFor(const std::vector<ReferenceSequence>& sequences, int64_t block_positions,
                  int64_t groups);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_SEQUENCE_RUNNER_H_
