// Fuzz target: messages from an untrusted client, and the answers to them.
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/server_context.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/request_limits.h"
#include "engine/text/text_stream.h"
#include "google/rpc/status.pb.h"
#include "server/core/requests/field_checks.h"
#include "server/core/requests/validation.h"
#include "server/core/stats/page_tokens.h"
#include "server/grpc/status.h"
#include "server/grpc/wire.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"
#include "tests/server/core/model_info.h"

namespace triptych {
namespace {

constexpr size_t kMaxStatusBytes = 4096;  // gRPC's default limit of a call's metadata is 8 KiB

const server::ModelInfo& Model() {
  static const server::ModelInfo model = server::SmallModelInfo();
  return model;
}

void CheckError(const server::Error& error) {
  PromiseClearLine(error.Message(), 1000);
  grpc::CallbackServerContext context;
  const grpc::Status status = server::ToStatus(error, context);
  google::rpc::Status details;
  Promise(!status.ok(), "an error is no success");
  Promise(details.ParseFromString(status.error_details()), "details are a google.rpc.Status");
  Promise(status.error_message().size() + status.error_details().size() < kMaxStatusBytes,
          "a status fits into the trailers");
}

void CheckRequest(const serving::Request& request) {
  Promise(!request.prompt.empty() && !server::CheckTokenIds(request.prompt, Model(), "prompt"),
          "a prompt is tokens of the model");
  Promise(limits::kChoices.Contains(request.choices), "choices are few");
  Promise(request.min_new_tokens >= 0 && request.min_new_tokens <= request.max_new_tokens,
          "the fewest tokens are no more than the most");
  Promise(request.stop_tokens.size() <= limits::kMaxStopTokens &&
              !server::CheckTokenIds(request.stop_tokens, Model(), "stop"),
          "stop tokens are few, and the model's");
  Promise(request.stop.size() <= limits::kMaxStops, "stop strings are few");
  for (const std::string& stop : request.stop) {
    Promise(limits::kStopBytes.Contains(stop.size()), "a stop string is neither empty nor long");
  }
  const serving::SamplingParams& sampling = request.sampling;
  Promise(limits::kTemperature.Contains(sampling.temperature) &&
              limits::kTopK.Contains(sampling.top_k) && limits::kTopP.Contains(sampling.top_p) &&
              limits::kMinP.Contains(sampling.min_p) &&
              limits::kRepetitionPenalty.Contains(sampling.repetition_penalty) &&
              limits::kPresencePenalty.Contains(sampling.presence_penalty) &&
              limits::kFrequencyPenalty.Contains(sampling.frequency_penalty) &&
              limits::kPenaltyWindow.Contains(sampling.penalty_window),
          "sampling options are in their ranges");
  Promise(sampling.allowed.size() <= limits::kMaxAllowedTokens &&
              !server::CheckTokenIds(sampling.allowed, Model(), "allowed"),
          "allowed tokens are few, and the model's");
  Promise(sampling.logit_bias.size() <= limits::kMaxLogitBiases, "biases are few");
  for (const auto& [token, bias] : sampling.logit_bias) {
    Promise(limits::kLogitBias.Contains(bias), "a bias is in its range");
  }
  for (const std::optional<int32_t>& logprobs : {request.logprobs, request.prompt_logprobs}) {
    Promise(!logprobs || limits::kLogprobs.Contains(*logprobs),
            "log-probabilities are as many as may be");
  }
}

// `bytes` parsed as a message; nothing if that fails.
template <typename Message>
bool Parse(std::string_view bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

void FuzzGenerate(std::string_view bytes) {
  v1::GenerateRequest message;
  if (!Parse(bytes, message)) return;
  const server::Result<server::ValidRequest> valid =
      server::Validate(server::FromProto(message), Model());
  if (!valid.ok()) return CheckError(valid.error());
  CheckRequest(valid.value().request);
  const bool scores = message.echo() || message.has_prompt_logprobs();
  Promise(scores || valid.value().request.max_new_tokens >= 1, "a token is asked for");
}

void FuzzScore(std::string_view bytes) {
  v1::ScoreRequest message;
  if (!Parse(bytes, message)) return;
  const server::Result<std::vector<server::ValidRequest>> valid =
      server::Validate(server::FromProto(message), Model());
  if (!valid.ok()) return CheckError(valid.error());
  Promise(limits::kScoreInputs.Contains(valid.value().size()), "inputs are few");
  for (const server::ValidRequest& one : valid.value()) CheckRequest(one.request);
}

void FuzzTokenize(std::string_view bytes) {
  v1::TokenizeRequest message;
  if (!Parse(bytes, message)) return;
  const server::Result<server::TokenizedText> text =
      server::Tokenize(server::FromProto(message), Model());
  if (!text.ok()) return CheckError(text.error());
  const std::vector<int32_t>& tokens = text.value().tokens;
  Promise(!server::CheckTokenIds(tokens, Model(), "tokens"), "tokens are the model's");
  const std::string pieces = Model().tokenizer->Decode(tokens);
  Promise(text.value().pieces == (message.pieces() ? pieces : ""),
          "pieces are all that is decoded");
  const std::vector<int64_t>& offsets = text.value().offsets;
  Promise(offsets.size() == (message.pieces() ? tokens.size() : 0), "each piece has its offset");
  Promise(std::is_sorted(offsets.begin(), offsets.end()) &&
              (offsets.empty() || (offsets.front() == 0 && offsets.back() <= std::ssize(pieces))),
          "offsets are of the pieces");
}

void FuzzDetokenize(std::string_view bytes) {
  v1::DetokenizeRequest message;
  if (!Parse(bytes, message)) return;
  const auto& ids = message.token_ids();
  const std::span<const int32_t> tokens(ids.data(), static_cast<size_t>(ids.size()));
  const server::Result<std::string> text = server::Detokenize(tokens, Model());
  if (!text.ok()) return CheckError(text.error());
  Promise(text.value() == ToValidUtf8(Model().tokenizer->Decode(tokens)),
          "a text is decoded whole");
}

void FuzzListSequences(std::string_view bytes) {
  v1::ListSequencesRequest message;
  if (!Parse(bytes, message)) return;
  CheckError(server::ModelNotFound(message.model(), "small"));
  const server::Result<size_t> size = server::ValidatePageSize(message.page_size());
  if (!size.ok()) return CheckError(size.error());
  Promise(size.value() >= 1 && size.value() <= limits::kMaxPageSize, "a page has a size");
  static const server::PageTokens tokens;
  const server::Result<uint64_t> after = tokens.Read(message.model(), message.page_token());
  if (!after.ok()) return CheckError(after.error());
  const server::Result<uint64_t> again = tokens.Read("", tokens.Make("", after.value()));
  Promise(again.ok() && again.value() == after.value(), "a token that is given is taken");
}

void FuzzWatch(std::string_view bytes) {
  v1::WatchKvCacheStatsRequest message;
  if (!Parse(bytes, message)) return;
  const server::Result<std::chrono::milliseconds> interval =
      server::ValidateInterval(server::FromProto(message).interval);
  if (!interval.ok()) return CheckError(interval.error());
  Promise(limits::kWatchInterval.Contains(interval.value().count()), "an interval is in its range");
}

}  // namespace

void FuzzRequests(std::string_view bytes) {
  static const google::protobuf::LogSilencer silencer;  // for text that is not UTF-8
  if (bytes.empty()) return;
  const char kind = bytes[0];
  const std::string_view message = bytes.substr(1);
  switch (kind) {
    case 'g':
      return FuzzGenerate(message);
    case 's':
      return FuzzScore(message);
    case 't':
      return FuzzTokenize(message);
    case 'd':
      return FuzzDetokenize(message);
    case 'l':
      return FuzzListSequences(message);
    case 'w':
      return FuzzWatch(message);
    default:
      return;
  }
}

}  // namespace triptych
