// What became of a request, for the log.
#ifndef TRIPTYCH_SERVER_CORE_REQUEST_SUMMARY_H_
#define TRIPTYCH_SERVER_CORE_REQUEST_SUMMARY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "engine/serving/request.h"

namespace triptych {

// Nothing of what was asked or answered.
struct RequestSummary {
  std::string id;
  std::string client;
  std::string model;
  bool refused = false;  // by the engine; then there is no usage
  std::string end;       // "stop", "2 stop, 1 length", "scored", or the reason of an error
  // Of all its sequences: sums of the generated tokens, the preemptions and what their caches took;
  // of a score of the prompts' tokens too; the longest of the times.
  RequestUsage usage;

  // One line.
  std::string Text() const;
};

// Adds the usage of one more sequence. Choices share their prompt; scored inputs do not.
void AddUsage(const RequestUsage& usage, bool shares_prompt, RequestUsage& sum);

// Called on the engine's thread when the engine is done with a request; must not block.
using RequestLog = std::function<void(RequestSummary)>;

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_REQUEST_SUMMARY_H_
