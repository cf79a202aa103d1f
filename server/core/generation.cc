#include "server/core/generation.h"

#include <spdlog/spdlog.h>

#include <iterator>
#include <utility>

namespace triptych {

Generation::Generation(const ServedModel& model, EngineHandle& engine, ValidRequest request)
    : model_(model),
      engine_(engine),
      id_(request.request.id),
      seed_(request.request.seed),
      size_{.prompt_field = request.prompt_field,
            .prompt_tokens = std::ssize(request.request.prompt),
            .max_new_tokens = request.request.max_new_tokens},
      request_(std::move(request.request)) {}

void Generation::Start(std::shared_ptr<GenerationListener> listener) {
  std::optional<Request> request;
  {
    const MutexLock lock(mutex_);
    listener_ = std::move(listener);
    request = std::exchange(request_, std::nullopt);
  }
  engine_.Submit(*std::move(request), shared_from_this());
}

Generation::Event Generation::Take() {
  const MutexLock lock(mutex_);
  if (in_flight_ || end_taken_) return {};
  if (!buffer_.empty()) {
    in_flight_ = true;
    return buffer_.Take();
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
    if (!end_ || !end_->error) end_ = GenerationEnd{Cancelled()};
    buffer_.Clear();
  }
  Cancel();
}

void Generation::Cancel() {
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    if (engine_done_) return;
  }
  engine_.Cancel(id_);
}

void Generation::OnRejected(SubmitStatus status) {
  std::shared_ptr<GenerationListener> listener;
  {
    const MutexLock lock(mutex_);
    engine_done_ = true;
    if (!end_) end_ = GenerationEnd{Rejection(status, size_, model_)};
    listener.swap(listener_);
  }
  listener->OnReady();
}

void Generation::OnPromptLogprobs(std::vector<TokenLogprobs> logprobs) {
  const MutexLock lock(mutex_);
  if (!end_) buffer_.AppendPrompt(std::move(logprobs));
}

void Generation::OnDelta(Delta delta) {
  std::shared_ptr<GenerationListener> listener;
  bool too_slow = false;
  {
    const MutexLock lock(mutex_);
    if (end_) return;
    too_slow = !buffer_.Append(std::move(delta));
    if (too_slow) {
      end_ = GenerationEnd{SlowReader(buffer_.bytes())};
      buffer_.Clear();
    }
    listener = listener_;
  }
  if (too_slow) engine_.Cancel(id_);
  listener->OnReady();
}

void Generation::OnFinish(Completion completion) {
  std::shared_ptr<GenerationListener> listener;
  {
    const MutexLock lock(mutex_);
    engine_done_ = true;
    if (!end_) {
      end_ = GenerationEnd{Failure(completion)};
      if (!end_->error) buffer_.Complete(std::move(completion));
    }
    listener.swap(listener_);
  }
  listener->OnReady();
}

std::optional<Error> Generation::Failure(const Completion& completion) const {
  switch (completion.reason) {
    case FinishReason::kCancelled:
      // Only the end of the server cancels what the client did not.
      return cancelled_ ? Cancelled() : ShuttingDown();
    case FinishReason::kFailed:
      spdlog::error("request {} of {} failed: {}", id_, model_.name, completion.error);
      return Internal(completion.error);
    case FinishReason::kStop:
    case FinishReason::kLength:
      break;
  }
  return std::nullopt;
}

}  // namespace triptych
