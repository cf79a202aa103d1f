#include "engine/tools/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "engine/checkpoint/load_tokenizer.h"

namespace triptych {

double HeldOutLoss(const Checkpoint& model, const Corpus& corpus) {
  return HeldOutLoss(Decoder(model.config, model.weights, ComputeType::kFloat32), corpus);
}

double HeldOutLoss(const Decoder& decoder, const Corpus& corpus) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const Window& window :
       corpus.HeldOutWindows(/*batch=*/8, decoder.config().max_position_embeddings)) {
    const at::Tensor logits = decoder.Forward(window.inputs).flatten(0, 1);  // [tokens, vocab]
    const at::Tensor loss = at::cross_entropy_loss(logits.to(at::kFloat), window.targets.flatten(),
                                                   {}, at::Reduction::Sum);
    sum += loss.item<double>();
  }
  return sum / static_cast<double>(corpus.held_out_tokens());
}

at::Tensor KlDivergence(const at::Tensor& p_logits, const at::Tensor& q_logits) {
  const at::Tensor log_p = at::log_softmax(p_logits.to(at::kDouble), -1);
  return (log_p.exp() * (log_p - at::log_softmax(q_logits.to(at::kDouble), -1))).sum(-1);
}

void Evaluate(const EvaluateOptions& options) {
  const Checkpoint checkpoint = LoadCheckpoint(options.model, options.dtype);
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(options.model);
  CheckVocabulary(*tokenizer, checkpoint.config, options.model.string());
  const Corpus corpus(options.text, *tokenizer, options.held_out);
  corpus.RequireHeldOut();
  const Decoder decoder(checkpoint.config, checkpoint.weights, DefaultComputeType(options.dtype));
  const double loss = HeldOutLoss(decoder, corpus);
  std::printf("%s: %.4f nats per token (%.3f bits) over %lld held-out tokens, computed in %s\n",
              options.model.c_str(), loss, loss / std::log(2.0),
              static_cast<long long>(corpus.held_out_tokens()),
              std::string(Name(options.dtype)).c_str());
}

}  // namespace triptych
