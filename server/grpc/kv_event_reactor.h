// The server's side of one SubscribeKvEvents stream.
#ifndef TRIPTYCH_SERVER_GRPC_KV_EVENT_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_KV_EVENT_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/base/mutex.h"
#include "server/core/stats/kv_event_streams.h"
#include "server/grpc/alarmed_reactor.h"
#include "server/grpc/vllm_wire.h"

namespace triptych::server {

// Writes the batches of a model's events as they come. Thread-safe.
class KvEventReactor final
    : public AlarmedReactor<grpc::ServerWriteReactor<smg_wire::KvEventBatch>>,
      public KvEventListener {
 public:
  struct Start {
    size_t model = 0;   // which has events
    uint64_t next = 0;  // number of the first batch; 0: KvEventLog::Kept::start
    std::shared_ptr<void> place;
  };

  // The streams must outlive the call.
  KvEventReactor(KvEventStreams& streams, Start start, grpc::CallbackServerContext& context,
                 std::chrono::milliseconds stall_timeout);

  // Called once, after MakeReactor.
  void Begin();

  void OnEvents() override { Advance(); }
  void OnWriteDone(bool ok) override TRIPTYCH_EXCLUDES(mutex_);
  void OnCancel() override TRIPTYCH_EXCLUDES(mutex_);
  void OnDone() override;

 private:
  // Starts the write or the end that is due, if any.
  void Advance() TRIPTYCH_EXCLUDES(mutex_);
  // The status of the end, if it is due.
  std::optional<grpc::Status> DueEnd() TRIPTYCH_REQUIRES(mutex_);
  // Reads the next batch to message_. False if there is none yet.
  bool ReadNext() TRIPTYCH_REQUIRES(mutex_);

  KvEventStreams& streams_;
  const size_t model_;
  const KvEventLog& log_;
  const std::shared_ptr<void> place_;
  smg_wire::KvEventBatch message_;  // owned by gRPC while a write is in flight

  Mutex mutex_;
  uint64_t next_ TRIPTYCH_GUARDED_BY(mutex_);
  bool cancelled_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  bool busy_ TRIPTYCH_GUARDED_BY(mutex_) = false;  // a write or the end is in flight
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_KV_EVENT_REACTOR_H_
