#include "engine/tools/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "engine/checkpoint/load_tokenizer.h"
#include "engine/decoder/compute_threads.h"

namespace triptych {

double MeanLoss(const Decoder& decoder, const std::vector<Window>& windows) {
  std::vector<double> losses(windows.size());
  RunOnComputeThreads(std::ssize(windows), [&](int64_t i) {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = decoder.Forward(windows[i].inputs).flatten(0, 1);  // [tokens, vocab]
    losses[i] = at::cross_entropy_loss(logits.to(at::kFloat), windows[i].targets.flatten(), {},
                                       at::Reduction::Sum)
                    .item<double>();
  });
  int64_t tokens = 0;
  for (const Window& window : windows) tokens += window.targets.numel();
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(tokens);
}

double HeldOutLoss(const Checkpoint& model, const Corpus& corpus, CacheFormat cache) {
  return HeldOutLoss(Decoder(model.config, model.weights, ComputeType::kFloat32, cache), corpus);
}

double HeldOutLoss(const Decoder& decoder, const Corpus& corpus) {
  return MeanLoss(decoder,
                  corpus.HeldOutWindows(/*batch=*/1, decoder.config().max_position_embeddings));
}

at::Tensor KlDivergence(const at::Tensor& p_logits, const at::Tensor& q_logits) {
  const at::Tensor log_p = at::log_softmax(p_logits.to(at::kDouble), -1);
  return (log_p.exp() * (log_p - at::log_softmax(q_logits.to(at::kDouble), -1))).sum(-1);
}

namespace {

// What the measured tokens are to the model.
std::string PartText(const ModelConfig& config, const Corpus& corpus) {
  const std::string count = std::to_string(corpus.held_out_tokens());
  if (FindText(config.training_texts, corpus.identity().sha256) != nullptr) {
    return count + " held-out tokens";
  }
  return "the last " + count + " tokens of " + corpus.file_name() +
         (config.training_texts.empty()
              ? ", of which it does not say whether it was trained on them"
              : ", which is none of the texts that it says it was trained on");
}

}  // namespace

void Evaluate(const EvaluateOptions& options) {
  const Checkpoint checkpoint = LoadCheckpoint(options.model, options.dtype);
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(options.model);
  CheckVocabulary(*tokenizer, checkpoint.config, options.model.string());
  const Corpus corpus(options.text, *tokenizer, options.held_out, checkpoint.config,
                      options.model.string());
  corpus.RequireHeldOut();
  const Decoder decoder(checkpoint.config, checkpoint.weights, DefaultComputeType(options.dtype),
                        options.cache);
  const double loss = HeldOutLoss(decoder, corpus);
  std::printf("%s: %.4f nats per token (%.3f bits) over %s, computed in %s with a cache in %s\n",
              options.model.c_str(), loss, loss / std::log(2.0),
              PartText(checkpoint.config, corpus).c_str(), std::string(Name(options.dtype)).c_str(),
              std::string(Name(options.cache)).c_str());
}

}  // namespace triptych
