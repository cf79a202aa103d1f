#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "engine/attention/algebra.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/tools/research/latent_problem.h"
#include "engine/tools/research/verify.h"

namespace triptych::tools {
namespace {

struct Projection {
  at::Tensor weight;  // [G*d, D] float64
  int64_t copies;     // H/G
};

// A random projection, or one of a model's layer. Throws LoadError or std::runtime_error.
Projection CopiedProjection(const VerifyGqaToMlaOptions& options) {
  at::manual_seed(options.seed);
  if (options.model.empty()) {
    return {.weight = Normal({options.rows, options.columns}), .copies = options.copies};
  }
  const Checkpoint checkpoint = LoadCheckpoint(options.model, TensorFormat::kFloat32);
  const ModelConfig& config = checkpoint.config;
  if (config.attention == AttentionKind::kMla) {
    throw LoadError(options.model.string() +
                    ": attention is \"mla\", which has no such matrix; allowed: \"mha\", \"gqa\"");
  }
  if (options.layer < 0 || options.layer >= config.num_hidden_layers) {
    throw std::runtime_error("--layer " + std::to_string(options.layer) +
                             " is out of range; allowed: 0 to " +
                             std::to_string(config.num_hidden_layers - 1));
  }
  const std::string name =
      AttentionPrefix(options.layer) + (options.values ? "v_proj.weight" : "k_proj.weight");
  return {.weight = checkpoint.weights.at(name).to(at::kDouble),
          .copies = config.num_attention_heads / config.num_key_value_heads};
}

std::string ShapeText(const at::Tensor& matrix) {
  return std::to_string(matrix.size(0)) + " x " + std::to_string(matrix.size(1));
}

// The first singular values of W and of its stack, and their ratios. values, ratios: [rank];
// of_stack: [rank or more]
void PrintSingularValues(const at::Tensor& values, const at::Tensor& of_stack,
                         const at::Tensor& ratios) {
  constexpr int64_t kShown = 8;
  const int64_t rank = values.size(0);
  std::printf("\n%16s %16s %12s\n", "singular value", "of the stack", "ratio");
  for (int64_t i = 0; i < std::min(rank, kShown); ++i) {
    std::printf("%16.6f %16.6f %12.9f\n", values[i].item<double>(), of_stack[i].item<double>(),
                ratios[i].item<double>());
  }
  if (rank > kShown) std::printf("  ... and %lld more\n", static_cast<long long>(rank - kShown));
}

}  // namespace

bool VerifyGqaToMla(const VerifyGqaToMlaOptions& options) {
  const auto [w, copies] = CopiedProjection(options);
  const at::Tensor stack = w.repeat({copies, 1});  // [H*d, D]
  const auto rank_of = [](const at::Tensor& matrix) {
    return at::linalg_matrix_rank(matrix).item<int64_t>();
  };
  const int64_t rank = rank_of(w), stack_rank = rank_of(stack);
  if (rank == 0) throw std::runtime_error("the matrix is zero: it has no singular values");
  const at::Tensor values = at::linalg_svdvals(w).narrow(0, 0, rank);
  const auto [u, s, vt] = at::linalg_svd(stack, /*full_matrices=*/false);
  const at::Tensor ratios = s.narrow(0, 0, rank) / values;
  const double expected = std::sqrt(static_cast<double>(copies));
  const double ratio_error = (ratios / expected - 1).abs().max().item<double>();
  const at::Tensor up = u.narrow(1, 0, rank);                                         // [H*d, r]
  const at::Tensor down = s.narrow(0, 0, rank).unsqueeze(1) * vt.narrow(0, 0, rank);  // [r, D]
  const at::Tensor product = at::mm(up, down);
  const double squared_error = (product - stack).square().mean().item<double>();
  // Relative errors: the bound does not depend on the scale of the weights.
  const bool holds =
      rank == stack_rank && ratio_error <= kProof && RelativeError(product, stack) <= kProof;

  std::printf("W:                     %s, rank %lld\n", ShapeText(w).c_str(),
              static_cast<long long>(rank));
  std::printf("stack of %lld copies:     %s, rank %lld\n", static_cast<long long>(copies),
              ShapeText(stack).c_str(), static_cast<long long>(stack_rank));
  PrintSingularValues(values, s, ratios);
  std::printf("sqrt(H/G):             %.9f; the ratios differ from it by at most %.1e of it\n",
              expected, ratio_error);
  std::printf("\nW_UM:                  %s\nW_DKV:                 %s\n", ShapeText(up).c_str(),
              ShapeText(down).c_str());
  std::printf("mean squared error:    %.1e (of W_UM W_DKV against the stack)\n", squared_error);
  std::printf("GQA as a low-rank pair %s\n", Verdict(holds));
  return holds;
}

}  // namespace triptych::tools
