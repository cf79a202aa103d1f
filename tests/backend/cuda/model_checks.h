// Checks that every model on a GPU must pass, for several tests.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_MODEL_CHECKS_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_MODEL_CHECKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/cuda/cuda_model.h"
#include "engine/backend/model_backend.h"
#include "tests/backend/cuda/references.h"
#include "tests/backend/cuda/sequence_runner.h"

namespace triptych {

// Options for a cache of so many blocks and steps of at most so many tokens.
BackendOptions CudaOptions(const ModelConfig& config, int64_t blocks, int64_t max_step_tokens);

std::unique_ptr<CudaModel> MakeModel(const Reference& reference, const BackendOptions& options);
// With a cache and steps for all that is computed here.
std::unique_ptr<CudaModel> MakeModel(const Reference& reference);

// The sequences to compute once; in emulation without the longest ones.
std::vector<ReferenceSequence> SequencesOf(const Reference& reference);
// The sequences to compute over and over; in emulation no more than their beginnings.
std::vector<ReferenceSequence> ShortSequencesOf(const Reference& reference);

// The logits of these sequences, each computed alone: its prompt in one step, then each token.
SequenceLogits LogitsAlone(ModelBackend& model, const std::vector<ReferenceSequence>& sequences);

void ExpectLogitsCloseToFloat64(ModelBackend& model,
                                const std::vector<ReferenceSequence>& sequences);
// Whatever else is in the steps and however the sequences are cut.
void ExpectSameBitsInEveryBatchAndChunking(ModelBackend& model, const Reference& reference);

// Whether all bits are the same, those of NaN too.
bool SameBits(std::span<const float> a, std::span<const float> b);
bool SameBits(const SequenceLogits& a, const SequenceLogits& b);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_MODEL_CHECKS_H_
