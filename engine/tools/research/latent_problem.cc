#include "engine/tools/research/latent_problem.h"

#include <ATen/ATen.h>

#include <cmath>

namespace triptych::tools {

const char* Verdict(bool holds) { return holds ? "holds" : "FAILS"; }

at::Tensor Normal(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

LatentProblem RandomProblem(const VerifyReductionOptions& options, bool scaled) {
  at::manual_seed(options.seed);
  const auto weight = [&](int64_t out, int64_t in) {
    return Normal({out, in}) * (scaled ? 1 / std::sqrt(static_cast<double>(in)) : 1.0);
  };
  const int64_t width = options.heads * options.head_dim;
  return {.shape = {.heads = options.heads,
                    .d_qk = options.head_dim,
                    .d_v = options.head_dim,
                    .rank = options.rank},
          .weights = {.q = {weight(width, options.x_width), {}},
                      .kv_a = {weight(options.rank, options.y_width), {}},
                      .latent_norm = {},
                      .kv_b = weight(2 * width, options.rank),
                      .o = {weight(options.x_width, width), {}}},
          .x = Normal({options.batch, options.queries, options.x_width}),
          .y = Normal({options.batch, options.keys, options.y_width})};
}

}  // namespace triptych::tools
