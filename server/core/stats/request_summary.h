// Summary of a finished request, for the log.
#ifndef TRIPTYCH_SERVER_CORE_STATS_REQUEST_SUMMARY_H_
#define TRIPTYCH_SERVER_CORE_STATS_REQUEST_SUMMARY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "engine/serving/request.h"
#include "server/core/error.h"
#include "server/core/stats/outcome.h"

namespace triptych::server {

// Contains no prompt and no output.
struct RequestSummary {
  std::string id;
  std::string client;
  std::string model;
  std::string traceparent = {};  // empty if the call had none
  bool scores = false;           // a Score; otherwise a generation
  bool refused = false;          // by the engine; `usage` is then empty
  Outcome outcome = Outcome::kStop;
  std::string end;  // "stop", "2 stop, 1 length", "scored", or an error's reason
  // All its sequences together: sums of generated tokens, preemptions and cache bytes, and of
  // each prompt's tokens; the maximum of each time.
  serving::RequestUsage usage;

  // One line.
  std::string Text() const;
  // The members of a JSON object, without braces.
  std::string JsonMembers() const;
};

// Name of the spdlog logger that writes JSON objects; it exists if the server logs JSON. Its
// messages are an object's members.
inline constexpr const char* kJsonLogger = "json";

// Adds one sequence's `usage` to `sum`. `adds_prompt`: true for one choice of each prompt.
void AddUsage(const serving::RequestUsage& usage, bool adds_prompt, serving::RequestUsage& sum);

// The outcome of a request that ended with `error`. `refused`: by the engine, before any step.
Outcome OutcomeOf(const Error& error, bool refused);

// Called on the engine's thread when the engine has finished a request. Must not block.
using RequestLog = std::function<void(RequestSummary)>;
using RequestObserver = std::function<void(const RequestSummary&)>;

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_REQUEST_SUMMARY_H_
