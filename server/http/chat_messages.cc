#include "server/http/chat_messages.h"

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace triptych::server {
namespace {

std::string At(const std::string& list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

constexpr std::string_view kRoles = R"("system", "developer", "user", "assistant")";
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

// Parts of a content: text, and the assistant's thoughts.
struct Content {
  std::optional<std::string> text;
  std::optional<std::string> thoughts;
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

Content ReadParts(Fields& fields, const std::string& name, const std::string& path,
                  bool may_think) {
  const Json* const content = fields.Need(name, kContents);
  if (content == nullptr) return {};
  if (content->is_string()) return {.text = content->get<std::string>(), .thoughts = {}};
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
    ReadPart(part, path + At(name, i) + ".", may_think, fields, parts);
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

// Reads the members of a message besides its role and content, which change nothing.
void ReadMessageRest(Fields& message) {
  const Json* const type = message.Any("type");
  if (type != nullptr && *type != "message" && *type != "text") {
    message.Refuse("type", *type, "\"message\", \"text\"");
  }
  message.Ignore({"name", "id", "status", "cache_control"});
  for (const char* const name :
       {"tool_calls", "tool_name", "annotations", "citations", "refusal", "audio", "images"}) {
    message.Lack(name);
  }
}

ChatMessage ReadMessage(Fields& message, const std::string& path) {
  const ChatRole role = ReadRole(message);
  const bool thinks = role == ChatRole::kAssistant;
  Content content = ReadParts(message, "content", path, thinks);
  if (thinks) ReadReasoning(message, content.thoughts);
  ReadMessageRest(message);
  return {role, std::move(content.text).value_or(""), std::move(content.thoughts)};
}

// The thoughts of an item of the type "reasoning": its content, or else its summary.
std::string ReadReasoningItem(Fields& item, const std::string& path) {
  item.Ignore({"type", "id", "status"});
  item.Lack("encrypted_content");
  std::string thoughts;
  for (const char* const name : {"content", "summary"}) {
    const Json* const value = item.Any(name);
    if (value == nullptr || value->empty()) continue;
    Content content = ReadParts(item, name, path, /*may_think=*/true);
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

}  // namespace

std::string ReadContent(Fields& fields, const std::string& name, const std::string& path) {
  return ReadParts(fields, name, path, /*may_think=*/false).text.value_or("");
}

std::vector<ChatMessage> ReadMessages(Fields& fields, const std::string& name) {
  constexpr std::string_view kAllowed = "an array of messages, at least one";
  const Json* const array = fields.Need(name, kAllowed);
  if (array == nullptr) return {};
  if (!array->is_array() || array->empty()) {
    fields.Refuse(name, *array, kAllowed);
    return {};
  }
  std::vector<ChatMessage> messages;
  std::optional<std::string> thoughts;  // of the items before the next message
  for (size_t i = 0; i < array->size(); ++i) {
    const Json& object = (*array)[i];
    const std::string path = At(name, i);
    if (!object.is_object()) {
      fields.Refuse(path, object, "an object");
      return {};
    }
    Fields item(object, path + ".");
    const auto type = object.find("type");
    if (type != object.end() && *type == "reasoning") {
      const std::string more = ReadReasoningItem(item, path + ".");
      if (!more.empty()) AddLine(more, thoughts);
    } else {
      AddMessage(ReadMessage(item, path + "."), thoughts, messages);
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
