// What every call passes before its handler does anything.
#ifndef TRIPTYCH_SERVER_GRPC_GATE_H_
#define TRIPTYCH_SERVER_GRPC_GATE_H_

#include <grpcpp/server_context.h>

#include <atomic>

#include "server/core/caller.h"
#include "server/core/error.h"
#include "server/core/model_host.h"
#include "server/grpc/access.h"

namespace triptych {

// A call that was let in.
struct Entry {
  Caller caller;
  ModelHost& host;
};

// Refuses who may not, and everybody until there is a host. Thread-safe.
class Gate {
 public:
  // `access` must outlive the gate.
  explicit Gate(const Access& access) : access_(access) {}

  Result<Entry> Enter(const grpc::ServerContextBase& context, Scope scope) const {
    Result<Caller> caller = access_.Authorize(context, scope);
    if (!caller.ok()) return caller.error();
    ModelHost* const host = host_;
    if (host == nullptr) return Loading();
    return Entry{std::move(caller).value(), *host};
  }

  // Lets calls in from now on. The host must outlive them.
  void Open(ModelHost& host) { host_ = &host; }

  const Access& access() const { return access_; }

 private:
  const Access& access_;
  std::atomic<ModelHost*> host_ = nullptr;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_GATE_H_
