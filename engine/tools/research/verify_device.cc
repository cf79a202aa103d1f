#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/formats.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/kernels/context.h"
#include "engine/loading/loaded_model.h"
#include "engine/model/config.h"
#include "engine/serving/engine.h"
#include "engine/tools/corpus.h"
#include "engine/tools/research/verify.h"

namespace triptych::tools {
namespace {

constexpr uint64_t kMostTextBytes = uint64_t{256} << 20;
constexpr int32_t kTop = 8;  // tokens of which the CPU's log-probabilities are known

std::string Reason(serving::SubmitStatus status) {
  using enum serving::SubmitStatus;
  switch (status) {
    case kQueueFull:
      return "it exceeds the queue";
    case kQueueTimeout:
      return "it waited too long";
    case kPromptTooLong:
      return "it exceeds the context as served";
    case kNeverFits:
      return "it exceeds the KV cache";
    case kStopping:
    case kAccepted:  // not passed to OnRejected
      break;
  }
  return "the engine is stopping";
}

// The reply to a request.
class Reply final : public serving::RequestSink {
 public:
  void OnRejected(serving::SubmitStatus status) override {
    error = "the engine rejected the prompt: " + Reason(status);
  }
  void OnPromptLogprobs(std::vector<serving::TokenLogprobs> logprobs) override {
    std::move(logprobs.begin(), logprobs.end(), std::back_inserter(prompt));
  }
  void OnDelta(serving::Delta delta) override { generated.push_back(std::move(*delta.logprobs)); }
  void OnFinish(serving::Completion completion) override { error = completion.error; }

  std::string device;
  std::string error;                           // empty if there was none
  std::vector<serving::TokenLogprobs> prompt;  // of prompt[1:]
  std::vector<serving::TokenLogprobs> generated;
};

// The first tokens of the text, with room for the generated ones in the context.
std::vector<int32_t> Prompt(const VerifyDeviceOptions& options,
                            const checkpoint::OpenedCheckpoint& checkpoint) {
  const std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(checkpoint);
  const ModelConfig& config = checkpoint.config;
  const int64_t room = std::min(options.prompt, config.max_position_embeddings - options.generated);
  if (room < 2) {
    throw std::invalid_argument(
        "prompt: room for " + std::to_string(room) + " tokens, before " +
        std::to_string(options.generated) + " generated ones in a context of " +
        std::to_string(config.max_position_embeddings) + "; allowed: 2 and more");
  }
  std::vector<int32_t> prompt = tokenizer->Encode(ReadText(options.text, kMostTextBytes));
  const auto begin = tokenizer->begin_token();
  if (begin) prompt.insert(prompt.begin(), *begin);
  if (prompt.size() < 2) {
    throw std::runtime_error(options.text.string() + ": a prompt of " +
                             std::to_string(prompt.size()) + " tokens; allowed: 2 and more");
  }
  prompt.resize(std::min(std::ssize(prompt), room));
  // Loading checks the begin token.
  CheckTokens(std::span(prompt).subspan(begin ? 1 : 0), options.text, config,
              options.model.string());
  return prompt;
}

Reply RunOn(const std::string& device, const std::vector<int32_t>& prompt,
            const VerifyDeviceOptions& options) {
  constexpr WeightFormat kFormat = WeightFormat::kBFloat16;
  LoadOptions load{.name = options.model.string(),
                   .checkpoint = checkpoint::OpenCheckpoint(options.model),
                   .weights = {.layers = kFormat},
                   .cache_format = CacheFormat::kBFloat16,
                   .device = device};
  const int64_t positions = std::ssize(prompt) + options.generated;
  if (device != "cpu") load.engine.max_batch_tokens = kDefaultGpuBatchTokens;
  const int64_t block = load.backend.block_positions;
  load.backend.kv_cache_bytes =
      MakeCacheGeometry(load.checkpoint.config, *load.cache_format, block).BytesPerPosition() *
      (positions + 2 * block);
  const LoadedModel model =
      LoadModel(load, std::make_shared<kernels::KernelContext>(options.threads));
  const auto reply = std::make_shared<Reply>();
  reply->device = device;
  if (const auto& memory = model.info.device_memory) reply->device = memory->device;
  serving::Request request;
  request.id = "1";
  request.prompt = prompt;
  request.max_new_tokens = options.generated;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.logprobs = kTop;
  request.prompt_logprobs = 0;
  model.engine->Submit(std::move(request), reply);
  while (model.engine->Step()) {
  }
  if (!reply->error.empty()) throw std::runtime_error(device + ": " + reply->error);
  if (reply->prompt.size() != prompt.size() - 1) {
    throw std::runtime_error(device + ": " + std::to_string(reply->prompt.size()) +
                             " log-probabilities of a prompt of " + std::to_string(prompt.size()) +
                             " tokens");
  }
  return std::move(*reply);
}

// The distance of a token's log-probability from the chosen one's; infinite outside of the top.
double Margin(const serving::TokenLogprobs& at, int32_t token) {
  for (const serving::TokenLogprob& likely : at.top) {
    if (likely.token == token) return std::abs(double{at.chosen.logprob} - double{likely.logprob});
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

bool VerifyDevice(const VerifyDeviceOptions& options) {
  if (options.device == "cpu") {
    throw std::invalid_argument(
        "device: cpu is what a GPU is compared with; allowed: cuda, cuda:N");
  }
  const std::vector<int32_t> prompt = Prompt(options, checkpoint::OpenCheckpoint(options.model));
  const Reply device = RunOn(options.device, prompt, options);
  const Reply cpu = RunOn("cpu", prompt, options);

  double largest = 0, squares = 0;
  for (size_t i = 0; i < cpu.prompt.size(); ++i) {
    const double difference =
        double{cpu.prompt[i].chosen.logprob} - double{device.prompt[i].chosen.logprob};
    largest = std::max(largest, std::abs(difference));
    squares += difference * difference;
  }
  const double rms = std::sqrt(squares / static_cast<double>(cpu.prompt.size()));
  size_t same = 0;
  const size_t generated = std::min(cpu.generated.size(), device.generated.size());
  while (same < generated &&
         cpu.generated[same].chosen.token == device.generated[same].chosen.token) {
    ++same;
  }
  double margin = 0;
  if (same < generated) margin = Margin(cpu.generated[same], device.generated[same].chosen.token);
  const bool equal = rms <= options.tolerance && margin <= options.tolerance;
  std::printf("model            %s, in bfloat16\n", options.model.c_str());
  std::printf("device           %s\n", device.device.c_str());
  std::printf("prompt           %zu tokens of %s\n", prompt.size(),
              options.text.filename().c_str());
  std::printf("log-probability  root mean square difference %.3g, largest %.3g\n", rms, largest);
  std::printf("greedy text      equal for %zu of %zu tokens", same, generated);
  if (same < generated) std::printf(", then the CPU prefers its own by %.3g", margin);
  std::printf("\n%s at a tolerance of %g nats\n", equal ? "equal" : "different", options.tolerance);
  return equal;
}

}  // namespace triptych::tools
