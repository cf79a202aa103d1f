// Base of the gRPC reactors of calls that an engine computes.
#ifndef TRIPTYCH_SERVER_GRPC_CALL_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_CALL_REACTOR_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "server/core/error.h"
#include "server/core/requests/call.h"
#include "server/grpc/alarmed_reactor.h"
#include "server/grpc/load_report.h"
#include "server/grpc/status.h"
#include "server/grpc/wire.h"

namespace triptych::server {

// Starts a call, tells the client its id once it is accepted, and cancels it with the stream. A
// derived class delivers the chunks. Lives until both gRPC and the engine are done with it.
// Thread-safe, except that Begin is called once, or again after it threw.
template <typename Base>
class CallReactor : public AlarmedReactor<Base>, public CallListener {
 public:
  using AlarmedReactor<Base>::AlarmedReactor;

  // Starts the call, or ends the stream with the error.
  void Begin(Result<std::shared_ptr<Call>> call) {
    if (!call.ok()) return this->End(ToStatus(call.error(), this->context()));
    // The stream may end in the meantime.
    const std::shared_ptr<CallListener> self(this->shared_from_this(), this);
    call_ = std::move(call).value();
    call_->Start(self);  // nothing after it may throw: Begin would be called again
    begun_ = true;
    if (cancelled_) call_->Cancel();
  }

  void OnReady() final { Advance(); }
  // May be called again.
  void OnCancel() final {
    cancelled_ = true;
    if (begun_) call_->Cancel();
  }

 protected:
  // Starts the write or the finish that is due, if any.
  virtual void Advance() = 0;

  Call& call() { return *call_; }
  // The event that is due after the acceptance.
  Call::Event TakeNext() {
    Call::Event event = call_->Take();
    if (!std::holds_alternative<RequestAccepted>(event)) return event;
    // Not before: gRPC does not retry a call that sent initial metadata.
    this->context().AddInitialMetadata(kRequestIdMetadata, call_->id());
    this->StartSendInitialMetadata();
    return call_->Take();
  }
  // Ends the stream of a call that is over.
  void EndCall(const std::optional<Error>& error) {
    if (const auto load = call_->load()) AddLoadReport(*load, this->context());
    this->End(error ? ToStatus(*error, this->context()) : grpc::Status::OK);
  }

 private:
  std::shared_ptr<Call> call_;  // once it begins
  // Whichever of the two is set second finds the other one set, and cancels the call.
  std::atomic<bool> begun_ = false;  // call_ is started
  std::atomic<bool> cancelled_ = false;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_CALL_REACTOR_H_
