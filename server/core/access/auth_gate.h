// Gate that authenticates and authorizes every call, over all transports, before its handler runs.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_AUTH_GATE_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_AUTH_GATE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "server/core/access/access.h"
#include "server/core/access/caller.h"
#include "server/core/access/certificate_files.h"
#include "server/core/error.h"
#include "server/core/requests/trace_parent.h"
#include "server/core/server_core.h"
#include "server/core/transport_options.h"

namespace triptych::server {

// A call that has passed the gate.
struct AuthorizedCall {
  Caller caller;
  ServerCore& core;
  std::chrono::milliseconds stall_timeout;  // TransportLimits::stall_timeout
};

// Refuses callers without the required scope, and all calls until Open. Thread-safe.
class AuthGate {
 public:
  // Throws LoadError.
  explicit AuthGate(const TransportOptions& options)
      : access_(options.access),
        certificates_(options.tls ? std::make_shared<CertificateFiles>(*options.tls) : nullptr),
        stall_timeout_(options.limits.stall_timeout),
        is_memory_short_(options.is_memory_short) {}

  // The server's certificates, for all transports; null if they are unencrypted.
  std::shared_ptr<CertificateFiles> certificates() const { return certificates_; }

  // The caller, whatever its scopes.
  Result<Caller> Authenticate(const Credentials& call) const { return access_.Authenticate(call); }

  // Authorizes a call that needs `scope`.
  Result<AuthorizedCall> Enter(const Credentials& call, Scope scope) const {
    Result<Caller> caller = access_.Authorize(call, scope);
    if (!caller.ok()) return caller.error();
    caller.value().traceparent = TraceParent(call.traceparent);
    caller.value().arrived = serving::EngineClock::now();
    ServerCore* const core = core_;
    if (core == nullptr) return Starting();
    return AuthorizedCall{std::move(caller).value(), *core, stall_timeout_};
  }

  // Enter for a request that computes: needs the scope inference, and memory (else
  // MEMORY_PRESSURE).
  Result<AuthorizedCall> EnterToCompute(const Credentials& call) const {
    Result<AuthorizedCall> entry = Enter(call, Scope::kInference);
    if (entry.ok() && is_memory_short_()) return MemoryPressure();
    return entry;
  }

  // Admits calls from now on. `core` must outlive them.
  void Open(ServerCore& core) { core_ = &core; }

 private:
  const Access access_;
  const std::shared_ptr<CertificateFiles> certificates_;
  const std::chrono::milliseconds stall_timeout_;
  const std::function<bool()> is_memory_short_;
  std::atomic<ServerCore*> core_ = nullptr;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_AUTH_GATE_H_
