#include "engine/tools/research/verify.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/tools/evaluate.h"

namespace triptych::tools {
namespace {

// The bounds of engine/definitions.md#tolerances.
constexpr double kProof = 1e-11;               // float64
constexpr double kSingleScaledRow = 1e-5;      // float32, every row, against float64
constexpr double kSingleUnscaledWhole = 1e-3;  // float32 over the whole

// Standard normal, in float64.
at::Tensor Normal(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

// The largest relative error of a row, which is the last dimension.
double WorstRowError(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.to(at::kDouble);
  return ((a.to(at::kDouble) - reference).norm(2, -1) / reference.norm(2, -1)).max().item<double>();
}

const char* Verdict(bool holds) { return holds ? "holds" : "FAILS"; }

// --- Reduction -------------------------------------------------------------------------------

struct LatentProblem {
  LatentShape shape;
  LatentWeights weights;
  at::Tensor x;  // [B, L1, D1]
  at::Tensor y;  // [B, L2, D2]
};

LatentProblem RandomProblem(const VerifyReductionOptions& o, bool scaled) {
  at::manual_seed(o.seed);
  const auto weight = [&](int64_t out, int64_t in) {
    return Normal({out, in}) * (scaled ? 1 / std::sqrt(static_cast<double>(in)) : 1.0);
  };
  const int64_t width = o.heads * o.head_dim;
  return {.shape = {.heads = o.heads, .d_qk = o.head_dim, .d_v = o.head_dim, .rank = o.rank},
          .weights = {.q = {weight(width, o.x_width), {}},
                      .kv_a = {weight(o.rank, o.y_width), {}},
                      .latent_norm = {},
                      .kv_b = weight(2 * width, o.rank),
                      .o = {weight(o.x_width, width), {}}},
          .x = Normal({o.batch, o.queries, o.x_width}),
          .y = Normal({o.batch, o.keys, o.y_width})};
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
  results.scores = at::matmul(q.transpose(1, 2), rows.transpose(2, 3)) * attention.scale();
  return results;
}

// --- A stack of copies -----------------------------------------------------------------------

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

// --- MLA as MQA ------------------------------------------------------------------------------

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

// --- Models ----------------------------------------------------------------------------------

// Sums over the tokens seen so far.
struct Comparison {
  int64_t tokens = 0;
  int64_t same_greedy = 0;
  double largest_difference = 0;
  double difference = 0;  // of all logits, absolute
  int64_t logits = 0;
  double divergence = 0;
  double loss_a = 0;
  double loss_b = 0;

  // a, b: [tokens, vocab]; targets: [tokens]
  void Add(const at::Tensor& a, const at::Tensor& b, const at::Tensor& targets) {
    const at::Tensor differences = (a - b).abs();
    const auto largest = differences.max().item<double>();
    // Keeps a NaN.
    if (std::isnan(largest) || largest > largest_difference) largest_difference = largest;
    difference += differences.sum(at::kDouble).item<double>();
    logits += differences.numel();
    tokens += targets.numel();
    same_greedy += (a.argmax(-1) == b.argmax(-1)).sum().item<int64_t>();
    divergence += KlDivergence(a, b).sum().item<double>();
    const auto loss = [&](const at::Tensor& of) {
      return at::cross_entropy_loss(of, targets, {}, at::Reduction::Sum).item<double>();
    };
    loss_a += loss(a);
    loss_b += loss(b);
  }
};

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

bool VerifyModel(const VerifyModelOptions& options) {
  const at::NoGradGuard no_grad;
  const Checkpoint a = LoadCheckpoint(options.a, TensorFormat::kFloat32);
  const Checkpoint b = LoadCheckpoint(options.b, TensorFormat::kFloat32);
  if (a.config.vocab_size != b.config.vocab_size) {
    throw LoadError(options.b.string() + ": vocab_size is " + std::to_string(b.config.vocab_size) +
                    "; " + options.a.string() + " has " + std::to_string(a.config.vocab_size));
  }
  const std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(options.a);
  checkpoint::CheckVocabulary(*tokenizer, a.config, options.a.string());
  const Corpus corpus(options.text, *tokenizer, options.held_out, a.config, options.a.string());
  corpus.RequireUnseen(b.config, options.b.string());
  corpus.RequireHeldOut();
  const Decoder decoder_a(a.config, a.weights, ComputeType::kFloat32);
  const Decoder decoder_b(b.config, b.weights, ComputeType::kFloat32);
  Comparison sum;
  for (const Window& window : corpus.HeldOutWindows(
           /*batch=*/1, std::min(HeldOutLength(a.config), HeldOutLength(b.config)))) {
    sum.Add(decoder_a.Forward(window.inputs).flatten(0, 1),
            decoder_b.Forward(window.inputs).flatten(0, 1), window.targets.flatten());
  }
  const auto tokens = static_cast<double>(sum.tokens);
  const bool equal = sum.largest_difference <= options.tolerance;
  std::printf("a                 %s (%s)\nb                 %s (%s)\n", options.a.c_str(),
              std::string(Name(a.config.attention)).c_str(), options.b.c_str(),
              std::string(Name(b.config.attention)).c_str());
  std::printf("tokens compared   %lld held out of %s\n", static_cast<long long>(sum.tokens),
              options.text.filename().c_str());
  std::printf("logit difference  largest %.3g, mean %.3g\n", sum.largest_difference,
              sum.difference / static_cast<double>(sum.logits));
  std::printf("greedy agreement  %.3f%%\n", 100 * static_cast<double>(sum.same_greedy) / tokens);
  std::printf("KL(a || b)        %.3g nats per token\n", sum.divergence / tokens);
  std::printf("loss              a %.4f, b %.4f nats per token\n", sum.loss_a / tokens,
              sum.loss_b / tokens);
  std::printf("%s at a tolerance of %g\n", equal ? "equal" : "different", options.tolerance);
  return equal;
}

}  // namespace triptych::tools
