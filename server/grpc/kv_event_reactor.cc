#include "server/grpc/kv_event_reactor.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

#include "server/grpc/status.h"

namespace triptych::server {

KvEventReactor::KvEventReactor(KvEventStreams& streams, Start start,
                               grpc::CallbackServerContext& context,
                               std::chrono::milliseconds stall_timeout)
    : AlarmedReactor(context, stall_timeout),
      streams_(streams),
      model_(start.model),
      log_(*streams.log(start.model)),
      place_(std::move(start.place)),
      next_(start.next) {}

void KvEventReactor::Begin() {
  streams_.Add(*this);
  StartSendInitialMetadata();  // before the first event, so that the client knows it is accepted
  Advance();
}

void KvEventReactor::OnWriteDone(bool ok) {
  stall_alarm().End();
  {
    const MutexLock lock(mutex_);
    busy_ = false;
    if (!ok) cancelled_ = true;
  }
  Advance();
}

void KvEventReactor::OnCancel() {
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
  }
  Advance();
}

void KvEventReactor::OnDone() {
  streams_.Remove(*this);
  AlarmedReactor::OnDone();
}

void KvEventReactor::Advance() {
  std::optional<grpc::Status> end;
  {
    const MutexLock lock(mutex_);
    if (busy_) return;
    end = DueEnd();
    if (!end && !ReadNext()) return;
    busy_ = true;  // for good after the end
  }
  if (end) return End(*end);
  stall_alarm().Begin();
  StartWrite(&message_);
}

std::optional<grpc::Status> KvEventReactor::DueEnd() {
  if (cancelled_) return grpc::Status::CANCELLED;
  if (streams_.ended()) return ToStatus(Draining(), context());
  const uint64_t first = log_.kept().first;
  if (next_ == 0 || next_ >= first) return std::nullopt;
  return grpc::Status(grpc::StatusCode::DATA_LOSS,
                      fmt::format("the client reads too slowly: batch {} is lost, {} is the oldest "
                                  "one; subscribe again with start_sequence_number 0",
                                  next_, first));
}

bool KvEventReactor::ReadNext() {
  if (next_ == 0) {
    const KvEventLog::Kept kept = log_.kept();
    if (!kept.complete()) {
      streams_.AskForStart(model_);
      return false;
    }
    next_ = kept.start;
  }
  const KvEventLog::Batch batch = log_.Read(next_);
  if (batch == nullptr) return false;
  message_ = ToSmg(*batch, log_.block_positions());
  ++next_;
  return true;
}

}  // namespace triptych::server
