// Options of a conversion between attention kinds.
#ifndef TRIPTYCH_ENGINE_MODEL_CONVERSION_SPEC_H_
#define TRIPTYCH_ENGINE_MODEL_CONVERSION_SPEC_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/model/config.h"

namespace triptych {

// The method that makes fewer key/value heads, or a latent.
enum class ConversionMethod {
  kWeight,      // by singular values of the weights only
  kActivation,  // whitened by the covariance of each layer's inputs over a text
  kPool,        // GQA only: the mean of a group's heads
};
std::string_view Name(ConversionMethod method);

struct ConversionSpec {
  AttentionKind attention = AttentionKind::kMla;
  int64_t groups = 0;  // GQA: G
  int64_t rank = 0;    // MLA: r, the same in every layer; 0 for the full rank, which loses nothing
  // MLA of rotated keys: d_R of the decoupled keys, 0 for all pairs, which loses nothing; and the
  // number of adjacent frequencies that are mixed as if they were one.
  int64_t rope_head_dim = 0;
  int64_t fold = 1;
  std::optional<ConversionMethod> method = {};  // absent: the default of MethodOf
};

// The method of a conversion: the one that it asks for, or the best. The best is pool for GQA of
// rotated keys, since no query can undo a basis then; activation if there is a text to take inputs
// from; weight otherwise.
ConversionMethod MethodOf(const ConversionSpec& to, const ModelConfig& from, bool has_text);

// The config of the same model with MHA (G = H) or GQA of G key/value heads.
ModelConfig WithGroups(ModelConfig config, AttentionKind attention, int64_t groups);
// The config of the same model with MLA of these ranks, one for each layer. Latents have no
// windows: the context is at most the sliding window.
ModelConfig WithLatents(ModelConfig config, std::vector<int64_t> ranks);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_CONVERSION_SPEC_H_
