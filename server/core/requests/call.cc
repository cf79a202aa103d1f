#include "server/core/requests/call.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <utility>

#include "server/core/log.h"

namespace triptych::server {
namespace {

Error OfRequest(Error error, const std::string& id) {
  error.metadata.emplace("request_id", id);
  return error;
}

// The client's error for a sequence that did not run to its end; nothing if it did. Only the end of
// the server cancels what the client did not.
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

std::vector<serving::Request> TakeRequests(std::vector<ValidRequest>& valid) {
  std::vector<serving::Request> requests;
  requests.reserve(valid.size());
  for (ValidRequest& one : valid) requests.push_back(std::move(one.request));
  return requests;
}

}  // namespace

class Call::Sink final : public serving::RequestSink {
 public:
  Sink(Call& call_in, const ValidRequest& valid, int32_t first_in)
      : call(call_in),
        id(valid.request.id),
        size(RequestSize::Of(valid)),
        first(first_in),
        sequences(valid.request.choices),
        echo(valid.echo) {}

  void OnRejected(serving::SubmitStatus status) override {
    call.Fail(*this, Rejection(status, size, call.context_.model), /*rejected=*/true);
  }
  void OnScheduled() override { call.OnScheduled(); }
  void OnPromptLogprobs(std::vector<serving::TokenLogprobs> logprobs) override {
    call.Buffer(
        [&](StreamBuffer& buffer) { return buffer.AppendPrompt(first, std::move(logprobs)); });
  }
  void OnDelta(serving::Delta delta) override {
    delta.choice += first;
    call.Buffer([&](StreamBuffer& buffer) { return buffer.Append(std::move(delta)); });
  }
  void OnFinish(serving::Completion completion) override {
    call.OnFinish(*this, std::move(completion));
  }

  Call& call;
  const std::string id;
  const RequestSize size;
  const int32_t first;  // the request's first sequence among the call's
  const int32_t sequences;
  const std::string echo;  // begins the text of every choice
};

Call::Call(CallKind kind, std::vector<ValidRequest> requests, CallContext context)
    : kind_(kind),
      context_(std::move(context)),
      client_(requests.front().request.client),
      sequences_([&] {
        int32_t sequences = 0;
        sinks_.reserve(requests.size());
        for (const ValidRequest& one : requests) {
          sinks_.emplace_back(*this, one, sequences);
          sequences += one.request.choices;
        }
        return sequences;
      }()),
      requests_(TakeRequests(requests)),
      // A score's transport takes each chunk when it is told of it.
      buffer_(sequences_,
              kind == CallKind::kScore ? std::numeric_limits<size_t>::max() : kMaxUnreadBytes),
      echoed_(sequences_, false),
      running_(sequences_) {}

Call::~Call() = default;

const std::string& Call::id() const { return sinks_.front().id; }

std::vector<PromptTokens> Call::prompts() const {
  const MutexLock lock(mutex_);
  std::vector<PromptTokens> prompts;
  for (size_t i = 0; i < requests_.size(); ++i) {
    prompts.push_back({requests_[i].prompt, sinks_[i].size.begin_token});
  }
  return prompts;
}

const std::string& Call::EchoOf(int32_t sequence) const {
  const auto after =
      std::upper_bound(sinks_.begin(), sinks_.end(), sequence,
                       [](int32_t wanted, const Sink& sink) { return wanted < sink.first; });
  return std::prev(after)->echo;
}

std::optional<serving::EngineLoad> Call::load() const {
  const MutexLock lock(mutex_);
  return load_;
}

void Call::Start(std::shared_ptr<CallListener> listener) {
  std::vector<serving::Request> requests;
  {
    const MutexLock lock(mutex_);
    listener_ = std::move(listener);
    requests.swap(requests_);
  }
  size_t submitted = 0;
  try {
    for (; submitted < requests.size(); ++submitted) {
      context_.engines.Submit(
          context_.model_index, std::move(requests[submitted]),
          std::shared_ptr<serving::RequestSink>(shared_from_this(), &sinks_[submitted]));
    }
  } catch (const std::exception& e) {  // such as std::bad_alloc
    LogError("request {} fails: {}", id(), e.what());
    for (; submitted < sinks_.size(); ++submitted) {
      Fail(sinks_[submitted], Internal("the request could not be handled"), /*rejected=*/false);
    }
  }
  bool over;
  {
    const MutexLock lock(mutex_);
    over = running_ > 0 && (end_ || cancelled_);
  }
  if (over) CancelRequests();  // those submitted after the end or the cancel, too
}

Call::Event Call::Take() {
  const MutexLock lock(mutex_);
  if (std::exchange(acceptance_due_, false)) return RequestAccepted();
  if (in_flight_ || end_taken_) return {};
  if (!buffer_.empty()) {
    in_flight_ = true;
    StreamChunk chunk = buffer_.Take();
    if (!echoed_[chunk.choice]) {
      echoed_[chunk.choice] = true;
      chunk.text.insert(0, EchoOf(chunk.choice));
    }
    return chunk;
  }
  if (!EndIsDue()) return {};
  end_taken_ = true;
  return *end_;
}

void Call::ChunkDone(bool delivered) {
  {
    const MutexLock lock(mutex_);
    in_flight_ = false;
    if (delivered) return;
    if (!end_ || !end_->error) end_ = CallEnd{OfRequest(Cancelled(), id())};
    buffer_.Clear();
  }
  Cancel();
}

void Call::Cancel() {
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    if (running_ == 0) return;
  }
  CancelRequests();
}

void Call::CancelRequests() {
  for (const Sink& sink : sinks_) context_.engines.Cancel(context_.model_index, sink.id);
}

void Call::OnScheduled() {
  std::shared_ptr<CallListener> listener;
  {
    const MutexLock lock(mutex_);
    ++scheduled_;
    if (end_ || scheduled_ != (kind_ == CallKind::kGenerate ? 1 : sinks_.size())) return;
    acceptance_due_ = true;
    listener = listener_;
  }
  listener->OnReady();
}

template <typename Append>
void Call::Buffer(const Append& append) {
  std::shared_ptr<CallListener> listener;
  bool too_slow = false;
  {
    const MutexLock lock(mutex_);
    if (end_) return;
    too_slow = !append(buffer_);
    if (too_slow) {
      EndWith(OfRequest(SlowReader(buffer_.bytes()), id()));
      buffer_.Clear();
    }
    listener = listener_;
  }
  if (too_slow) CancelRequests();
  listener->OnReady();
}

void Call::Fail(const Sink& sink, Error error, bool rejected) {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    rejected_ = rejected_ || rejected;
    running_ -= sink.sequences;
    actions = Settle(EndWith(std::move(error)));
  }
  Do(std::move(actions));
}

void Call::OnFinish(const Sink& sink, serving::Completion completion) {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    --running_;
    load_ = completion.load;
    ++finished_[completion.reason];
    AddUsage(completion.usage, /*adds_prompt=*/completion.choice == 0, usage_);
    bool failed = false;
    if (std::optional<Error> failure = Failure(completion, cancelled_)) {
      failed = EndWith(OfRequest(*std::move(failure), sink.id));
    } else if (!end_) {
      completion.choice += sink.first;
      buffer_.Complete(std::move(completion));
    }
    actions = Settle(failed);
  }
  Do(std::move(actions));
}

bool Call::EndWith(Error error) {
  if (end_) return false;
  end_ = CallEnd{std::move(error)};
  return true;
}

bool Call::EndIsDue() const { return end_ && (kind_ == CallKind::kGenerate || running_ == 0); }

Call::Actions Call::Settle(bool failed) {
  Actions actions{.cancel = failed && running_ > 0 && !cancelled_, .summary = {}, .listener = {}};
  if (running_ == 0 && !end_) end_ = CallEnd{};
  if (!buffer_.empty() || EndIsDue()) actions.listener = listener_;
  if (running_ == 0) {
    actions.summary = Summary();
    listener_.reset();
  }
  return actions;
}

void Call::Do(Actions actions) {
  if (actions.summary && context_.log) context_.log(*std::move(actions.summary));
  if (actions.cancel) CancelRequests();
  if (actions.listener != nullptr) actions.listener->OnReady();
}

RequestSummary Call::Summary() const {
  RequestSummary summary{.id = id(),
                         .client = client_,
                         .model = context_.model.name,
                         .scores = kind_ == CallKind::kScore,
                         .refused = rejected_ && scheduled_ == 0,
                         .end = EndText(),
                         .usage = usage_};
  if (end_->error) {
    summary.outcome = OutcomeOf(*end_->error, summary.refused);
  } else if (kind_ == CallKind::kScore) {
    summary.outcome = Outcome::kScored;
  } else if (finished_.contains(serving::FinishReason::kLength)) {
    summary.outcome = Outcome::kLength;
  }
  return summary;
}

std::string Call::EndText() const {
  if (end_->error) {
    const Error& error = *end_->error;
    return error.code == ErrorCode::kInternal ? error.reason + ": " + error.description
                                              : error.reason;
  }
  if (kind_ == CallKind::kScore) return "scored";
  std::string text;
  for (const auto& [reason, count] : finished_) {
    const char* const name = reason == serving::FinishReason::kStop ? "stop" : "length";
    if (!text.empty()) text += ", ";
    text += sequences_ > 1 ? fmt::format("{} {}", count, name) : name;
  }
  return text;
}

}  // namespace triptych::server
