#include "server/core/requests/request_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

namespace triptych::server {
namespace {

// The most that a message takes in memory for each of its bytes: a token id of one byte takes four,
// in a list that doubles as it grows.
constexpr int64_t kMostSpacePerByte = 8;

int64_t TextBytes(const Prompt& prompt) {
  const auto* const text = std::get_if<std::string_view>(&prompt.input);
  return text == nullptr ? 0 : std::ssize(*text);
}

}  // namespace

RequestService::RequestService(const ModelRegistry& models, EngineLoopThread& engines,
                               const AdmissionLimits& limits, int64_t max_message_bytes,
                               RequestObserver observer)
    : models_(models),
      engines_(engines),
      outcomes_(models.models().size()),
      grammars_(models),
      admission_(limits),
      observer_(std::move(observer)),
      queue_(kMostSpacePerByte * max_message_bytes) {}

template <typename Answer, typename Handle>
void RequestService::InTurn(const std::string& client, int64_t text_bytes, int64_t copied_bytes,
                            const Turn& turn, Handle handle, Done<Answer> done) {
  const bool waits = text_bytes > TokenizationQueue::kMaxQuickBytes;
  queue_.Handle({.client = client,
                 .text_bytes = text_bytes,
                 .held_bytes = waits ? turn.held_bytes() + copied_bytes : 0,
                 .is_cancelled = turn.is_cancelled,
                 .handle = [handle = std::move(handle),
                            done = std::move(done)](const std::optional<Error>& refused) {
                   if (refused) return done(*refused);
                   done(handle());
                 }});
}

void RequestService::Generate(GenerateParams params, const Caller& caller, const Turn& turn,
                              Done<std::shared_ptr<Call>> done) {
  int64_t text_bytes = TextBytes(params.prompt);
  text_bytes += std::ssize(params.prediction);
  int64_t copied_bytes = std::ssize(params.model) + std::ssize(params.prediction);
  for (const std::string& stop : params.stop) copied_bytes += std::ssize(stop);
  if (params.form) {
    // A short grammar can take long to compile, as can the model's first one.
    text_bytes = std::max(text_bytes, TokenizationQueue::kMaxQuickBytes + 1);
    for (const std::string& choice : params.form->choices) copied_bytes += std::ssize(choice);
  }
  InTurn(
      caller.client, text_bytes, copied_bytes, turn,
      [this, params = std::move(params), caller] { return Generate(params, caller); },
      std::move(done));
}

void RequestService::Score(ScoreParams params, const Caller& caller, const Turn& turn,
                           Done<std::shared_ptr<Call>> done) {
  int64_t text_bytes = 0;
  for (const Prompt& input : params.inputs) text_bytes += TextBytes(input);
  const int64_t copied_bytes = std::ssize(params.model);
  InTurn(
      caller.client, text_bytes, copied_bytes, turn,
      [this, params = std::move(params), caller] { return Score(params, caller); },
      std::move(done));
}

void RequestService::Tokenize(TokenizeParams params, const Caller& caller, const Turn& turn,
                              Done<TokenizedText> done) {
  const int64_t text_bytes = std::ssize(params.text);
  const int64_t copied_bytes = std::ssize(params.model);
  InTurn(
      caller.client, text_bytes, copied_bytes, turn,
      [this, params = std::move(params)] { return Tokenize(params); }, std::move(done));
}

void RequestService::Detokenize(DetokenizeParams params, const Caller& caller, const Turn& turn,
                                Done<std::string> done) {
  const int64_t text_bytes = std::ssize(params.token_ids);
  const int64_t copied_bytes = std::ssize(params.model);
  InTurn(
      caller.client, text_bytes, copied_bytes, turn,
      [this, params = std::move(params)] { return Detokenize(params); }, std::move(done));
}

void RequestService::BundleTokenizer(const std::string& model, const Caller& caller,
                                     const Turn& turn,
                                     Done<std::shared_ptr<const TokenizerBundle>> done) {
  InTurn(
      caller.client, TokenizationQueue::kMaxQuickBytes + 1, std::ssize(model), turn,
      [this, model]() -> Result<std::shared_ptr<const TokenizerBundle>> {
        const Result<const ModelInfo*> found = models_.Find(model);
        if (!found.ok()) return found.error();
        return bundles_.Get(*found.value());
      },
      std::move(done));
}

Result<std::shared_ptr<Call>> RequestService::Generate(const GenerateParams& params,
                                                       const Caller& caller) {
  return Generate(std::span(&params, 1), caller);
}

Result<std::shared_ptr<Call>> RequestService::Generate(std::span<const GenerateParams> all,
                                                       const Caller& caller) {
  const Result<size_t> model = models_.FindIndex(all.front().model);
  if (!model.ok()) return model.error();
  Result<Admission::Permit> permit = admission_.Enter(caller.client, std::ssize(all));
  if (!permit.ok()) return Refuse(model.value(), Outcome::kRefused, permit.error());
  std::vector<ValidRequest> requests;
  for (const GenerateParams& params : all) {
    Result<ValidRequest> valid = Validate(params, models_.models()[model.value()]);
    if (!valid.ok()) return Refuse(model.value(), Outcome::kInvalid, valid.error());
    if (params.form || params.calls) {
      auto grammar = grammars_.Find(params.form, params.calls.get(), model.value());
      if (!grammar.ok()) return Refuse(model.value(), Outcome::kInvalid, grammar.error());
      valid.value().request.grammar = std::move(grammar).value();
    }
    requests.push_back(std::move(valid).value());
  }
  for (ValidRequest& one : requests) Identify(caller, one.request.choices, one.request);
  return Make(CallKind::kGenerate, model.value(), caller, std::move(requests),
              std::move(permit).value());
}

Result<std::shared_ptr<Call>> RequestService::Score(const ScoreParams& params,
                                                    const Caller& caller) {
  const Result<size_t> model = models_.FindIndex(params.model);
  if (!model.ok()) return model.error();
  Result<Admission::Permit> permit = admission_.Enter(caller.client, std::ssize(params.inputs));
  if (!permit.ok()) return Refuse(model.value(), Outcome::kRefused, permit.error());
  Result<std::vector<ValidRequest>> valid = Validate(params, models_.models()[model.value()]);
  if (!valid.ok()) return Refuse(model.value(), Outcome::kInvalid, valid.error());
  for (ValidRequest& one : valid.value()) Identify(caller, 1, one.request);
  return Make(CallKind::kScore, model.value(), caller, std::move(valid).value(),
              std::move(permit).value());
}

std::shared_ptr<Call> RequestService::Make(CallKind kind, size_t model, const Caller& caller,
                                           std::vector<ValidRequest> requests,
                                           Admission::Permit permit) {
  return std::make_shared<Call>(kind, std::move(requests),
                                CallContext{.model = models_.models()[model],
                                            .model_index = model,
                                            .engines = engines_,
                                            .permit = std::move(permit),
                                            .log = Log(model, caller)});
}

Result<TokenizedText> RequestService::Tokenize(const TokenizeParams& params) const {
  const Result<const ModelInfo*> model = models_.Find(params.model);
  if (!model.ok()) return model.error();
  return server::Tokenize(params, *model.value());
}

Result<std::string> RequestService::Detokenize(const DetokenizeParams& params) const {
  const Result<const ModelInfo*> model = models_.Find(params.model);
  if (!model.ok()) return model.error();
  return server::Detokenize(params.token_ids, *model.value());
}

void RequestService::Identify(const Caller& caller, uint64_t sequences, serving::Request& request) {
  const RequestIds::Id id = ids_.Take(sequences);
  request.id = id.text;
  request.number = id.number;
  request.client = caller.client;
  request.arrived = caller.arrived;
}

Error RequestService::Refuse(size_t model, Outcome outcome, Error error) {
  outcomes_[model].Add(outcome);
  return error;
}

RequestLog RequestService::Log(size_t model, const Caller& caller) {
  return [this, model, traceparent = caller.traceparent](RequestSummary summary) {
    outcomes_[model].Add(summary.outcome);
    summary.traceparent = traceparent;
    if (observer_) observer_(summary);
    // A client that is refused may come again at once, and any number of times.
    const auto level = summary.refused ? spdlog::level::debug : spdlog::level::info;
    if (!spdlog::should_log(level)) return;
    log_worker_.Post([level, summary = std::move(summary)] {
      if (const auto json = spdlog::get(kJsonLogger)) {
        json->log(level, summary.JsonMembers());
      } else {
        spdlog::log(level, summary.Text());
      }
    });
  };
}

bool RequestService::Drain(std::chrono::nanoseconds timeout) {
  StartDrain();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  return engines_.Drain(timeout) && admission_.AwaitNone(deadline);
}

}  // namespace triptych::server
