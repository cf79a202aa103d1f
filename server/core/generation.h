// One request's life between its engine and a transport.
#ifndef TRIPTYCH_SERVER_CORE_GENERATION_H_
#define TRIPTYCH_SERVER_CORE_GENERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "engine/base/mutex.h"
#include "engine/serving/request.h"
#include "server/core/error.h"
#include "server/core/served_model.h"
#include "server/core/stream_buffer.h"
#include "server/core/validation.h"

namespace triptych {

// Text, tokens and log-probabilities that may wait for a client before it is cut off.
inline constexpr size_t kMaxUnreadBytes = 1 << 20;

// How a generation reaches the engine that runs it. Thread-safe; no call waits for the engine.
class EngineHandle {
 public:
  virtual ~EngineHandle() = default;
  // The engine calls the sink from its own thread.
  virtual void Submit(Request request, std::shared_ptr<RequestSink> sink) = 0;
  // Frees the request's cache by the next step. Harmless when it has ended.
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

// The request is over: `error` is what the client is told unless everything was delivered.
struct GenerationEnd {
  std::optional<Error> error;
};

// Carries a request's results from the engine's thread to a transport. One chunk is in flight at a
// time; what is generated meanwhile is merged into the next one, so that a slow client costs one
// growing chunk. Beyond kMaxUnreadBytes the request ends with SLOW_READER and its cache is freed.
// A request that only scores has a single chunk, which holds the completion.
//
// Thread-safe. A transport makes a listener, starts the generation, and takes:
//
//   void OnReady() { Advance(); }
//   void OnDelivered(bool ok) { generation->ChunkDone(ok); Advance(); }
//   void Advance() {
//     take; if it is a chunk, send it; if it is the end, end the call
//   }
class Generation final : public RequestSink, public std::enable_shared_from_this<Generation> {
 public:
  // Nothing to do now, a chunk to deliver, or the end, after which there is nothing more.
  using Event = std::variant<std::monostate, StreamChunk, GenerationEnd>;

  // The model and the engine must outlive the generation's last call to them: the engine's call of
  // OnRejected or OnFinish, or a Cancel that comes before it.
  Generation(const ServedModel& model, EngineHandle& engine, ValidRequest request);

  // Hands the request to the engine. Called once. The listener is kept until the engine is done
  // with the request.
  void Start(std::shared_ptr<GenerationListener> listener) TRIPTYCH_EXCLUDES(mutex_);
  // What is due. After a chunk nothing is until ChunkDone.
  Event Take() TRIPTYCH_EXCLUDES(mutex_);
  // The chunk taken last was delivered, or cannot be because the client is gone. Take again then.
  void ChunkDone(bool delivered) TRIPTYCH_EXCLUDES(mutex_);
  // The client is gone: frees the request's cache by the next step. Harmless at any time.
  void Cancel() TRIPTYCH_EXCLUDES(mutex_);

  const std::string& id() const { return id_; }
  uint64_t seed() const { return seed_; }

  // The engine's side.
  void OnRejected(SubmitStatus status) override TRIPTYCH_EXCLUDES(mutex_);
  void OnScheduled() override {}
  void OnPromptLogprobs(std::vector<TokenLogprobs> logprobs) override TRIPTYCH_EXCLUDES(mutex_);
  void OnDelta(Delta delta) override TRIPTYCH_EXCLUDES(mutex_);
  void OnFinish(Completion completion) override TRIPTYCH_EXCLUDES(mutex_);

 private:
  // What the client is told of a request that did not run to its end; nothing if it did.
  std::optional<Error> Failure(const Completion& completion) const TRIPTYCH_REQUIRES(mutex_);

  const ServedModel& model_;
  EngineHandle& engine_;
  const std::string id_;
  const uint64_t seed_;
  const RequestSize size_;

  Mutex mutex_;
  std::optional<Request> request_ TRIPTYCH_GUARDED_BY(mutex_);  // until Start
  std::shared_ptr<GenerationListener> listener_ TRIPTYCH_GUARDED_BY(mutex_);
  StreamBuffer buffer_ TRIPTYCH_GUARDED_BY(mutex_){kMaxUnreadBytes};
  bool in_flight_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  bool cancelled_ TRIPTYCH_GUARDED_BY(mutex_) = false;    // by the client
  bool engine_done_ TRIPTYCH_GUARDED_BY(mutex_) = false;  // it has made its last call
  // How it ends once the buffer is empty; decided once, by whatever comes first.
  std::optional<GenerationEnd> end_ TRIPTYCH_GUARDED_BY(mutex_);
  bool end_taken_ TRIPTYCH_GUARDED_BY(mutex_) = false;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_GENERATION_H_
