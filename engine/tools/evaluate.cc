#include "engine/tools/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cpu_model.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/base/ceil_div.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/compute_threads.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/weights.h"
#include "engine/kv_cache/geometry.h"
#include "engine/tools/asked_formats.h"

namespace triptych::tools {

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

double MeanLoss(const Checkpoint& model, const std::vector<Window>& windows) {
  return MeanLoss(Decoder(model.config, model.weights, ComputeType::kFloat32), windows);
}

double HeldOutLoss(const Checkpoint& model, const Corpus& corpus, CacheFormat cache) {
  return HeldOutLoss(Decoder(model.config, model.weights, ComputeType::kFloat32, cache), corpus);
}

double HeldOutLoss(const Decoder& decoder, const Corpus& corpus) {
  return MeanLoss(decoder, corpus.HeldOutWindows(/*batch=*/1, HeldOutLength(decoder.config())));
}

at::Tensor KlDivergence(const at::Tensor& p_logits, const at::Tensor& q_logits) {
  const at::Tensor log_p = at::log_softmax(p_logits.to(at::kDouble), -1);
  return (log_p.exp() * (log_p - at::log_softmax(q_logits.to(at::kDouble), -1))).sum(-1);
}

namespace {

// Held-out loss of a model as the server computes it, with one prompt for each window.
double ServedLoss(Checkpoint checkpoint, const WeightFormats& weights, CacheFormat cache,
                  const Corpus& corpus) {
  const ModelConfig config = checkpoint.config;
  const int64_t positions = HeldOutLength(config);
  BackendOptions options{.cache_format = cache};
  const CacheGeometry geometry = MakeCacheGeometry(config, cache, options.block_positions);
  const int64_t blocks = CeilDiv(positions, options.block_positions) * geometry.Groups().count();
  options.kv_cache_bytes = blocks * geometry.BlockBytes();
  const auto context = std::make_shared<kernels::KernelContext>(at::get_num_threads());
  cpu::CpuModel model(
      config, cpu::PackWeights(config, std::move(checkpoint.weights), weights, {}, context->pool),
      options, context);
  std::vector<int32_t> table(blocks);
  std::iota(table.begin(), table.end(), 0);
  double loss = 0;
  int64_t tokens = 0;
  for (const Window& window : corpus.HeldOutWindows(/*batch=*/1, positions)) {
    const int64_t count = window.targets.numel();
    const auto* const ids = window.inputs.data_ptr<int64_t>();
    StepInput step;
    step.ids.assign(ids, ids + count);
    step.sequences = {{.blocks = table.data(), .start = 0, .count = count, .prompt = count}};
    step.logit_rows.resize(count);
    std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
    const std::span<const float> logits = model.Step(step);
    const at::Tensor rows =
        at::from_blob(const_cast<float*>(logits.data()), {count, config.vocab_size}, at::kFloat);
    loss += at::cross_entropy_loss(rows, window.targets.flatten(), {}, at::Reduction::Sum)
                .item<double>();
    tokens += count;
  }
  return loss / static_cast<double>(tokens);
}

// The measured tokens, and their relation to the model's training.
std::string PartText(const ModelConfig& config, const Corpus& corpus) {
  const std::string count = std::to_string(corpus.held_out_tokens());
  if (FindText(config.training_texts, corpus.identity().sha256) != nullptr) {
    return count + " held-out tokens";
  }
  return "the last " + count + " tokens of " + corpus.file_name() +
         (config.training_texts.empty()
              ? ", without a record of what the model was trained on"
              : ", which is not among the model's recorded training texts");
}

}  // namespace

void Evaluate(const EvaluateOptions& options) {
  const WeightFormats weights =
      FormatsFor(checkpoint::ReadConfig(options.model), options.weights, WeightFormat::kFloat32);
  Checkpoint checkpoint = LoadCheckpoint(options.model, TensorsFor(weights));
  const ModelConfig config = checkpoint.config;
  const std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(options.model);
  checkpoint::CheckVocabulary(*tokenizer, config, options.model.string());
  const Corpus corpus(options.text, *tokenizer, options.held_out, config, options.model.string());
  corpus.RequireHeldOut();
  const double loss = ServedLoss(std::move(checkpoint), weights, options.cache, corpus);
  std::printf("%s: %.4f nats per token (%.3f bits) over %s, computed in %s with a cache in %s\n",
              options.model.c_str(), loss, loss / std::log(2.0), PartText(config, corpus).c_str(),
              WeightsText(weights).c_str(), std::string(Name(options.cache)).c_str());
}

}  // namespace triptych::tools
