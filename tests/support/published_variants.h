// Definitions of the families cohere, gemma, gemma2, gemma3_text, granite, olmo2, phi3, smollm3,
// stablelm and starcoder2.
#ifndef TRIPTYCH_TESTS_SUPPORT_PUBLISHED_VARIANTS_H_
#define TRIPTYCH_TESTS_SUPPORT_PUBLISHED_VARIANTS_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "engine/base/json.h"
#include "tests/support/published_parts.h"

namespace triptych::published {

// Whether a model_type is one of these families.
bool IsVariant(const std::string& family);

// As Logits. ids: [length] int64
at::Tensor VariantLogits(const Json& config, const Tensors& tensors, const at::Tensor& ids);

}  // namespace triptych::published

#endif  // TRIPTYCH_TESTS_SUPPORT_PUBLISHED_VARIANTS_H_
