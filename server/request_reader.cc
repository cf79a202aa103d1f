#include "server/request_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <random>

#include "server/status.h"

namespace triptych {
namespace {

constexpr int kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr int kMaxTopLogprobs = 20;

// With as many digits as tell the value from every other.
template <typename T>
std::string NumberText(T value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// Collects the first error of a message.
class Checker {
 public:
  explicit Checker(const HostedModel& model) : model_(model) {}

  template <typename T>
  void Range(const std::string& field, T value, T min, T max, bool min_allowed = true) {
    if (value <= max && (min_allowed ? value >= min : value > min)) return;  // refuses NaN
    Refuse(field, "is " + NumberText(value) + "; allowed: " + (min_allowed ? "" : "above ") +
                      NumberText(min) + " to " + NumberText(max));
  }

  void Refuse(const std::string& field, const std::string& description) {
    if (status_.ok()) status_ = InvalidArgument(field, description);
  }

  // The begin token and the prompt of either message, which is in `text` or in `tokens`.
  template <typename Message>
  std::vector<int32_t> Prompt(const Message& message, const std::string& oneof) {
    std::vector<int32_t> prompt = {model_.tokenizer->begin_token()};
    if (message.has_text()) {
      const std::vector<int32_t> tokens = model_.tokenizer->Encode(message.text());
      prompt.insert(prompt.end(), tokens.begin(), tokens.end());
    } else if (message.has_tokens()) {
      const grpc::Status status = CheckTokenIds(message.tokens().ids(), model_, "tokens.ids");
      if (status_.ok()) status_ = status;
      prompt.insert(prompt.end(), message.tokens().ids().begin(), message.tokens().ids().end());
    } else {
      Refuse(oneof, "is missing; allowed: text or tokens");
    }
    return prompt;
  }

  const grpc::Status& status() const { return status_; }

 private:
  const HostedModel& model_;
  grpc::Status status_;
};

SamplingParams ReadSampling(const v1::SamplingParams& message, const HostedModel& model,
                            Checker& check) {
  SamplingParams params;
  params.temperature = message.has_temperature() ? message.temperature() : 1.0f;
  check.Range("sampling.temperature", params.temperature, 0.0f, 100.0f);
  params.top_k = message.top_k();
  check.Range("sampling.top_k", params.top_k, 0, INT32_MAX);
  params.top_p = message.has_top_p() ? message.top_p() : 1.0f;
  check.Range("sampling.top_p", params.top_p, 0.0f, 1.0f, /*min_allowed=*/false);
  params.min_p = message.min_p();
  check.Range("sampling.min_p", params.min_p, 0.0f, 1.0f);
  params.repetition_penalty =
      message.has_repetition_penalty() ? message.repetition_penalty() : 1.0f;
  check.Range("sampling.repetition_penalty", params.repetition_penalty, 0.0f, 100.0f,
              /*min_allowed=*/false);
  params.presence_penalty = message.presence_penalty();
  check.Range("sampling.presence_penalty", params.presence_penalty, -100.0f, 100.0f);
  params.frequency_penalty = message.frequency_penalty();
  check.Range("sampling.frequency_penalty", params.frequency_penalty, -100.0f, 100.0f);
  for (const auto& [token, bias] : message.logit_bias()) {
    const std::string field = "sampling.logit_bias[" + std::to_string(token) + "]";
    if (token < 0 || token >= model.config.vocab_size) {
      check.Refuse(field,
                   "names no token; allowed: 0 to " + std::to_string(model.config.vocab_size - 1));
    }
    check.Range(field, bias, -1000.0f, 1000.0f);
    params.logit_bias.emplace(token, bias);
  }
  return params;
}

uint64_t DrawSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

grpc::Status CheckTokenIds(const google::protobuf::RepeatedField<int32_t>& ids,
                           const HostedModel& model, const std::string& field) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= model.config.vocab_size) {
      return InvalidArgument(field + "[" + std::to_string(i) + "]",
                             "is " + std::to_string(ids[i]) + "; allowed: 0 to " +
                                 std::to_string(model.config.vocab_size - 1));
    }
  }
  return grpc::Status::OK;
}

grpc::Status ReadRequest(const v1::GenerateRequest& message, const HostedModel& model,
                         Request* request) {
  Checker check(model);
  request->prompt = check.Prompt(message, "prompt");
  if (message.has_max_new_tokens()) {
    request->max_new_tokens = message.max_new_tokens();
    check.Range<int64_t>("max_new_tokens", request->max_new_tokens, 1, INT32_MAX);
  } else {
    // As many as the context holds, and the pool: the last token needs no row.
    const int64_t fits =
        std::min(model.config.max_position_embeddings, model.engine->pool_positions() + 1);
    request->max_new_tokens = std::max<int64_t>(1, fits - std::ssize(request->prompt));
  }
  request->sampling = ReadSampling(message.sampling(), model, check);
  request->seed = message.sampling().has_seed() ? message.sampling().seed() : DrawSeed();

  if (message.stop_size() > kMaxStops) {
    check.Refuse("stop", "has " + std::to_string(message.stop_size()) +
                             " strings; allowed: " + std::to_string(kMaxStops));
  }
  for (int i = 0; i < message.stop_size(); ++i) {
    const std::string& stop = message.stop(i);
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      check.Refuse("stop[" + std::to_string(i) + "]", "is " + std::to_string(stop.size()) +
                                                          " bytes long; allowed: 1 to " +
                                                          std::to_string(kMaxStopBytes));
      continue;
    }
    request->stop.push_back(stop);
  }
  if (message.has_logprobs()) {
    check.Range("logprobs", message.logprobs(), 0, kMaxTopLogprobs);
    request->logprobs = message.logprobs();
  }
  request->ignore_eos = message.ignore_eos();
  return check.status();
}

grpc::Status ReadRequest(const v1::ScoreRequest& message, const HostedModel& model,
                         Request* request) {
  Checker check(model);
  request->prompt = check.Prompt(message, "input");
  request->score_prompt = true;
  return check.status();
}

}  // namespace triptych
