// Checks requests and makes them calls.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_SERVICE_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_SERVICE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/core/access/admission.h"
#include "server/core/access/caller.h"
#include "server/core/engine_thread.h"
#include "server/core/error.h"
#include "server/core/model_registry.h"
#include "server/core/requests/call.h"
#include "server/core/requests/output_grammars.h"
#include "server/core/requests/request_ids.h"
#include "server/core/requests/request_params.h"
#include "server/core/requests/tokenization_queue.h"
#include "server/core/requests/validation.h"
#include "server/core/stats/outcome.h"
#include "server/core/tokenizer_bundles.h"
#include "server/core/worker.h"

namespace triptych::server {

// Admits requests, validates and tokenizes them, and makes the calls that a transport starts.
// Counts and logs how they end.
//
// Most kinds of requests have two functions. One returns at once what the other hands to `done`,
// which takes a long text, and a form of output, to the TokenizationQueue: `done` is called before
// the function returns, or on the queue's thread. The data that params view must live until then.
// `done` also gets the queue's errors, and is called again, with STEP_FAILED, if it throws.
//
// Thread-safe. No function except Drain waits for an engine. Outlives its calls.
class RequestService {
 public:
  // A transport takes requests of at most `max_message_bytes`. `observer`, which may be empty, is
  // called for every request that reached a model when it ends. The models and the engines must
  // outlive the service, and the engines must have stopped when it is destroyed.
  RequestService(const ModelRegistry& models, EngineLoopThread& engines,
                 const AdmissionLimits& limits, int64_t max_message_bytes,
                 RequestObserver observer = {});
  RequestService(const RequestService&) = delete;
  RequestService& operator=(const RequestService&) = delete;

  // How a request with a long text waits for its turn.
  struct Turn {
    std::function<int64_t()> held_bytes;  // of the transport's message, in memory, until `done`
    std::function<bool()> is_cancelled;   // asked in its turn
  };
  template <typename Answer>
  using Done = std::function<void(Result<Answer>)>;

  void Generate(GenerateParams params, const Caller& caller, const Turn& turn,
                Done<std::shared_ptr<Call>> done);
  void Score(ScoreParams params, const Caller& caller, const Turn& turn,
             Done<std::shared_ptr<Call>> done);
  void Tokenize(TokenizeParams params, const Caller& caller, const Turn& turn,
                Done<TokenizedText> done);
  void Detokenize(DetokenizeParams params, const Caller& caller, const Turn& turn,
                  Done<std::string> done);
  // The archive of the model's tokenizer files, which the queue's thread reads.
  void BundleTokenizer(const std::string& model, const Caller& caller, const Turn& turn,
                       Done<std::shared_ptr<const TokenizerBundle>> done);

  Result<std::shared_ptr<Call>> Generate(const GenerateParams& params, const Caller& caller);
  // One call for several prompts, whose choices follow one another. REQUIRES: at least one entry,
  // all of one model.
  Result<std::shared_ptr<Call>> Generate(std::span<const GenerateParams> all, const Caller& caller);
  Result<std::shared_ptr<Call>> Score(const ScoreParams& params, const Caller& caller);
  Result<TokenizedText> Tokenize(const TokenizeParams& params) const;
  Result<std::string> Detokenize(const DetokenizeParams& params) const;

  // For a transport that takes long even to read a request.
  TokenizationQueue& queue() { return queue_; }

  // Requests whose calls are not over.
  int64_t live_requests() const { return admission_.live(); }
  // Counts of the model's requests by outcome, in the order of kOutcomes.
  std::array<int64_t, kOutcomes.size()> outcomes(size_t model) const {
    return outcomes_[model].counts();
  }

  // Refuses the texts that wait for their turn.
  void StartDrain() { queue_.StartDrain(); }
  // The same; also refuses new requests, and waits until the live ones have ended and their calls
  // are destroyed. After `timeout` cancels those that still compute; false if any is left.
  bool Drain(std::chrono::nanoseconds timeout);

 private:
  // Calls `done` with what `handle` returns, at once or in the client's turn.
  template <typename Answer, typename Handle>
  void InTurn(const std::string& client, int64_t text_bytes, int64_t copied_bytes, const Turn& turn,
              Handle handle, Done<Answer> done);
  // Gives a valid request `sequences` numbers, an id, and the caller's name and time.
  void Identify(const Caller& caller, uint64_t sequences, serving::Request& request);
  // Counts a request that is not taken. Returns `error`.
  Error Refuse(size_t model, Outcome outcome, Error error);
  std::shared_ptr<Call> Make(CallKind kind, size_t model, const Caller& caller,
                             std::vector<ValidRequest> requests, Admission::Permit permit);
  // Counts and logs the end of a request to the model.
  RequestLog Log(size_t model, const Caller& caller);

  const ModelRegistry& models_;
  EngineLoopThread& engines_;
  std::vector<OutcomeCounts> outcomes_;  // of each model's requests
  OutputGrammars grammars_;
  Admission admission_;
  RequestIds ids_;
  const RequestObserver observer_;
  TokenizerBundles bundles_;  // the queue's thread uses them
  Worker log_worker_;
  TokenizationQueue queue_;  // last: its thread uses all of the above
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_SERVICE_H_
