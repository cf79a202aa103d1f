#include "server/core/tools/tool_messages.h"

#include <string>
#include <utility>

namespace triptych::server {
namespace {

void AddText(std::string_view text, std::string_view separator, std::string& content) {
  if (!content.empty()) content += separator;
  content += text;
}

std::string DescribeTools(const std::vector<Tool>& tools, const CallFormat& format) {
  std::string text = "You may call these functions:";
  for (const OrderedJson& tool : ToolsJson(tools)) text += "\n" + tool.at("function").dump();
  const ToolCall example = {.id = {}, .name = "NAME", .arguments = R"({"KEY": VALUE})"};
  return text + "\nTo call one, reply with:\n" + CallsText(format, {example});
}

void AddDescription(const std::string& description, bool shows_system,
                    std::vector<ChatMessage>& messages) {
  constexpr std::string_view kBlankLine = "\n\n";
  const ChatRole role = shows_system ? ChatRole::kSystem : ChatRole::kUser;
  if (messages.empty() || messages.front().role != role) {
    messages.insert(messages.begin(), ChatMessage{role, description});
  } else if (shows_system) {
    AddText(description, kBlankLine, messages.front().content);
  } else {
    messages.front().content = description + std::string(kBlankLine) + messages.front().content;
  }
}

}  // namespace

std::vector<ChatMessage> ForTemplate(std::vector<ChatMessage> messages,
                                     const std::vector<Tool>& tools, const ToolSupport& support) {
  std::vector<ChatMessage> shown;
  bool after_result = false;
  for (ChatMessage& message : messages) {
    const bool is_result = message.role == ChatRole::kTool && !support.shows_results;
    if (!support.shows_calls && !message.tool_calls.empty()) {
      AddText(CallsText(support.format, message.tool_calls), "\n", message.content);
      message.tool_calls.clear();
    }
    if (is_result) {
      const std::string text = "<tool_response>\n" + message.content + "\n</tool_response>";
      if (!after_result) shown.push_back({ChatRole::kUser, ""});
      AddText(text, "\n", shown.back().content);
    } else {
      shown.push_back(std::move(message));
    }
    after_result = is_result;
  }
  if (!tools.empty() && !support.shows_tools) {
    AddDescription(DescribeTools(tools, support.format), support.shows_system, shown);
  }
  return shown;
}

}  // namespace triptych::server
