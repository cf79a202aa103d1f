// Conversations with calls of functions for templates that lack them.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_TOOL_MESSAGES_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_TOOL_MESSAGES_H_

#include <vector>

#include "server/core/chat/chat_template.h"
#include "server/core/tools/tools.h"

namespace triptych::server {

// The same conversation in messages that the template shows: tools are described in the first
// message, calls are text of the assistant or come one by one, each with its results, and results
// are the beginning of the user's next message.
std::vector<ChatMessage> ForTemplate(std::vector<ChatMessage> messages,
                                     const std::vector<Tool>& tools, const ToolSupport& support);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_TOOL_MESSAGES_H_
