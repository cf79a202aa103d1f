// The life of a call that scores: a request for each of its inputs.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_SCORING_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_SCORING_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/serving/request.h"
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/generation.h"
#include "server/core/requests/validation.h"

namespace triptych::server {

struct InputScore {
  std::vector<float> logprobs;  // of every token but the first
  serving::RequestUsage usage;
  std::optional<serving::EngineLoad>
      load;  // when the engine was done with it; absent if it was not taken
};

// Gathers what the engine says of a batch of requests. The first that fails fails the call, and the
// others are cancelled; the call ends when the engine is done with all of them. Thread-safe.
class Scoring final : public std::enable_shared_from_this<Scoring> {
 public:
  using Scores = std::vector<InputScore>;  // in the inputs' order
  // Nothing to do now; that every input is computed, at most once; or the end, after which there is
  // nothing more.
  using Event = std::variant<std::monostate, RequestAccepted, Result<Scores>>;

  // The requests have their ids; the call's is that of the first. There is at least one. The model
  // and the engine must outlive the engine's last call for one of them.
  Scoring(const ModelInfo& model, EngineHandle& engine, std::vector<ValidRequest> requests,
          CallContext context);
  ~Scoring();

  // Hands the requests to the engine. Called once. The listener is kept until the end. What cannot
  // be handed over fails the call.
  void Start(std::shared_ptr<GenerationListener> listener) TRIPTYCH_EXCLUDES(mutex_);
  Event Take() TRIPTYCH_EXCLUDES(mutex_);
  // The client is gone. Harmless at any time.
  void Cancel() TRIPTYCH_EXCLUDES(mutex_);

  const std::string& id() const { return inputs_.front().id; }
  // Of the engine when it was done with the last input so far; absent before.
  std::optional<serving::EngineLoad> load() const TRIPTYCH_EXCLUDES(mutex_);

 private:
  class InputSink;
  struct Input {
    std::string id;
    RequestSize size;
  };

  // What the engine says of an input.
  void OnScheduled() TRIPTYCH_EXCLUDES(mutex_);
  void OnDone(size_t input, InputScore score, std::optional<Error> error) TRIPTYCH_EXCLUDES(mutex_);
  void CancelAll();

  const ModelInfo& model_;
  EngineHandle& engine_;
  const std::string client_;
  const std::vector<Input> inputs_;
  const CallContext context_;

  mutable Mutex mutex_;
  std::vector<serving::Request> requests_ TRIPTYCH_GUARDED_BY(mutex_);  // until Start
  std::shared_ptr<GenerationListener> listener_ TRIPTYCH_GUARDED_BY(mutex_);
  Scores scores_ TRIPTYCH_GUARDED_BY(mutex_);
  std::optional<serving::EngineLoad> load_ TRIPTYCH_GUARDED_BY(mutex_);
  size_t scheduled_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  size_t running_ TRIPTYCH_GUARDED_BY(mutex_);
  std::optional<Error> error_ TRIPTYCH_GUARDED_BY(mutex_);  // the first
  bool cancelled_ TRIPTYCH_GUARDED_BY(mutex_) = false;      // by the client
  bool acceptance_taken_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  bool end_taken_ TRIPTYCH_GUARDED_BY(mutex_) = false;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_SCORING_H_
