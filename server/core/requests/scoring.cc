#include "server/core/requests/scoring.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

namespace triptych::server {

// Of one input. Keeps the call until the engine is done with it.
class Scoring::InputSink final : public serving::RequestSink {
 public:
  InputSink(std::shared_ptr<Scoring> call, size_t input) : call_(std::move(call)), input_(input) {}

  void OnRejected(serving::SubmitStatus status) override {
    call_->OnDone(input_, {}, Rejection(status, call_->inputs_[input_].size, call_->model_));
  }
  void OnScheduled() override { call_->OnScheduled(); }
  void OnPromptLogprobs(std::vector<serving::TokenLogprobs> logprobs) override {
    for (const serving::TokenLogprobs& token : logprobs)
      score_.logprobs.push_back(token.chosen.logprob);
  }
  void OnDelta(serving::Delta) override {}
  void OnFinish(serving::Completion completion) override {
    score_.usage = completion.usage;
    score_.load = completion.load;
    bool cancelled;
    {
      const MutexLock lock(call_->mutex_);
      cancelled = call_->cancelled_;
    }
    std::optional<Error> error = Failure(completion, cancelled);
    if (error) error = OfRequest(*std::move(error), call_->inputs_[input_].id);
    call_->OnDone(input_, std::move(score_), std::move(error));
  }

 private:
  const std::shared_ptr<Scoring> call_;
  const size_t input_;
  InputScore score_;  // the engine's thread's
};

namespace {

std::vector<serving::Request> TakeRequests(std::vector<ValidRequest>& valid) {
  std::vector<serving::Request> requests;
  requests.reserve(valid.size());
  for (ValidRequest& one : valid) requests.push_back(std::move(one.request));
  return requests;
}

}  // namespace

Scoring::Scoring(const ModelInfo& model, EngineHandle& engine, std::vector<ValidRequest> requests,
                 CallContext context)
    : model_(model),
      engine_(engine),
      client_(requests.front().request.client),
      inputs_([&] {
        std::vector<Input> inputs;
        inputs.reserve(requests.size());
        for (const ValidRequest& one : requests) {
          inputs.push_back({.id = one.request.id, .size = RequestSize::Of(one)});
        }
        return inputs;
      }()),
      context_(std::move(context)),
      requests_(TakeRequests(requests)),
      scores_(inputs_.size()),
      running_(inputs_.size()) {}

Scoring::~Scoring() = default;

void Scoring::Start(std::shared_ptr<GenerationListener> listener) {
  std::vector<serving::Request> requests;
  {
    const MutexLock lock(mutex_);
    listener_ = std::move(listener);
    requests.swap(requests_);
  }
  size_t submitted = 0;
  try {
    for (; submitted < requests.size(); ++submitted) {
      engine_.Submit(std::move(requests[submitted]),
                     std::make_shared<InputSink>(shared_from_this(), submitted));
    }
  } catch (const std::exception& e) {  // such as std::bad_alloc
    spdlog::error("request {} fails: {}", id(), e.what());
    for (; submitted < requests.size(); ++submitted) {
      OnDone(submitted, {}, Internal("the request could not be handled"));
    }
  }
  bool over;
  {
    const MutexLock lock(mutex_);
    over = running_ > 0 && (error_ || cancelled_);
  }
  if (over) CancelAll();  // those that were submitted after the cancel, too
}

Scoring::Event Scoring::Take() {
  const MutexLock lock(mutex_);
  if (scheduled_ == inputs_.size() && !error_ && !acceptance_taken_) {
    acceptance_taken_ = true;
    return RequestAccepted();
  }
  if (running_ > 0 || end_taken_) return {};
  end_taken_ = true;
  if (error_) return Event(std::in_place_type<Result<Scores>>, *error_);
  return Event(std::in_place_type<Result<Scores>>, std::move(scores_));
}

std::optional<serving::EngineLoad> Scoring::load() const {
  const MutexLock lock(mutex_);
  return load_;
}

void Scoring::CancelAll() {
  for (const Input& input : inputs_) engine_.Cancel(input.id);
}

void Scoring::Cancel() {
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    if (running_ == 0) return;
  }
  CancelAll();
}

void Scoring::OnScheduled() {
  std::shared_ptr<GenerationListener> listener;
  {
    const MutexLock lock(mutex_);
    if (++scheduled_ == inputs_.size()) listener = listener_;
  }
  if (listener != nullptr) listener->OnReady();
}

void Scoring::OnDone(size_t input, InputScore score, std::optional<Error> error) {
  std::shared_ptr<GenerationListener> listener;
  std::optional<RequestSummary> summary;
  bool cancel = false;
  {
    const MutexLock lock(mutex_);
    --running_;
    if (score.load) load_ = score.load;
    scores_[input] = std::move(score);
    if (error && !error_) {
      error_ = std::move(error);
      cancel = running_ > 0 && !cancelled_;
    }
    if (running_ == 0) {
      listener.swap(listener_);
      summary.emplace();
      summary->id = id();
      summary->client = client_;
      summary->model = model_.name;
      summary->refused = scheduled_ == 0;
      summary->outcome = error_ ? OutcomeOf(*error_, summary->refused) : Outcome::kScored;
      summary->end = error_ ? error_->reason : "scored";
      for (const InputScore& one : scores_) {
        AddUsage(one.usage, /*shares_prompt=*/false, summary->usage);
      }
    }
  }
  if (cancel) CancelAll();
  if (listener == nullptr) return;
  if (context_.log) context_.log(*std::move(summary));
  listener->OnReady();
}

}  // namespace triptych::server
