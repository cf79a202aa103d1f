// Members of all APIs about functions that a reply may call.
#ifndef TRIPTYCH_SERVER_HTTP_TOOLS_H_
#define TRIPTYCH_SERVER_HTTP_TOOLS_H_

#include <string_view>
#include <vector>

#include "server/core/chat/chat_template.h"
#include "server/core/chat/reasoning.h"
#include "server/core/tools/tools.h"
#include "server/http/completion_request.h"
#include "server/http/fields.h"

namespace triptych::server {

// Each reads the members "tools", and "tool_choice" where the API has it. `object` is the text of
// the JSON object whose members `fields` reads: schemas keep the order of their members.

// OpenAI's chats, with parallel_tool_calls.
ToolOptions ReadChatTools(Fields& fields, std::string_view object);
// Ollama's tools, which have the same shape.
ToolOptions ReadOllamaTools(Fields& fields, std::string_view object);
// Those of Responses, with parallel_tool_calls.
ToolOptions ReadResponsesTools(Fields& fields, std::string_view object);
// Anthropic's, whose tool_choice says whether a reply may have several calls.
ToolOptions ReadMessagesTools(Fields& fields, std::string_view object);

// Prepares a chat for its tools and its earlier calls: the messages and options of the template,
// the grammar of the reply, and how it is read.
void UseTools(const ToolOptions& tools, const ToolSupport& support,
              std::vector<ChatMessage>& messages, ChatOptions& options,
              CompletionRequest& completion);

// Sets how the reply's thoughts begin, which its grammar allows before calls.
void SetThoughts(ReasoningSplitter::Begin begin, CompletionRequest& completion);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_TOOLS_H_
