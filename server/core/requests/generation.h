// One request's life between its engine and a transport.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_GENERATION_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_GENERATION_H_

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
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/stream_buffer.h"
#include "server/core/requests/validation.h"
#include "server/core/stats/request_summary.h"

namespace triptych::server {

// What may wait for a client before it is cut off, as StreamBuffer counts it.
inline constexpr size_t kMaxUnreadBytes = 1 << 20;

// How a generation reaches the engine that runs it. Thread-safe; no call waits for the engine.
class EngineHandle {
 public:
  virtual ~EngineHandle() = default;
  // The engine calls the sink from its own thread; never if this throws.
  virtual void Submit(serving::Request request, std::shared_ptr<serving::RequestSink> sink) = 0;
  // Frees the request's cache by the next step. Harmless when it has ended. Throws nothing: without
  // memory for it the request goes on.
  virtual void Cancel(const std::string& id) = 0;
};

// What a transport implements.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // There may be something to take, for the first time or anew. Called from the engine's thread and
  // without locks; must not block.
  virtual void OnReady() = 0;
};

// The request is computed, and will not be refused any more: its id may be told.
struct RequestAccepted {};

// The request is over: `error` is what the client is told unless everything was delivered.
struct GenerationEnd {
  std::optional<Error> error;
};

// What a call needs to be served beside what it asks for.
struct CallContext {
  Admission::Permit place;  // held until the call is over
  RequestLog log;           // may be empty
};

// The client is told `error` about the request of that id.
Error OfRequest(Error error, const std::string& id);

// What the client is told of a sequence that did not run to its end; nothing if it did. Only the
// end of the server cancels what the client did not.
std::optional<Error> Failure(const serving::Completion& completion, bool client_cancelled);

// Carries a request's results from the engine's thread to a transport. One chunk is in flight at a
// time; what is generated meanwhile is merged into the next ones (StreamBuffer). Beyond
// kMaxUnreadBytes the request ends with SLOW_READER and its cache is freed. The last chunk of each
// choice holds its completion.
//
// Thread-safe. A transport makes a listener, starts the generation, and takes:
//
//   void OnReady() { Advance(); }
//   void OnDelivered(bool ok) { generation->ChunkDone(ok); Advance(); }
//   void Advance() {
//     take; if it is the acceptance, tell the id and take again; if it is a chunk, send it; if it
//     is the end, end the call
//   }
class Generation final : public serving::RequestSink,
                         public std::enable_shared_from_this<Generation> {
 public:
  // Nothing to do now; that it is accepted, at most once, before any chunk; a chunk to deliver; or
  // the end, after which there is nothing more.
  using Event = std::variant<std::monostate, RequestAccepted, StreamChunk, GenerationEnd>;

  // The request has its id. The model and the engine must outlive the generation's last call to
  // them: the engine's call of OnRejected or of the last OnFinish, or a Cancel that comes before
  // it.
  Generation(const ModelInfo& model, EngineHandle& engine, ValidRequest request,
             CallContext context);

  // Hands the request to the engine. Called once. The listener is kept until the engine is done
  // with the request; it is not if this throws, and then nothing more happens.
  void Start(std::shared_ptr<GenerationListener> listener) TRIPTYCH_EXCLUDES(mutex_);
  // What is due. After a chunk nothing is until ChunkDone.
  Event Take() TRIPTYCH_EXCLUDES(mutex_);
  // The chunk taken last was delivered, or cannot be because the client is gone. Take again then.
  void ChunkDone(bool delivered) TRIPTYCH_EXCLUDES(mutex_);
  // The client is gone: frees the request's cache by the next step. Harmless at any time.
  void Cancel() TRIPTYCH_EXCLUDES(mutex_);

  const std::string& id() const { return id_; }
  // The tokens that the prompt became, and whether the server put the first of them there.
  // REQUIRES: Start was not called.
  std::vector<int32_t> prompt() const TRIPTYCH_EXCLUDES(mutex_);
  bool begin_token() const { return size_.begin_token; }
  // Of the engine when it was done with the last choice so far; absent before.
  std::optional<serving::EngineLoad> load() const TRIPTYCH_EXCLUDES(mutex_);

  // The engine's side.
  void OnRejected(serving::SubmitStatus status) override TRIPTYCH_EXCLUDES(mutex_);
  void OnScheduled() override TRIPTYCH_EXCLUDES(mutex_);
  void OnPromptLogprobs(std::vector<serving::TokenLogprobs> logprobs) override
      TRIPTYCH_EXCLUDES(mutex_);
  void OnDelta(serving::Delta delta) override TRIPTYCH_EXCLUDES(mutex_);
  void OnFinish(serving::Completion completion) override TRIPTYCH_EXCLUDES(mutex_);

 private:
  // Ends a request whose buffer is beyond its bound. The caller cancels it then.
  void CutOff() TRIPTYCH_REQUIRES(mutex_);
  // Both: how it ended, in the words of a summary. REQUIRES: it has ended.
  Outcome EndOutcome(bool refused) const TRIPTYCH_REQUIRES(mutex_);
  std::string EndText() const TRIPTYCH_REQUIRES(mutex_);

  const ModelInfo& model_;
  EngineHandle& engine_;
  const std::string id_;
  const std::string client_;
  const RequestSize size_;
  const std::string echo_;
  const CallContext context_;

  mutable Mutex mutex_;
  std::optional<serving::Request> request_ TRIPTYCH_GUARDED_BY(mutex_);  // until Start
  std::shared_ptr<GenerationListener> listener_ TRIPTYCH_GUARDED_BY(mutex_);
  StreamBuffer buffer_ TRIPTYCH_GUARDED_BY(mutex_);
  std::vector<bool> echoed_ TRIPTYCH_GUARDED_BY(mutex_);  // of each choice
  bool scheduled_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  bool acceptance_taken_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  bool in_flight_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  bool cancelled_ TRIPTYCH_GUARDED_BY(mutex_) = false;  // by the client
  int32_t running_ TRIPTYCH_GUARDED_BY(mutex_);         // choices; 0: the engine is done
  std::map<serving::FinishReason, int> finished_ TRIPTYCH_GUARDED_BY(mutex_);  // choices
  serving::RequestUsage usage_ TRIPTYCH_GUARDED_BY(mutex_);
  std::optional<serving::EngineLoad> load_ TRIPTYCH_GUARDED_BY(mutex_);
  // How it ends once the buffer is empty; decided once, by whatever comes first.
  std::optional<GenerationEnd> end_ TRIPTYCH_GUARDED_BY(mutex_);
  bool end_taken_ TRIPTYCH_GUARDED_BY(mutex_) = false;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_GENERATION_H_
