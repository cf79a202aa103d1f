// The server's side of one Generate stream.
#ifndef TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "server/core/requests/generation.h"
#include "server/grpc/stall_alarm.h"
#include "server/grpc/status.h"
#include "triptych/v1/inference.pb.h"

namespace triptych::server {

// Writes a generation's chunks to the stream. Lives until both gRPC and the engine are done with
// it. Thread-safe, but that it begins or is refused once.
class GenerateReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                              public GenerationListener {
 public:
  // Of a call that waits to begin. A write that takes longer than `stall_timeout` ends it.
  // `draining`: whether the server closes connections with their last stream.
  static GenerateReactor* Make(grpc::CallbackServerContext& context,
                               std::chrono::milliseconds stall_timeout,
                               std::shared_ptr<const std::atomic<bool>> draining);

  // Either: starts the generation and the stream, or ends the call.
  void Begin(std::shared_ptr<Generation> generation);
  void Refuse(const Error& error) { Finish(ToStatus(error, context_)); }

  void OnReady() override { Advance(); }

  void OnWriteDone(bool ok) override;
  void OnCancel() override {
    if (begun_or_cancelled_.exchange(true)) generation_->Cancel();
  }
  void OnDone() override {
    stall_alarm_->Stop();
    self_.reset();
  }

 private:
  GenerateReactor(grpc::CallbackServerContext& context, std::chrono::milliseconds stall_timeout,
                  std::shared_ptr<const std::atomic<bool>> draining)
      : context_(context),
        draining_(std::move(draining)),
        stall_alarm_(std::make_shared<StallAlarm>(context, stall_timeout)) {}

  // Starts the write or the finish that is due, if any.
  void Advance();
  void End(const std::optional<Error>& error);

  std::shared_ptr<Generation> generation_;  // once it begins
  // Whichever of the two comes second cancels the generation, which has been started then.
  std::atomic<bool> begun_or_cancelled_ = false;
  grpc::CallbackServerContext& context_;
  const std::shared_ptr<const std::atomic<bool>> draining_;
  const std::shared_ptr<StallAlarm> stall_alarm_;
  std::shared_ptr<GenerateReactor> self_;  // until OnDone
  v1::GenerateResponse message_;           // belongs to the one chunk in flight
  bool wrote_ = false;
  grpc::Alarm end_alarm_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_
