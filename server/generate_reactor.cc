#include "server/generate_reactor.h"

#include <utility>

#include "server/status.h"
#include "server/wire.h"

namespace triptych {
namespace {

// Text and tokens that may wait for a client before it is cut off.
constexpr size_t kMaxPendingBytes = 1 << 20;

}  // namespace

GenerateReactor::GenerateReactor(ModelRegistry& registry, const HostedModel& model,
                                 const Request& request, std::string prompt_field,
                                 grpc::CallbackServerContext& context)
    : call_(registry, model, request, std::move(prompt_field), context), seed_(request.seed) {}

GenerateReactor* GenerateReactor::Start(ModelRegistry& registry, const HostedModel& model,
                                        Request request, std::string prompt_field,
                                        grpc::CallbackServerContext& context) {
  std::shared_ptr<GenerateReactor> reactor(
      new GenerateReactor(registry, model, request, std::move(prompt_field), context));
  reactor->self_ = reactor;
  reactor->call_.Submit(std::move(request), reactor);
  return reactor.get();
}

void GenerateReactor::OnRejected(SubmitStatus status) {
  {
    const std::lock_guard lock(mutex_);
    final_status_ = call_.Rejection(status);
  }
  Advance();
}

void GenerateReactor::OnDelta(Delta delta) {
  bool too_slow = false;
  {
    const std::lock_guard lock(mutex_);
    if (final_status_) return;
    has_pending_ = true;
    pending_bytes_ += delta.text.size() + sizeof(delta.token);
    pending_.mutable_text()->append(delta.text);
    pending_.add_token_ids(delta.token);
    if (delta.logprobs) {
      pending_bytes_ += (1 + delta.logprobs->top.size()) * sizeof(TokenLogprob);
      *pending_.add_logprobs() = ToProto(*delta.logprobs);
    }
    too_slow = pending_bytes_ > kMaxPendingBytes;
    if (too_slow) {
      final_status_ = SlowReader(pending_bytes_);
      has_pending_ = false;
      pending_.Clear();
    }
  }
  if (too_slow) call_.Cancel();
  Advance();
}

void GenerateReactor::OnFinish(triptych::Completion completion) {
  {
    const std::lock_guard lock(mutex_);
    if (!final_status_) final_status_ = call_.Failure(completion);
    if (!final_status_) {
      final_status_ = grpc::Status::OK;
      has_pending_ = true;
      v1::Completion& message = *pending_.mutable_completion();
      message.set_finish_reason(completion.reason == FinishReason::kStop
                                    ? v1::FINISH_REASON_STOP
                                    : v1::FINISH_REASON_LENGTH);
      *message.mutable_usage() = ToProto(completion.usage);
      message.set_request_id(call_.request_id());
      message.set_seed(seed_);
      message.set_stop(completion.stop.value_or(""));
    }
  }
  Advance();
}

void GenerateReactor::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    in_flight_ = false;
    if (!ok) {  // the stream is broken: nothing more can be written
      if (!final_status_ || final_status_->ok()) final_status_ = grpc::Status::CANCELLED;
      has_pending_ = false;
    }
  }
  if (!ok) call_.Cancel();
  Advance();
}

void GenerateReactor::Advance() {
  std::optional<grpc::Status> finish;
  {
    const std::lock_guard lock(mutex_);
    if (in_flight_ || finished_) return;
    if (has_pending_) {
      writing_.Clear();
      writing_.Swap(&pending_);
      has_pending_ = false;
      pending_bytes_ = 0;
      in_flight_ = true;
    } else if (final_status_) {
      finished_ = true;
      finish = final_status_;
    } else {
      return;
    }
  }
  if (finish) {
    Finish(*finish);
  } else {
    StartWrite(&writing_);
  }
}

}  // namespace triptych
