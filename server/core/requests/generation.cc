#include "server/core/requests/generation.h"

#include <spdlog/fmt/fmt.h>

#include <iterator>
#include <utility>

namespace triptych::server {

Error OfRequest(Error error, const std::string& id) {
  error.metadata.emplace("request_id", id);
  return error;
}

std::optional<Error> Failure(const serving::Completion& completion, bool client_cancelled) {
  switch (completion.reason) {
    case serving::FinishReason::kCancelled:
      return client_cancelled ? Cancelled() : Draining();
    case serving::FinishReason::kFailed:
      return Internal(completion.error);
    case serving::FinishReason::kStop:
    case serving::FinishReason::kLength:
      break;
  }
  return std::nullopt;
}

Generation::Generation(const ModelInfo& model, EngineHandle& engine, ValidRequest request,
                       CallContext context)
    : model_(model),
      engine_(engine),
      id_(request.request.id),
      client_(request.request.client),
      size_(RequestSize::Of(request)),
      echo_(std::move(request.echo)),
      context_(std::move(context)),
      request_(std::move(request.request)),
      buffer_(request_->choices, kMaxUnreadBytes),
      echoed_(request_->choices, echo_.empty()),
      running_(request_->choices) {}

void Generation::Start(std::shared_ptr<GenerationListener> listener) {
  std::optional<serving::Request> request;
  {
    const MutexLock lock(mutex_);
    listener_ = listener;
    request = std::exchange(request_, std::nullopt);
  }
  try {
    engine_.Submit(*std::move(request), shared_from_this());
  } catch (...) {  // such as std::bad_alloc
    const MutexLock lock(mutex_);
    listener_.reset();
    throw;
  }
}

Generation::Event Generation::Take() {
  const MutexLock lock(mutex_);
  if (scheduled_ && !acceptance_taken_) {
    acceptance_taken_ = true;
    return RequestAccepted();
  }
  if (in_flight_ || end_taken_) return {};
  if (!buffer_.empty()) {
    in_flight_ = true;
    StreamChunk chunk = buffer_.Take();
    if (!echoed_[chunk.choice]) {
      echoed_[chunk.choice] = true;
      chunk.text.insert(0, echo_);
    }
    return chunk;
  }
  if (!end_) return {};
  end_taken_ = true;
  return *end_;
}

void Generation::ChunkDone(bool delivered) {
  {
    const MutexLock lock(mutex_);
    in_flight_ = false;
    if (delivered) return;
    if (!end_ || !end_->error) end_ = GenerationEnd{OfRequest(Cancelled(), id_)};
    buffer_.Clear();
  }
  Cancel();
}

std::vector<int32_t> Generation::prompt() const {
  const MutexLock lock(mutex_);
  return request_.value().prompt;
}

std::optional<serving::EngineLoad> Generation::load() const {
  const MutexLock lock(mutex_);
  return load_;
}

void Generation::Cancel() {
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    if (running_ == 0) return;
  }
  engine_.Cancel(id_);
}

void Generation::OnRejected(serving::SubmitStatus status) {
  std::shared_ptr<GenerationListener> listener;
  RequestSummary summary{
      .id = id_, .client = client_, .model = model_.name, .refused = true, .end = {}, .usage = {}};
  {
    const MutexLock lock(mutex_);
    running_ = 0;
    if (!end_) end_ = GenerationEnd{Rejection(status, size_, model_)};
    summary.outcome = EndOutcome(summary.refused);
    summary.end = EndText();
    listener.swap(listener_);
  }
  if (context_.log) context_.log(std::move(summary));
  listener->OnReady();
}

void Generation::OnScheduled() {
  std::shared_ptr<GenerationListener> listener;
  {
    const MutexLock lock(mutex_);
    if (end_) return;
    scheduled_ = true;
    listener = listener_;
  }
  listener->OnReady();
}

void Generation::CutOff() {
  end_ = GenerationEnd{OfRequest(SlowReader(buffer_.bytes()), id_)};
  buffer_.Clear();
}

void Generation::OnPromptLogprobs(std::vector<serving::TokenLogprobs> logprobs) {
  std::shared_ptr<GenerationListener> listener;
  bool too_slow = false;
  {
    const MutexLock lock(mutex_);
    if (end_) return;
    too_slow = !buffer_.AppendPrompt(std::move(logprobs));
    if (too_slow) CutOff();
    listener = listener_;
  }
  if (too_slow) engine_.Cancel(id_);
  listener->OnReady();
}

void Generation::OnDelta(serving::Delta delta) {
  std::shared_ptr<GenerationListener> listener;
  bool too_slow = false;
  {
    const MutexLock lock(mutex_);
    if (end_) return;
    too_slow = !buffer_.Append(std::move(delta));
    if (too_slow) CutOff();
    listener = listener_;
  }
  if (too_slow) engine_.Cancel(id_);
  listener->OnReady();
}

void Generation::OnFinish(serving::Completion completion) {
  std::shared_ptr<GenerationListener> listener;
  std::optional<RequestSummary> summary;
  bool cancel = false;
  {
    const MutexLock lock(mutex_);
    --running_;
    load_ = completion.load;
    ++finished_[completion.reason];
    AddUsage(completion.usage, /*shares_prompt=*/true, usage_);
    if (!end_) {
      if (std::optional<Error> failure = Failure(completion, cancelled_)) {
        end_ = GenerationEnd{OfRequest(*std::move(failure), id_)};
        cancel = running_ > 0 && !cancelled_;  // the other choices end with it
      } else {
        buffer_.Complete(std::move(completion));
        if (running_ == 0) end_ = GenerationEnd{};
      }
    }
    if (running_ == 0) {
      summary = {.id = id_,
                 .client = client_,
                 .model = model_.name,
                 .refused = false,
                 .outcome = EndOutcome(/*refused=*/false),
                 .end = EndText(),
                 .usage = usage_};
      listener.swap(listener_);
    } else {
      listener = listener_;
    }
  }
  if (summary && context_.log) context_.log(*std::move(summary));
  if (cancel) engine_.Cancel(id_);
  listener->OnReady();
}

Outcome Generation::EndOutcome(bool refused) const {
  if (end_->error) return OutcomeOf(*end_->error, refused);
  return finished_.contains(serving::FinishReason::kLength) ? Outcome::kLength : Outcome::kStop;
}

std::string Generation::EndText() const {
  if (end_->error) {
    const Error& error = *end_->error;
    return error.code == ErrorCode::kInternal ? error.reason + ": " + error.description
                                              : error.reason;
  }
  std::string text;
  for (const auto& [reason, count] : finished_) {
    const char* const name = reason == serving::FinishReason::kStop ? "stop" : "length";
    if (!text.empty()) text += ", ";
    text += echoed_.size() > 1 ? fmt::format("{} {}", count, name) : name;
  }
  return text;
}

}  // namespace triptych::server
