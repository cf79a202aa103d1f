// Multi-head latent attention in the form of DeepSeek-V3, which norms its latents:
// engine/definitions.md#in-the-form-of-deepseek-v3.
#ifndef TRIPTYCH_ENGINE_DECODER_DEEPSEEK_FORM_H_
#define TRIPTYCH_ENGINE_DECODER_DEEPSEEK_FORM_H_

#include <string>

#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// Throws LoadError for the first field that has no place in a config.json of model_type
// "deepseek_v3" without experts; `source` is the model's name for messages. REQUIRES: attention
// mla.
void CheckDeepseekForm(const ModelConfig& config, const std::string& source);

// The same model in that form: with normed latents of one rank, and without scales. Latents that
// were not normed get kNormConstants elements more, which keep their norm constant up to
// kLatentShare. Weights keep their dtype; constants are rounded to the config's torch_dtype.
// REQUIRES: CheckDeepseekForm passes.
Checkpoint ToDeepseekForm(Checkpoint model);

inline constexpr int64_t kNormConstants = 2;
// The most that a latent's length is of the constants' length, for any input.
inline constexpr double kLatentShare = 0x1p-12;

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_DEEPSEEK_FORM_H_
