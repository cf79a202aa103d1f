#include "engine/backend/cpu/cost_model.h"

#include <algorithm>
#include <cmath>

namespace triptych {

bool VanillaCanPay(const LatentShape& shape) { return 2 * shape.rank > shape.d_qk + shape.d_v; }

int64_t VanillaCrossover(const std::vector<LatentShape>& layers, double expansion_cost) {
  double expanded = 0;  // elements of a position
  double saved = 0;     // multiply-adds of a pair
  for (const LatentShape& s : layers) {
    if (!VanillaCanPay(s)) continue;
    const auto heads = static_cast<double>(s.heads);
    expanded += heads * static_cast<double>(s.d_qk + s.d_rope + s.d_v);
    saved += heads * static_cast<double>(2 * s.rank - s.d_qk - s.d_v);
  }
  if (saved <= 0) return kNeverExpand;
  // expansion_cost * expanded * S <= saved * S * (S + 1) / 2
  return static_cast<int64_t>(std::ceil(std::max(1.0, 2 * expansion_cost * expanded / saved - 1)));
}

}  // namespace triptych
