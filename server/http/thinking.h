// Thinking on request: members of all APIs that turn a reply's thoughts on or off.
#ifndef TRIPTYCH_SERVER_HTTP_THINKING_H_
#define TRIPTYCH_SERVER_HTTP_THINKING_H_

#include <optional>
#include <string>

#include "server/core/chat/chat_template.h"
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/http/fields.h"

namespace triptych::server {

struct Thinking {
  std::optional<bool> enabled = {};        // absent: the template decides
  std::optional<std::string> effort = {};  // a level, such as "low"; "none" disables
  std::string field = {};                  // the member that says so
};

// OpenAI's levels in the member `name`. `path`: the prefix of the member's name in errors.
Thinking ReadEffort(Fields& fields, const std::string& name, const std::string& path);

// The member {"reasoning": {"effort": LEVEL, "summary": "auto"}}. There is no summary, as replies
// have the thoughts.
Thinking ReadReasoning(Fields& fields);

// True if the model's chat template has thoughts.
bool CanThink(const ModelInfo& model);

// Sets the variables of the template that are named enable_thinking, thinking and reasoning_effort
// in published templates, unless `options` has them. An error if the model must think and cannot.
std::optional<Error> SetThinking(const Thinking& thinking, const ModelInfo& model,
                                 ChatOptions& options);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_THINKING_H_
