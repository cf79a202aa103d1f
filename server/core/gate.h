// What every call passes before its handler does anything, over any transport.
#ifndef TRIPTYCH_SERVER_CORE_GATE_H_
#define TRIPTYCH_SERVER_CORE_GATE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "server/core/access.h"
#include "server/core/caller.h"
#include "server/core/certificate_files.h"
#include "server/core/error.h"
#include "server/core/model_host.h"
#include "server/core/trace_parent.h"
#include "server/core/transport_options.h"

namespace triptych {

// A call that was let in.
struct Entry {
  Caller caller;
  ModelHost& host;
  std::chrono::milliseconds stall_timeout;  // of its writes: TransportLimits
};

// Refuses who may not, and everybody until there is a host. All transports share one. Thread-safe.
class Gate {
 public:
  // Throws LoadError.
  explicit Gate(const TransportOptions& options)
      : access_(options.access),
        certificates_(options.tls ? std::make_shared<CertificateFiles>(*options.tls) : nullptr),
        stall_timeout_(options.limits.stall_timeout),
        is_memory_short_(options.is_memory_short) {}

  // Of the server, which all transports show; null if they are unencrypted.
  std::shared_ptr<CertificateFiles> certificates() const { return certificates_; }

  // Whether anybody knows who calls.
  Result<Caller> Authenticate(const Presented& call) const { return access_.Authenticate(call); }

  Result<Entry> Enter(const Presented& call, Scope scope) const {
    Result<Caller> caller = access_.Authorize(call, scope);
    if (!caller.ok()) return caller.error();
    caller.value().traceparent = TraceParent(call.traceparent);
    caller.value().arrived = EngineClock::now();
    ModelHost* const host = host_;
    if (host == nullptr) return Starting();
    return Entry{std::move(caller).value(), *host, stall_timeout_};
  }

  // The same for a request that is computed, for which there must be memory too.
  Result<Entry> EnterToCompute(const Presented& call) const {
    Result<Entry> entry = Enter(call, Scope::kInference);
    if (entry.ok() && is_memory_short_()) return MemoryPressure();
    return entry;
  }

  // Lets calls in from now on. The host must outlive them.
  void Open(ModelHost& host) { host_ = &host; }

 private:
  const Access access_;
  const std::shared_ptr<CertificateFiles> certificates_;
  const std::chrono::milliseconds stall_timeout_;
  const std::function<bool()> is_memory_short_;
  std::atomic<ModelHost*> host_ = nullptr;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_GATE_H_
