#include "server/http/chat_messages.h"

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "server/http/message_calls.h"

namespace triptych::server {
namespace {

constexpr std::string_view kRoles = R"("system", "developer", "user", "assistant", "tool")";
constexpr std::string_view kContents = "a string, or an array of text parts, at least one";

// Appends a part's text as a line.
void AddLine(std::string_view line, std::optional<std::string>& text) {
  if (!text) {
    text.emplace(line);
    return;
  }
  *text += '\n';
  *text += line;
}

// Parts of a content: text, the assistant's thoughts and calls, and the user's results of calls.
struct Content {
  std::optional<std::string> text = {};
  std::optional<std::string> thoughts = {};
  std::vector<ToolCall> calls = {};
  std::vector<ChatMessage> results = {};
};

// Reads a content part. Its type is "text", or as in /v1/responses "input_text", "output_text",
// "reasoning_text" or "summary_text", or as in /v1/messages "thinking". `path`: the part's path and
// a '.'.
void ReadPart(const Json& part, const std::string& path, bool may_think, Fields& message,
              Content& content) {
  Fields fields(part, path);
  const Json* const type = fields.Need("type", "\"text\"");
  const bool thinks = may_think && type != nullptr &&
                      (*type == "thinking" || *type == "reasoning_text" || *type == "summary_text");
  if (type != nullptr && !thinks && *type != "text" && *type != "input_text" &&
      *type != "output_text") {
    fields.Refuse("type", *type, "\"text\"");
  }
  fields.Ignore({"cache_control"});
  for (const char* const name : {"annotations", "citations", "logprobs"}) fields.Lack(name);
  if (thinks) fields.Ignore({"signature"});
  const char* const name = thinks && *type == "thinking" ? "thinking" : "text";
  fields.Need(name, "a string");
  AddLine(fields.String(name).value_or(""), thinks ? content.thoughts : content.text);
  if (auto error = fields.Finish()) message.Fail(std::move(*error));
}

// The owner of a content. Without a message, it has no calls and results.
struct ContentPlace {
  std::string path;  // of the content, with a '.'
  bool may_think = false;
  const MessagePlace* message = nullptr;
  ChatRole role = ChatRole::kUser;
};

Content ReadParts(Fields& fields, const std::string& name, const ContentPlace& place);

// Reads Anthropic's part {"type": "tool_result", "tool_use_id", "content"}.
ChatMessage ReadToolResult(Fields& part, const std::string& path) {
  part.Ignore({"type", "is_error", "cache_control"});
  ChatMessage result;
  result.role = ChatRole::kTool;
  result.tool_call_id = part.String("tool_use_id").value_or("");
  const Json* const content = part.Any("content");
  if (content != nullptr && !content->empty()) {
    result.content = ReadParts(part, "content", {.path = path}).text.value_or("");
  }
  return result;
}

// Reads part `index` if it is a call or a result.
bool ReadCallPart(const Json& part, const std::string& path, size_t index,
                  const ContentPlace& place, Fields& message, Content& content) {
  if (place.message == nullptr) return false;
  const auto type = part.find("type");
  const bool calls =
      type != part.end() && *type == "tool_use" && place.role == ChatRole::kAssistant;
  const bool results =
      type != part.end() && *type == "tool_result" && place.role == ChatRole::kUser;
  if (!calls && !results) return false;
  Fields fields(part, path);
  if (calls) {
    content.calls.push_back(ReadToolUse(fields, *place.message, index));
  } else {
    content.results.push_back(ReadToolResult(fields, path));
  }
  if (auto error = fields.Finish()) message.Fail(std::move(*error));
  return true;
}

Content ReadParts(Fields& fields, const std::string& name, const ContentPlace& place) {
  const Json* const content = fields.Need(name, kContents);
  if (content == nullptr) return {};
  if (content->is_string()) return {.text = content->get<std::string>()};
  if (!content->is_array() || content->empty()) {
    fields.Refuse(name, *content, kContents);
    return {};
  }
  Content parts;
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    if (!part.is_object()) {
      fields.Refuse(At(name, i), part, "an object of the type \"text\"");
      return {};
    }
    const std::string path = place.path + At(name, i) + ".";
    if (ReadCallPart(part, path, i, place, fields, parts)) continue;
    ReadPart(part, path, place.may_think, fields, parts);
  }
  return parts;
}

ChatRole ReadRole(Fields& message) {
  const Json* const value = message.Need("role", kRoles);
  if (value == nullptr) return {};
  const std::string name = value->is_string() ? value->get<std::string>() : "";
  if (name == "developer") return ChatRole::kSystem;  // newer clients' name for system
  const auto role = Names<ChatRole>().find(name);
  if (role != Names<ChatRole>().end()) return role->second;
  message.Refuse("role", *value, kRoles);
  return {};
}

// The names of vLLM, newer vLLM and Ollama.
void ReadReasoning(Fields& message, std::optional<std::string>& thoughts) {
  for (const char* const name : {"reasoning_content", "reasoning", "thinking"}) {
    const auto reasoning = message.String(name);
    if (reasoning && !thoughts) thoughts = std::string(*reasoning);
  }
}

// Reads the members of a message besides its role, content and calls, which change nothing.
void ReadMessageRest(Fields& message, ChatRole role) {
  const Json* const type = message.Any("type");
  if (type != nullptr && *type != "message" && *type != "text") {
    message.Refuse("type", *type, "\"message\", \"text\"");
  }
  message.Ignore({"name", "id", "status", "cache_control"});
  if (role != ChatRole::kAssistant) message.Lack("tool_calls");
  if (role != ChatRole::kTool) {
    for (const char* const name : {"tool_call_id", "tool_name"}) message.Lack(name);
  }
  for (const char* const name : {"annotations", "citations", "refusal", "audio", "images"}) {
    message.Lack(name);
  }
}

// Reads a message, and before it those of the results in its content.
std::vector<ChatMessage> ReadMessage(Fields& message, const MessagePlace& place) {
  ChatMessage read;
  read.role = ReadRole(message);
  const bool thinks = read.role == ChatRole::kAssistant;
  if (thinks) read.tool_calls = ReadToolCalls(message, place);
  Content content;
  if (read.tool_calls.empty() || message.Any("content") != nullptr) {
    content =
        ReadParts(message, "content",
                  {.path = place.path, .may_think = thinks, .message = &place, .role = read.role});
  }
  const bool is_result = !content.results.empty() && !content.text;
  read.content = std::move(content.text).value_or("");
  read.reasoning = std::move(content.thoughts);
  for (ToolCall& call : content.calls) read.tool_calls.push_back(std::move(call));
  if (thinks) ReadReasoning(message, read.reasoning);
  if (read.role == ChatRole::kTool) {
    read.tool_call_id = message.String("tool_call_id").value_or("");
    for (const char* const name : {"name", "tool_name"}) {  // tool_name is Ollama's
      if (read.name.empty()) read.name = message.String(name).value_or("");
    }
  }
  ReadMessageRest(message, read.role);
  std::vector<ChatMessage> messages = std::move(content.results);
  if (!is_result) messages.push_back(std::move(read));
  return messages;
}

// The thoughts of an item of the type "reasoning": its content, or else its summary.
std::string ReadReasoningItem(Fields& item, const std::string& path) {
  item.Ignore({"type", "id", "status"});
  item.Lack("encrypted_content");
  std::string thoughts;
  for (const char* const name : {"content", "summary"}) {
    const Json* const value = item.Any(name);
    if (value == nullptr || value->empty()) continue;
    Content content = ReadParts(item, name, {.path = path, .may_think = true});
    if (content.text) AddLine(*content.text, content.thoughts);
    if (thoughts.empty()) thoughts = std::move(content.thoughts).value_or("");
  }
  return thoughts;
}

// Appends a message. `thoughts` of items before it are those of the assistant, which may have said
// nothing after them.
void AddMessage(ChatMessage message, std::optional<std::string>& thoughts,
                std::vector<ChatMessage>& messages) {
  std::optional<std::string> before = std::exchange(thoughts, std::nullopt);
  if (before && message.role != ChatRole::kAssistant) {
    messages.push_back({ChatRole::kAssistant, "", std::move(before)});
  } else if (before) {
    if (message.reasoning) AddLine(*message.reasoning, before);
    message.reasoning = std::move(before);
  }
  messages.push_back(std::move(message));
}

// Appends a call that is an item of its own to the assistant's message, which may have begun.
void AddCall(ToolCall call, std::optional<std::string>& thoughts,
             std::vector<ChatMessage>& messages) {
  if (thoughts || messages.empty() || messages.back().role != ChatRole::kAssistant) {
    ChatMessage message;
    message.role = ChatRole::kAssistant;
    AddMessage(std::move(message), thoughts, messages);
  }
  messages.back().tool_calls.push_back(std::move(call));
}

// Reads an item of Responses, {"type": "function_call_output", "call_id", "output"}.
ChatMessage ReadCallOutput(Fields& item, const std::string& path) {
  item.Ignore({"type", "id", "status"});
  ChatMessage result;
  result.role = ChatRole::kTool;
  result.tool_call_id = item.String("call_id").value_or("");
  result.content = ReadParts(item, "output", {.path = path}).text.value_or("");
  return result;
}

}  // namespace

std::string ReadContent(Fields& fields, const std::string& name, const std::string& path) {
  return ReadParts(fields, name, {.path = path}).text.value_or("");
}

std::vector<ChatMessage> ReadMessages(Fields& fields, const std::string& name,
                                      std::string_view object) {
  constexpr std::string_view kAllowed = "an array of messages, at least one";
  const Json* const array = fields.Need(name, kAllowed);
  if (array == nullptr) return {};
  if (!array->is_array() || array->empty()) {
    fields.Refuse(name, *array, kAllowed);
    return {};
  }
  std::vector<ChatMessage> messages;
  OrderedMessages ordered(object, name);
  const bool has_items = name == "input";  // of Responses
  std::optional<std::string> thoughts;     // of the items before the next message
  for (size_t i = 0; i < array->size(); ++i) {
    const Json& message = (*array)[i];
    const std::string path = At(name, i);
    if (!message.is_object()) {
      fields.Refuse(path, message, "an object");
      return {};
    }
    Fields item(message, path + ".");
    const Json type = message.value("type", Json());
    if (type == "reasoning") {
      const std::string more = ReadReasoningItem(item, path + ".");
      if (!more.empty()) AddLine(more, thoughts);
    } else if (has_items && type == "function_call") {
      AddCall(ReadFunctionCall(item), thoughts, messages);
    } else if (has_items && type == "function_call_output") {
      AddMessage(ReadCallOutput(item, path + "."), thoughts, messages);
    } else {
      for (ChatMessage& read : ReadMessage(item, {ordered, i, path + "."})) {
        AddMessage(std::move(read), thoughts, messages);
      }
    }
    if (auto error = item.Finish()) {
      fields.Fail(std::move(*error));
      return {};
    }
  }
  if (thoughts) messages.push_back({ChatRole::kAssistant, "", std::move(thoughts)});
  return messages;
}

}  // namespace triptych::server
