#include "server/core/tools/tool_messages.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <span>
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

// Appends a message for each call of `message`, and after it the call's results. A result without
// the id of a call is of the call at its place.
void AddOneByOne(ChatMessage message, std::span<ChatMessage> results,
                 std::vector<ChatMessage>& messages) {
  std::vector<ToolCall> calls = std::exchange(message.tool_calls, {});
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].id.empty()) places.emplace(calls[i].id, i);
  }
  std::vector<std::vector<ChatMessage>> results_of(calls.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const auto place = places.find(results[i].tool_call_id);
    const size_t call = place != places.end() ? place->second : std::min(i, calls.size() - 1);
    results_of[call].push_back(std::move(results[i]));
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    ChatMessage one = std::exchange(message, {ChatRole::kAssistant, ""});
    one.tool_calls.push_back(std::move(calls[i]));
    messages.push_back(std::move(one));
    std::move(results_of[i].begin(), results_of[i].end(), std::back_inserter(messages));
  }
}

// The same conversation with at most one call in a message.
std::vector<ChatMessage> WithOneCallEach(std::vector<ChatMessage> messages) {
  std::vector<ChatMessage> split;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].tool_calls.size() < 2) {
      split.push_back(std::move(messages[i]));
      continue;
    }
    size_t end = i + 1;
    while (end < messages.size() && messages[end].role == ChatRole::kTool) ++end;
    AddOneByOne(std::move(messages[i]), std::span(messages).subspan(i + 1, end - i - 1), split);
    i = end - 1;
  }
  return split;
}

}  // namespace

std::vector<ChatMessage> ForTemplate(std::vector<ChatMessage> messages,
                                     const std::vector<Tool>& tools, const ToolSupport& support) {
  if (support.one_call) messages = WithOneCallEach(std::move(messages));
  std::vector<ChatMessage> shown;
  bool after_result = false;
  for (ChatMessage& message : messages) {
    const bool is_result = message.role == ChatRole::kTool && !support.shows_results;
    if (!support.shows_calls && !message.tool_calls.empty()) {
      AddText(CallsText(support.format, message.tool_calls), "\n", message.content);
      message.tool_calls.clear();
    }
    if (support.calls_have_no_content && !message.tool_calls.empty() && !message.content.empty()) {
      shown.push_back({ChatRole::kAssistant, std::exchange(message.content, "")});
    }
    // Many templates require that users and the assistant alternate.
    const bool joins = after_result && (is_result || message.role == ChatRole::kUser);
    if (is_result) {
      message = {ChatRole::kUser, "<tool_response>\n" + message.content + "\n</tool_response>"};
    }
    if (joins) {
      AddText(message.content, "\n", shown.back().content);
    } else {
      shown.push_back(std::move(message));
    }
    after_result = is_result || joins;
  }
  if (!tools.empty() && !support.shows_tools) {
    AddDescription(DescribeTools(tools, support.format), support.shows_system, shown);
  }
  return shown;
}

}  // namespace triptych::server
