// What every call passes before its handler does anything.
#ifndef TRIPTYCH_SERVER_GRPC_GATE_H_
#define TRIPTYCH_SERVER_GRPC_GATE_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "server/core/caller.h"
#include "server/core/error.h"
#include "server/core/model_host.h"
#include "server/grpc/access.h"

namespace triptych {

// A call that was let in.
struct Entry {
  Caller caller;
  ModelHost& host;
  std::chrono::milliseconds stall_timeout;  // of its writes: TransportLimits
};

// Refuses who may not, and everybody until there is a host. Thread-safe.
class Gate {
 public:
  // `access` must outlive the gate.
  Gate(const Access& access, std::chrono::milliseconds stall_timeout)
      : access_(access), stall_timeout_(stall_timeout) {}

  Result<Entry> Enter(const grpc::ServerContextBase& context, Scope scope) const {
    Result<Caller> caller = access_.Authorize(context, scope);
    if (!caller.ok()) return caller.error();
    ModelHost* const host = host_;
    if (host == nullptr) return Loading();
    return Entry{std::move(caller).value(), *host, stall_timeout_};
  }

  // Lets calls in from now on. The host must outlive them.
  void Open(ModelHost& host) { host_ = &host; }

 private:
  const Access& access_;
  const std::chrono::milliseconds stall_timeout_;
  std::atomic<ModelHost*> host_ = nullptr;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_GATE_H_
