// The models a server hosts, and everything that may be asked of them.
#ifndef TRIPTYCH_SERVER_CORE_MODEL_HOST_H_
#define TRIPTYCH_SERVER_CORE_MODEL_HOST_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serving/engine.h"
#include "server/core/error.h"
#include "server/core/generation.h"
#include "server/core/request_params.h"
#include "server/core/served_model.h"
#include "server/core/statistics.h"

namespace triptych {

class EngineLoop;

// An engine, and what is known of the model that it serves.
struct ServedEngine {
  ServedModel model;
  std::unique_ptr<Engine> engine;
};

// Which models' statistics are watched, and how often.
struct StatsWatch {
  std::vector<size_t> models;  // of ModelHost::models()
  std::chrono::milliseconds interval;
};

// Thread-safe, and never waits for an engine but in Drain and the destructor. Callbacks are called
// on the engines' thread between two steps, so that figures of one answer agree, or, with an error,
// at once; they must not block. The host outlives its generations.
class ModelHost {
 public:
  explicit ModelHost(std::vector<ServedEngine> served);
  // Cancels what is live.
  ~ModelHost();
  ModelHost(const ModelHost&) = delete;
  ModelHost& operator=(const ModelHost&) = delete;

  const std::vector<ServedModel>& models() const { return models_; }
  // The model of that name, or the only one if `name` is empty.
  Result<const ServedModel*> Find(const std::string& name) const;

  // Both functions: the request, checked and ready to be started.
  Result<std::shared_ptr<Generation>> Generate(const GenerateParams& params);
  Result<std::shared_ptr<Generation>> Score(const ScoreParams& params);

  // The tokens of a text, without the begin token.
  Result<std::vector<int32_t>> Tokenize(const std::string& model, std::string_view text) const;
  // The text of tokens, in valid UTF-8.
  Result<std::string> Detokenize(const std::string& model, std::span<const int32_t> ids) const;

  // An empty name means every model.
  void CollectStats(const std::string& model, std::function<void(Result<HostStats>)> done);
  void ListSequences(const ListSequencesParams& params,
                     std::function<void(Result<SequencePage>)> done);
  // Checks what is to be watched. The transport collects anew whenever the interval has passed.
  Result<StatsWatch> Watch(const WatchStatsParams& params) const;
  void CollectStats(const StatsWatch& watch, std::function<void(HostStats)> done);

  // Refuses new requests from now on, and waits until the live ones have ended. After `timeout`
  // those left are cancelled, and the result is false.
  bool Drain(std::chrono::nanoseconds timeout);

 private:
  class LoopHandle;

  // Indices into models_: of the model of that name, or the only one if `name` is empty.
  Result<size_t> FindIndex(const std::string& name) const;
  // An empty name means every model.
  Result<std::vector<size_t>> FindAll(const std::string& name) const;
  template <typename Params>
  Result<std::shared_ptr<Generation>> Make(const Params& params);

  // All four are immutable after construction. Only the loop's thread touches what engines_ points
  // to.
  std::vector<ServedModel> models_;
  std::vector<std::unique_ptr<Engine>> engines_;        // of each model
  std::vector<std::unique_ptr<EngineHandle>> handles_;  // to each engine
  std::unique_ptr<EngineLoop> loop_;                    // dies before the engines that it runs
  std::atomic<uint64_t> requests_ = 0;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_MODEL_HOST_H_
