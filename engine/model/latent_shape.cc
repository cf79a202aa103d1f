#include "engine/model/latent_shape.h"

#include <cmath>

namespace triptych {

double LatentShape::reduced_scale() const {
  if (normed_keys > 0) return score_factor / std::sqrt(static_cast<double>(d_qk + d_rope));
  return 1.0 / std::sqrt(static_cast<double>(rank + d_rope));
}

LatentShape LatentShapeOf(const ModelConfig& config, int64_t layer) {
  return {.heads = config.num_attention_heads,
          .d_qk = config.head_dim,
          .d_v = config.ValueDim(),
          .rank = config.kv_lora_rank.at(layer),
          .d_rope = config.qk_rope_head_dim,
          .norm_eps = config.LatentNormEps(),
          .query_rank = config.q_lora_rank,
          .score_factor = config.ScoreFactor(layer),
          .normed_keys = config.NormedKeys()};
}

std::string_view Name(ReducedForm form) {
  switch (form) {
    case ReducedForm::kFactored:
      return "factored";
    case ReducedForm::kPremultiplied:
      return "premultiplied";
  }
  return {};
}

ReducedForm SmallerForm(const LatentShape& shape, int64_t width) {
  if (shape.normed_keys > 0) return ReducedForm::kFactored;
  const int64_t from = shape.query_rank > 0 ? shape.query_rank : width;
  const int64_t premultiplied = shape.heads * shape.rank * (from + width);
  const int64_t factored =
      shape.heads * (shape.d_qk * (from + shape.rank) + shape.d_v * (width + shape.rank));
  return premultiplied <= factored ? ReducedForm::kPremultiplied : ReducedForm::kFactored;
}

std::vector<ReducedForm> ReducedForms(const ModelConfig& config) {
  std::vector<ReducedForm> forms;
  if (config.attention != AttentionKind::kMla) return forms;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    forms.push_back(SmallerForm(LatentShapeOf(config, layer), config.hidden_size));
  }
  return forms;
}

}  // namespace triptych
