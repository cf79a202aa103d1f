// What became of a request, for the log.
#ifndef TRIPTYCH_SERVER_CORE_STATS_REQUEST_SUMMARY_H_
#define TRIPTYCH_SERVER_CORE_STATS_REQUEST_SUMMARY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "engine/serving/request.h"
#include "server/core/error.h"
#include "server/core/stats/outcome.h"

namespace triptych::server {

// Nothing of what was asked or answered.
struct RequestSummary {
  std::string id;
  std::string client;
  std::string model;
  std::string traceparent = {};  // empty if the call brought none
  bool refused = false;          // by the engine; then there is no usage
  Outcome outcome = Outcome::kStop;
  std::string end;  // "stop", "2 stop, 1 length", "scored", or the reason of an error
  // Of all its sequences: sums of the generated tokens, the preemptions and what their caches took;
  // of a score of the prompts' tokens too; the longest of the times.
  serving::RequestUsage usage;

  // One line.
  std::string Text() const;
  // The same as the members of a JSON object, without braces.
  std::string JsonMembers() const;
};

// The name of spdlog's logger whose lines are JSON objects, if that is how the server logs: it is
// given an object's members.
inline constexpr const char* kJsonLogger = "json";

// Adds the usage of one more sequence. Choices share their prompt; scored inputs do not.
void AddUsage(const serving::RequestUsage& usage, bool shares_prompt, serving::RequestUsage& sum);

// Of a request that ended with an error.
Outcome OutcomeOf(const Error& error, bool refused);

// Called on the engine's thread when the engine is done with a request; must not block.
using RequestLog = std::function<void(RequestSummary)>;

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_REQUEST_SUMMARY_H_
