#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/weights.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/research/verify.h"

namespace triptych::tools {
namespace {

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
