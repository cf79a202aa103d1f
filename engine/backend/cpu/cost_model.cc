#include "engine/backend/cpu/cost_model.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/vector_bytes.h"

namespace triptych::cpu {

double ExpansionCost() { return kernels::VectorBytes() == 32 ? 125 : 80; }

bool ExpandingCanPay(const LatentShape& shape) { return 2 * shape.rank > shape.d_qk + shape.d_v; }

int64_t ExpansionCrossover(const std::vector<LatentShape>& layers, double expansion_cost) {
  double expanded = 0;  // elements per position
  double saved = 0;     // multiply-adds per pair
  for (const LatentShape& s : layers) {
    if (!ExpandingCanPay(s)) continue;
    const auto heads = static_cast<double>(s.heads);
    expanded += heads * static_cast<double>(s.d_qk + s.d_rope + s.d_v);
    saved += heads * static_cast<double>(2 * s.rank - s.d_qk - s.d_v);
  }
  if (saved <= 0) return kNeverExpand;
  // expansion_cost * expanded * S <= saved * S * (S + 1) / 2
  return static_cast<int64_t>(std::ceil(std::max(1.0, 2 * expansion_cost * expanded / saved - 1)));
}

std::optional<int64_t> ExpandFrom(const ModelConfig& config, std::optional<int64_t> asked) {
  std::vector<LatentShape> factored;
  const std::vector<ReducedForm> forms = ReducedForms(config);
  for (size_t i = 0; i < forms.size(); ++i) {
    if (forms[i] == ReducedForm::kFactored) {
      factored.push_back(LatentShapeOf(config, static_cast<int64_t>(i)));
    }
  }
  const int64_t crossover = ExpansionCrossover(factored, ExpansionCost());
  if (crossover == kNeverExpand) return std::nullopt;
  const int64_t from = asked.value_or(crossover);
  if (from >= config.max_position_embeddings) return std::nullopt;
  return from;
}

}  // namespace triptych::cpu
