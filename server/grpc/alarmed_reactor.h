// Base of gRPC reactors that end calls whose client takes nothing.
#ifndef TRIPTYCH_SERVER_GRPC_ALARMED_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_ALARMED_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <memory>
#include <utility>

#include "server/grpc/stall_alarm.h"

namespace triptych::server {

// `Base`: a reactor of gRPC's. Lives until OnDone, and until others have released it. Made by
// MakeReactor. A client that does not take a write, or the end, for longer than `stall_timeout`
// loses its call.
template <typename Base>
class AlarmedReactor : public Base, public std::enable_shared_from_this<AlarmedReactor<Base>> {
 public:
  AlarmedReactor(grpc::CallbackServerContext& context, std::chrono::milliseconds stall_timeout)
      : context_(context), stall_alarm_(std::make_shared<StallAlarm>(context, stall_timeout)) {}

  // Called once, after everything else.
  void End(const grpc::Status& status) {
    stall_alarm_->Begin();
    this->Finish(status);
  }

  void OnDone() override {
    stall_alarm_->Stop();
    self_.reset();
  }

  // Called by MakeReactor.
  void LiveUntilDone() { self_ = this->shared_from_this(); }

 protected:
  grpc::CallbackServerContext& context() { return context_; }
  StallAlarm& stall_alarm() { return *stall_alarm_; }

 private:
  grpc::CallbackServerContext& context_;
  const std::shared_ptr<StallAlarm> stall_alarm_;
  std::shared_ptr<AlarmedReactor> self_;  // until OnDone
};

template <typename Reactor, typename... Arguments>
Reactor* MakeReactor(Arguments&&... arguments) {
  const auto reactor = std::make_shared<Reactor>(std::forward<Arguments>(arguments)...);
  reactor->LiveUntilDone();
  return reactor.get();
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_ALARMED_REACTOR_H_
