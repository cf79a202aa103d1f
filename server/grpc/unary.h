// Unary calls: those that end at once, and those whose answers are large.
#ifndef TRIPTYCH_SERVER_GRPC_UNARY_H_
#define TRIPTYCH_SERVER_GRPC_UNARY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>

#include "server/grpc/stall_alarm.h"

namespace triptych::server {

inline grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                             const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// A client that does not take the end for longer than `stall_timeout` loses it. Deletes itself.
class AlarmedUnary final : public grpc::ServerUnaryReactor {
 public:
  AlarmedUnary(grpc::CallbackServerContext& context, std::chrono::milliseconds stall_timeout)
      : stall_alarm_(std::make_shared<StallAlarm>(context, stall_timeout)) {}

  // Once, and nothing after it.
  void End(const grpc::Status& status) {
    stall_alarm_->Begin();
    Finish(status);
  }

  void OnDone() override {
    stall_alarm_->Stop();
    delete this;
  }

 private:
  const std::shared_ptr<StallAlarm> stall_alarm_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_UNARY_H_
