#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "engine/attention/algebra.h"
#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/tools/research/latent_problem.h"
#include "engine/tools/research/verify.h"

namespace triptych::tools {
namespace {

// The relative error of MLA's outputs as those of MQA, with W_Q and W_O free: one key/value head
// [c; 0] of width d, and queries W_UK^T W_Q. REQUIRES: rank <= d.
double ErrorAsMqa(const VerifyNotGqaOptions& o, int64_t rank) {
  const LatentProblem p = RandomProblem({.x_width = o.width,
                                         .y_width = o.width,
                                         .heads = o.heads,
                                         .head_dim = o.head_dim,
                                         .rank = rank,
                                         .batch = 1,
                                         .queries = 7,
                                         .keys = 9,
                                         .dtype = at::kDouble,
                                         .seed = o.seed},
                                        /*scaled=*/true);
  const at::Tensor kv_b = p.weights.kv_b.view({o.heads, 2 * o.head_dim, rank});
  const at::Tensor uk = kv_b.narrow(1, 0, o.head_dim), uv = kv_b.narrow(1, o.head_dim, o.head_dim);
  const at::Tensor q = p.weights.q.weight.view({o.heads, o.head_dim, o.width});
  const at::Tensor out =
      p.weights.o.weight.view({o.width, o.heads, o.head_dim}).transpose(0, 1);  // [H, D, d]
  const int64_t missing = o.head_dim - rank;
  const at::Tensor padded_q =
      at::constant_pad_nd(at::bmm(uk.transpose(1, 2), q), {0, 0, 0, missing});        // [H, d, D]
  const at::Tensor padded_out = at::constant_pad_nd(at::bmm(out, uv), {0, missing});  // [H, D, d]
  const at::Tensor key_value =
      at::constant_pad_nd(p.weights.kv_a.weight, {0, 0, 0, missing});  // [d, D]
  const GroupedAttention mqa(o.heads, /*groups=*/1,
                             {.q = {padded_q.flatten(0, 1), {}},
                              .k = {key_value, {}},
                              .v = {key_value, {}},
                              .o = {padded_out.transpose(0, 1).flatten(1), {}}});
  return RelativeError(mqa.Dense(p.x, p.y, /*causal=*/false),
                       LatentAttention(p.shape, p.weights).Dense(p.x, p.y, false));
}

}  // namespace

bool VerifyNotGqa(const VerifyNotGqaOptions& o) {
  if (o.groups >= o.heads || o.heads % o.groups != 0) {
    throw std::runtime_error("--groups " + std::to_string(o.groups) + " must divide --heads " +
                             std::to_string(o.heads) + " and be less");
  }
  at::manual_seed(o.seed);
  // Distance to the nearest stack of `groups` heads of d rows: each group's mean.
  const auto distance = [](const at::Tensor& product, int64_t heads, int64_t groups, int64_t d) {
    return RelativeError(RepeatHeads(PoolHeads(product, groups, d), heads, d), product);
  };

  const at::Tensor down = at::tensor({1.0, 2.0}, at::kDouble).view({1, 2});
  const at::Tensor up = at::tensor({3.0, 4.0}, at::kDouble).view({2, 1});
  const at::Tensor product = at::mm(up, down);
  const double counter_example = distance(product, 2, 1, 1);
  std::printf(
      "W_DKV = [1 2], W_UM = [3; 4]: the product is [%g %g; %g %g]. Its rows differ, so it "
      "is not two\ncopies of one 1 x 2 matrix; the nearest such stack is %.3f away, "
      "relatively.\n\n",
      product[0][0].item<double>(), product[0][1].item<double>(), product[1][0].item<double>(),
      product[1][1].item<double>(), counter_example);

  double smallest = 1;
  for (int64_t i = 0; i < o.count; ++i) {
    const at::Tensor random =
        at::mm(Normal({o.heads * o.head_dim, o.rank}), Normal({o.rank, o.width}));
    smallest = std::min(smallest, distance(random, o.heads, o.groups, o.head_dim));
  }
  std::printf(
      "%lld random products W_UK W_DKV (H = %lld, d = %lld, r = %lld, D = %lld): the nearest "
      "stack of copies of\n%lld heads is at least %.3f away, relatively.\n\n",
      static_cast<long long>(o.count), static_cast<long long>(o.heads),
      static_cast<long long>(o.head_dim), static_cast<long long>(o.rank),
      static_cast<long long>(o.width), static_cast<long long>(o.groups), smallest);

  const int64_t rank = std::min(o.rank, o.head_dim);
  const double error = ErrorAsMqa(o, rank);
  std::printf(
      "With W_Q and W_O free, and r = %lld <= d = %lld: MQA whose one head is the latent and "
      "zeros\ngives the outputs of MLA with a relative error of %.1e.\n\n",
      static_cast<long long>(rank), static_cast<long long>(o.head_dim), error);

  constexpr double kCopies = 1e-9;  // a stack of copies is within rounding, 1e-16, of itself
  const bool holds = counter_example > kCopies && smallest > kCopies && error <= kProof;
  std::printf("MLA is not GQA, but MQA with new W_Q and W_O: %s\n", Verdict(holds));
  return holds;
}

}  // namespace triptych::tools
