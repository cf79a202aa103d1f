// Calls of functions in the messages of all APIs.
#ifndef TRIPTYCH_SERVER_HTTP_MESSAGE_CALLS_H_
#define TRIPTYCH_SERVER_HTTP_MESSAGE_CALLS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "server/core/tools/tools.h"
#include "server/http/fields.h"

namespace triptych::server {

// The name of a list's entry: "NAME[3]".
inline std::string At(const std::string& list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

// A list of messages again, with members in order. Parsed when first needed.
class OrderedMessages {
 public:
  // `object`: the text of the JSON object with the list, which is its member `name`.
  OrderedMessages(std::string_view object, const std::string& name)
      : object_(object), name_(name) {}

  // Member `name` of message `index`. The last one is found in constant time.
  const OrderedJson& MemberOf(size_t index, std::string_view name);

 private:
  const std::string_view object_;
  const std::string name_;
  OrderedJson list_;
  const OrderedJson* member_ = nullptr;  // the last one
  size_t member_index_ = 0;
  std::string member_name_;
};

// A message's place in a list.
struct MessagePlace {
  OrderedMessages& messages;
  size_t index;
  std::string path;  // with a '.'

  const OrderedJson& Ordered(std::string_view name) const { return messages.MemberOf(index, name); }
};

// OpenAI's and Ollama's calls in the member "tool_calls" of an assistant's message. Arguments are a
// text of JSON, or an object.
std::vector<ToolCall> ReadToolCalls(Fields& message, const MessagePlace& place);
// Anthropic's content part {"type": "tool_use", "id", "name", "input"}, number `index` of a
// message.
ToolCall ReadToolUse(Fields& part, const MessagePlace& place, size_t index);
// An item of Responses, {"type": "function_call", "call_id", "name", "arguments"}.
ToolCall ReadFunctionCall(Fields& item);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_MESSAGE_CALLS_H_
