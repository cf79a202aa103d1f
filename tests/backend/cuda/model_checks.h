// Checks that every model on a GPU must pass, shared by several tests.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_MODEL_CHECKS_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_MODEL_CHECKS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/backend/cuda/cuda_model.h"
#include "engine/backend/model_backend.h"
#include "tests/backend/cuda/references.h"
#include "tests/backend/cuda/sequence_runner.h"

namespace triptych {

// Options for a cache of `blocks` and steps of at most `max_step_tokens` tokens.
BackendOptions CudaOptions(const ModelConfig& config, int64_t blocks, int64_t max_step_tokens);

std::unique_ptr<CudaModel> MakeModel(const Reference& reference, const BackendOptions& options);
// A model with a cache and steps that are large enough for all checks.
std::unique_ptr<CudaModel> MakeModel(const Reference& reference,
                                     std::optional<int64_t> expand_from = {});

// The sequences to compute once; in emulation, without the longest.
std::vector<ReferenceSequence> SequencesOf(const Reference& reference);
// The sequences to compute repeatedly; in emulation, only their beginnings.
std::vector<ReferenceSequence> ShortSequencesOf(const Reference& reference);

// The logits of these sequences, each computed by itself: its prompt in one step, then each token.
SequenceLogits LogitsAlone(ModelBackend& model, const std::vector<ReferenceSequence>& sequences);

void ExpectLogitsCloseToFloat64(ModelBackend& model,
                                const std::vector<ReferenceSequence>& sequences);
// Expects bit-identical logits for any other work in the steps and for any chunks of the sequences.
void ExpectSameBitsInEveryBatchAndChunking(ModelBackend& model, const Reference& reference);

// True if all bits are equal, also for NaN.
bool SameBits(std::span<const float> a, std::span<const float> b);
bool SameBits(const SequenceLogits& a, const SequenceLogits& b);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_MODEL_CHECKS_H_
