// A call's life between its engine and a transport.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_CALL_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_CALL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/serving/request.h"
#include "server/core/access/admission.h"
#include "server/core/engine_thread.h"
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/context_length.h"
#include "server/core/requests/stream_buffer.h"
#include "server/core/requests/validation.h"
#include "server/core/stats/request_summary.h"

namespace triptych::server {

// Bound on the unread bytes of a generation, as StreamBuffer counts them.
inline constexpr size_t kMaxUnreadBytes = 1 << 20;

// Implemented by a transport.
class CallListener {
 public:
  virtual ~CallListener() = default;
  // There may be something to take, for the first time or again. Called without locks, on the
  // engines' thread or by Call::Start; must not block.
  virtual void OnReady() = 0;
};

// The engine computes the call and cannot refuse it any more: the client may be told its id. A
// generation with several prompts is accepted with the first; the others may still be refused.
struct RequestAccepted {};

// The call is over. The client is told `error`, unless everything was delivered.
struct CallEnd {
  std::optional<Error> error;
};

enum class CallKind {
  kGenerate,  // a request for each prompt; each of its choices is a sequence
  kScore,     // a request for each input, which is a sequence
};

// The model and the engines must outlive the call's last use of them: the engine's last call for
// one of the requests, or a Cancel before that.
struct CallContext {
  const ModelInfo& model;
  size_t model_index;  // of ModelRegistry::models()
  EngineThread& engines;
  Admission::Permit permit;  // held until the call is destroyed
  RequestLog log;            // may be empty
};

struct PromptTokens {
  std::vector<int32_t> tokens;
  bool begin_token = false;  // the server put the first of them there
};

// Carries the results of a call's requests from the engines' thread to a transport. One chunk is
// in flight at a time; what is generated in the meantime is merged into the next ones
// (StreamBuffer). The last chunk of each sequence holds its completion. The first request that
// fails fails the call, and the others are cancelled.
//
// A generation ends with its error at once, and with SLOW_READER if its client leaves more than
// kMaxUnreadBytes unread. A score ends when the engine is done with all of its inputs. Its
// transport gathers the chunks (scores.h) and never leaves one.
//
// Thread-safe. A transport makes a listener, starts the call, and takes:
//
//   void OnReady() { Advance(); }
//   void OnDelivered(bool ok) { call->ChunkDone(ok); Advance(); }
//   void Advance() {
//     take; if it is the acceptance, tell the id and take again; if it is a chunk, send it; if it
//     is the end, end the call
//   }
class Call final : public std::enable_shared_from_this<Call> {
 public:
  // Nothing to do now; the acceptance, at most once, before any chunk of a generation; a chunk to
  // deliver; or the end, after which there is nothing more.
  using Event = std::variant<std::monostate, RequestAccepted, StreamChunk, CallEnd>;

  // The requests have their ids; the call's id is that of the first. REQUIRES: at least one
  // request.
  Call(CallKind kind, std::vector<ValidRequest> requests, CallContext context);
  ~Call();

  // Submits the requests to the engine. Called once. The listener is kept until the engine is done
  // with the call. A request that cannot be submitted, for lack of memory, fails the call.
  void Start(std::shared_ptr<CallListener> listener) TRIPTYCH_EXCLUDES(mutex_);
  // After a chunk, and until ChunkDone, returns neither a chunk nor the end.
  Event Take() TRIPTYCH_EXCLUDES(mutex_);
  // The last chunk was delivered, or cannot be because the client is gone. Take again then.
  void ChunkDone(bool delivered) TRIPTYCH_EXCLUDES(mutex_);
  // The client is gone: frees the requests' KV caches by the next step. Harmless at any time.
  void Cancel() TRIPTYCH_EXCLUDES(mutex_);

  const std::string& id() const;
  int32_t sequences() const { return sequences_; }  // of all requests
  // The tokens of each request's prompt. REQUIRES: Start was not called.
  std::vector<PromptTokens> prompts() const TRIPTYCH_EXCLUDES(mutex_);
  // The engine's load when it was done with the last sequence so far; absent before.
  std::optional<serving::EngineLoad> load() const TRIPTYCH_EXCLUDES(mutex_);

 private:
  // Receives one request's results.
  class Sink;
  // Actions that a change of state requires, to be taken without the lock.
  struct Actions {
    bool cancel = false;
    std::optional<RequestSummary> summary;
    std::shared_ptr<CallListener> listener;
  };

  // The engine's side. Functions with `sink` concern its request.
  void OnScheduled() TRIPTYCH_EXCLUDES(mutex_);
  void OnFinish(const Sink& sink, serving::Completion completion) TRIPTYCH_EXCLUDES(mutex_);
  void Fail(const Sink& sink, Error error, bool rejected) TRIPTYCH_EXCLUDES(mutex_);
  // `append` adds to the buffer. It returns false if the buffer is beyond its bound.
  template <typename Append>
  void Buffer(const Append& append) TRIPTYCH_EXCLUDES(mutex_);

  // The text that begins a sequence's output.
  const std::string& EchoOf(int32_t sequence) const;

  // Ends the call with `error`. False if it has ended already.
  bool EndWith(Error error) TRIPTYCH_REQUIRES(mutex_);
  // Whether the end is due once the buffer is empty.
  bool EndIsDue() const TRIPTYCH_REQUIRES(mutex_);
  // After sequences have ended. `failed`: that ended the call.
  Actions Settle(bool failed) TRIPTYCH_REQUIRES(mutex_);
  void Do(Actions actions) TRIPTYCH_EXCLUDES(mutex_);
  // REQUIRES: the call has ended.
  RequestSummary Summary() const TRIPTYCH_REQUIRES(mutex_);
  std::string EndText() const TRIPTYCH_REQUIRES(mutex_);
  void CancelRequests();

  const CallKind kind_;
  const CallContext context_;
  const std::string client_;
  std::vector<Sink> sinks_;  // of each request; not changed after construction
  const int32_t sequences_;  // of all requests

  mutable Mutex mutex_;
  std::vector<serving::Request> requests_ TRIPTYCH_GUARDED_BY(mutex_);  // until Start
  std::shared_ptr<CallListener> listener_ TRIPTYCH_GUARDED_BY(mutex_);
  StreamBuffer buffer_ TRIPTYCH_GUARDED_BY(mutex_);
  std::vector<bool> echoed_ TRIPTYCH_GUARDED_BY(mutex_);     // of each sequence
  size_t scheduled_ TRIPTYCH_GUARDED_BY(mutex_) = 0;         // requests
  bool rejected_ TRIPTYCH_GUARDED_BY(mutex_) = false;        // at least one request
  bool acceptance_due_ TRIPTYCH_GUARDED_BY(mutex_) = false;  // and not taken yet
  bool in_flight_ TRIPTYCH_GUARDED_BY(mutex_) = false;       // a chunk
  bool cancelled_ TRIPTYCH_GUARDED_BY(mutex_) = false;       // by the client
  int32_t running_ TRIPTYCH_GUARDED_BY(mutex_);              // sequences; 0: the engine is done
  std::map<serving::FinishReason, int> finished_ TRIPTYCH_GUARDED_BY(mutex_);  // sequences
  serving::RequestUsage usage_ TRIPTYCH_GUARDED_BY(mutex_);
  std::optional<serving::EngineLoad> load_ TRIPTYCH_GUARDED_BY(mutex_);
  std::optional<CallEnd> end_ TRIPTYCH_GUARDED_BY(mutex_);  // the first error stays
  bool end_taken_ TRIPTYCH_GUARDED_BY(mutex_) = false;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_CALL_H_
