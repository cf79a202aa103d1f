#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "engine/attention/algebra.h"
#include "engine/attention/latent_attention.h"
#include "engine/tools/research/latent_problem.h"
#include "engine/tools/research/verify.h"

namespace triptych::tools {
namespace {

// The bounds of float32 in engine/definitions.md#tolerances.
constexpr double kSingleScaledRow = 1e-5;      // every row, against float64
constexpr double kSingleUnscaledWhole = 1e-3;  // over the whole

// The largest relative error of a row, which is the last dimension.
double WorstRowError(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.to(at::kDouble);
  return ((a.to(at::kDouble) - reference).norm(2, -1) / reference.norm(2, -1)).max().item<double>();
}

LatentProblem To(const LatentProblem& problem, const at::TensorOptions& options) {
  LatentProblem to = problem;
  for (at::Tensor* tensor : {&to.weights.q.weight, &to.weights.kv_a.weight, &to.weights.kv_b,
                             &to.weights.o.weight, &to.x, &to.y}) {
    *tensor = tensor->to(options);
  }
  return to;
}

// Compared tensors, in the dtype and on the device of the problem.
struct Results {
  at::Tensor scores;   // [B, H, L1, L2], scaled
  at::Tensor heads;    // [B, L1, H * d], before the output projection
  at::Tensor outputs;  // [B, L1, D1]
  double seconds = 0;  // of the outputs
};

template <typename Compute>
at::Tensor Timed(const at::Tensor& input, double& seconds, Compute compute) {
  const auto wait = [&] {
    if (input.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(input.device().index());
  };
  wait();
  const auto start = std::chrono::steady_clock::now();
  const at::Tensor result = compute();
  wait();
  seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

// With W_O = 1 the outputs are the heads.
LatentWeights WithoutOutput(const LatentProblem& problem) {
  LatentWeights weights = problem.weights;
  weights.o.weight = at::eye(problem.shape.heads * problem.shape.d_v, problem.x.options());
  return weights;
}

Results Vanilla(const LatentProblem& p) {
  const int64_t heads = p.shape.heads, d = p.shape.d_qk;
  Results results;
  const LatentAttention attention(p.shape, p.weights);
  results.outputs =
      Timed(p.x, results.seconds, [&] { return attention.Dense(p.x, p.y, /*causal=*/false); });
  results.heads = LatentAttention(p.shape, WithoutOutput(p)).Dense(p.x, p.y, /*causal=*/false);
  const at::Tensor uk = p.weights.kv_b.view({heads, 2 * d, -1}).narrow(1, 0, d).flatten(0, 1);
  const at::Tensor q = p.weights.q(p.x).unflatten(-1, {heads, d});  // [B, L1, H, d]
  const at::Tensor k =
      at::linear(p.weights.kv_a(p.y), uk).unflatten(-1, {heads, d});  // [B, L2, H, d]
  results.scores =
      at::matmul(q.transpose(1, 2), k.permute({0, 2, 3, 1})) / std::sqrt(static_cast<double>(d));
  return results;
}

Results Reduced(const LatentProblem& p, ReducedForm form) {
  Results results;
  const ReducedLatentAttention attention = LatentAttention(p.shape, p.weights).Reduced(form);
  results.outputs =
      Timed(p.x, results.seconds, [&] { return attention.Dense(p.x, p.y, /*causal=*/false); });
  results.heads =
      LatentAttention(p.shape, WithoutOutput(p)).Reduced(form).Dense(p.x, p.y, /*causal=*/false);
  const at::Tensor q = attention.Queries(p.x, {});               // [B, L1, H, r]
  const at::Tensor rows = attention.Rows(p.y, {}).unsqueeze(1);  // [B, 1, L2, r]
  results.scores = at::matmul(q.transpose(1, 2), rows.transpose(2, 3)) * attention.scores().scale;
  return results;
}

}  // namespace

bool VerifyReduction(const VerifyReductionOptions& o) {
  const at::NoGradGuard no_grad;
  if (o.device == at::kCUDA && !at::hasCUDA()) {
    throw std::runtime_error("--device cuda: this machine or build has no CUDA; allowed: cpu");
  }
  std::printf(
      "Reduced against vanilla: D1 = %lld, D2 = %lld, H = %lld, d = %lld, r = %lld, "
      "B = %lld, L1 = %lld, L2 = %lld, on %s\n\n",
      static_cast<long long>(o.x_width), static_cast<long long>(o.y_width),
      static_cast<long long>(o.heads), static_cast<long long>(o.head_dim),
      static_cast<long long>(o.rank), static_cast<long long>(o.batch),
      static_cast<long long>(o.queries), static_cast<long long>(o.keys),
      o.device == at::kCUDA ? "cuda" : "cpu");
  std::printf("%-9s %-8s %-14s %-21s %9s %9s %9s %7s %-5s %9s %9s\n", "weights", "dtype",
              "reduced form", "relative error of", "scores", "heads", "outputs", "bound", "",
              "vanilla s", "reduced s");
  bool all_hold = true;
  for (const bool scaled : {true, false}) {
    const LatentProblem exact = To(RandomProblem(o, scaled), at::TensorOptions().device(o.device));
    const Results reference = Vanilla(exact);
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      if (o.dtype.value_or(dtype) != dtype) continue;
      const bool single = dtype == at::kFloat;
      const LatentProblem problem = To(exact, at::TensorOptions().dtype(dtype));
      const Results vanilla = single ? Vanilla(problem) : reference;
      // Unscaled float32 scores differ from float64 in rows whose best two nearly tie, reduced or
      // vanilla. Unscaled float32 results are therefore compared with vanilla in float32.
      const bool by_row = single && scaled;
      const Results& expected = by_row ? reference : vanilla;
      const double bound = !single ? kProof : scaled ? kSingleScaledRow : kSingleUnscaledWhole;
      const auto error = by_row ? WorstRowError : RelativeError;
      for (const ReducedForm form : {ReducedForm::kFactored, ReducedForm::kPremultiplied}) {
        const Results reduced = Reduced(problem, form);
        const double scores = error(reduced.scores, expected.scores);
        const double heads = error(reduced.heads, expected.heads);
        const double outputs = error(reduced.outputs, expected.outputs);
        const bool holds = scores <= bound && heads <= bound && outputs <= bound;
        all_hold = all_hold && holds;
        std::printf("%-9s %-8s %-14s %-21s %9.1e %9.1e %9.1e %7.0e %-5s %9.3f %9.3f\n",
                    scaled ? "scaled" : "unscaled", single ? "float32" : "float64",
                    std::string(Name(form)).c_str(), by_row ? "worst row, to float64" : "the whole",
                    scores, heads, outputs, bound, Verdict(holds), vanilla.seconds,
                    reduced.seconds);
      }
    }
  }
  const int64_t positions = o.batch * o.keys;
  std::printf(
      "\ncache of %lld positions in float32: keys and values %lld bytes, latents %lld "
      "bytes\nreduction %s\n",
      static_cast<long long>(positions),
      static_cast<long long>(positions * 2 * o.heads * o.head_dim * 4),
      static_cast<long long>(positions * o.rank * 4), Verdict(all_hold));
  return all_hold;
}

}  // namespace triptych::tools
