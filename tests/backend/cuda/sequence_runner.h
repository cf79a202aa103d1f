// Sequences computed by a model, in any pieces and in any company.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_SEQUENCE_RUNNER_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_SEQUENCE_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/backend/model_backend.h"
#include "tests/backend/cuda/references.h"

namespace triptych {

// Logits of sequences, [ids, vocab] of each.
using SequenceLogits = std::vector<std::vector<float>>;

class SequenceRunner {
 public:
  // Tokens of a sequence: `count` from position `start` on.
  struct Piece {
    size_t sequence;
    int64_t start;
    int64_t count;
  };

  // Gives each sequence blocks that are scattered over the cache. The model outlives it. Throws
  // std::runtime_error if the cache is too small.
  SequenceRunner(ModelBackend& model, std::vector<ReferenceSequence> sequences);

  // A step of these pieces of which no logits are wanted.
  StepInput Input(const std::vector<Piece>& pieces) const;
  // Takes a step and keeps the logits of all its tokens.
  void Step(const std::vector<Piece>& pieces);

  // Computes each sequence alone. The prompt comes in chunks of these sizes, over and over again;
  // the rest in chunks of `generated` tokens.
  void RunAlone(const std::vector<int64_t>& prompt_chunks, int64_t generated);
  // Computes all sequences together. At each step one more joins; prompts come in random chunks,
  // which may reach into the generated tokens as they do after a preemption.
  void RunTogether(uint64_t seed);
  // Computes each sequence alone but for its last tokens, which come in steps with all others.
  void RunInCrowd(int64_t last_tokens);

  const std::vector<ReferenceSequence>& sequences() const { return sequences_; }
  const SequenceLogits& logits() const { return logits_; }  // NaN where nothing was computed

 private:
  ModelBackend& model_;
  const std::vector<ReferenceSequence> sequences_;
  std::vector<std::vector<int32_t>> tables_;
  SequenceLogits logits_;
};

// The cache blocks that such sequences need together.
int64_t BlocksFor(const std::vector<ReferenceSequence>& sequences, int64_t block_positions);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_SEQUENCE_RUNNER_H_
