#include "server/core/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <utility>

#include "engine/base/quoted.h"
#include "engine/jinja/from_json.h"
#include "engine/jinja/text_functions.h"

namespace triptych::server {
namespace {

using jinja::Source;
using jinja::Value;

// Texts, in the template's own text alone, of begin and end tokens that have none: characters for
// private use.
constexpr std::string_view kBeginMark = "\xF3\xB0\x80\x81";
constexpr std::string_view kEndMark = "\xF3\xB0\x80\x82";

// Messages of errors from templates.
constexpr size_t kShownErrorBytes = 400;

// Variables that a request cannot set.
constexpr std::array<std::string_view, 7> kReserved = {
    "messages",  "tools",    "documents", "add_generation_prompt", "continue_final_message",
    "bos_token", "eos_token"};

std::string_view Stripped(std::string_view text) {
  const auto [begin, end] = jinja::Strip(text);
  return text.substr(begin, end - begin);
}

// The arguments as the template takes them. Text that is no JSON object stays text.
Value ArgumentsValue(const std::string& arguments, bool as_text) {
  constexpr size_t kMaxDepth = 48;  // a value has less than 64 levels, with those around it
  if (!as_text) {
    if (const auto object = ArgumentsObject(arguments, kMaxDepth)) {
      return jinja::FromJson(*object, Source::kData);
    }
  }
  return Value::Of(arguments, Source::kData);
}

Value CallsValue(const std::vector<ToolCall>& calls, bool text_arguments) {
  const auto data = [](std::string_view text) { return Value::Of(text, Source::kData); };
  std::vector<Value> values;
  for (const ToolCall& call : calls) {
    std::vector<std::pair<std::string, Value>> function = {
        {"name", data(call.name)}, {"arguments", ArgumentsValue(call.arguments, text_arguments)}};
    std::vector<std::pair<std::string, Value>> members = {
        {"id", data(call.id)},
        {"type", Value::Of("function", Source::kTemplate)},
        {"function", Value::Of(std::move(function), Source::kTemplate)}};
    values.push_back(Value::Of(std::move(members), Source::kTemplate));
  }
  return Value::Of(std::move(values));
}

Value MessageValue(const ChatMessage& message, const ToolSupport& tools) {
  const bool no_content = tools.calls_have_no_content && !message.tool_calls.empty();
  std::vector<std::pair<std::string, Value>> members = {
      {"role", Value::Of(Name(message.role), Source::kTemplate)},
      {"content", no_content ? Value::None() : Value::Of(message.content, Source::kData)}};
  if (message.reasoning) {
    members.emplace_back("reasoning_content", Value::Of(*message.reasoning, Source::kData));
  }
  if (!message.tool_calls.empty()) {
    members.emplace_back("tool_calls", CallsValue(message.tool_calls, tools.text_arguments));
  }
  for (const auto& [name, text] :
       {std::pair("tool_call_id", &message.tool_call_id), std::pair("name", &message.name)}) {
    if (!text->empty()) members.emplace_back(name, Value::Of(*text, Source::kData));
  }
  return Value::Of(std::move(members), Source::kTemplate);
}

size_t BytesOf(std::span<const ChatMessage> messages, const ChatOptions& options) {
  size_t bytes = options.variables.is_null() ? 0 : options.variables.dump().size();
  if (!options.tools.is_null()) bytes += options.tools.dump().size();
  for (const ChatMessage& message : messages) {
    bytes += 64 + message.content.size() + message.reasoning.value_or("").size() +
             message.tool_call_id.size() + message.name.size();
    for (const ToolCall& call : message.tool_calls) {
      bytes += 64 + call.id.size() + call.name.size() + call.arguments.size();
    }
  }
  return bytes;
}

// The markers <|...|> in a template that the tokenizer does not encode to one token.
std::vector<std::string> MissingMarkers(std::string_view text, const Tokenizer& tokenizer) {
  constexpr size_t kMaxMarkerBytes = 64;
  constexpr size_t kMaxMarkers = 8;
  std::vector<std::string> missing;
  for (size_t i = text.find("<|"); i != text.npos && missing.size() < kMaxMarkers;
       i = text.find("<|", i + 2)) {
    const std::string_view start = text.substr(i, kMaxMarkerBytes);
    const size_t end = start.find("|>", 2);
    if (end == start.npos) continue;
    const std::string marker(start.substr(0, end + 2));
    if (marker.find_first_of(" '\"\n") != marker.npos) continue;
    if (tokenizer.Encode(marker, SpecialTokens::kParsed).size() == 1) continue;
    if (std::find(missing.begin(), missing.end(), marker) == missing.end()) {
      missing.push_back(marker);
    }
  }
  return missing;
}

// The prompt up to the end of the last message's text, which is the last piece of data that ends
// with it; an error if the prompt does not show the text. Template text never counts as the
// message's.
Result<jinja::Text> Continued(const jinja::Text& prompt, const std::string& content,
                              const std::string& field) {
  const std::string_view stripped = Stripped(content);
  size_t end = std::string::npos, begin = 0;
  prompt.ForEachRun([&](std::string_view run, Source source) {
    const size_t kept = run.size() - jinja::TrailingSpaces(run);
    if (source == Source::kData && !stripped.empty() && run.substr(0, kept).ends_with(stripped)) {
      end = begin + kept;
    }
    begin += run.size();
  });
  if (end == std::string::npos) {
    return InvalidArgument(field,
                           "is not in the prompt, so that it cannot be continued; allowed "
                           "with continue_final_message: text that the chat template shows");
  }
  // The blanks at the end of the text, unless the template removes them.
  const std::string_view rest =
      std::string_view(content).substr(content.find(stripped) + stripped.size());
  const bool keeps = std::string_view(prompt.bytes()).substr(end).starts_with(rest);
  return prompt.Sub(0, end + (keeps ? rest.size() : 0));
}

}  // namespace

ChatTemplate::ChatTemplate(ChatTemplateText text, const Tokenizer& tokenizer,
                           const SpecialTexts& special)
    : name_(std::move(text.name)),
      reasons_(text.text.find("<think>") != std::string::npos ||
               text.text.find("</think>") != std::string::npos) {
  const auto add = [&](const std::string& name, std::optional<int32_t> token,
                       std::string_view mark) {
    if (special.contains(name) || !token) return;
    const std::string_view own = tokenizer.SpecialText(*token);
    special_.emplace_back(name, Value::Of(own.empty() ? mark : own, Source::kTemplate));
  };
  for (const auto& [name, value] : special) {
    special_.emplace_back(name, Value::Of(value, Source::kTemplate));
  }
  add("bos_token", tokenizer.begin_token(), kBeginMark);
  add("eos_token", tokenizer.end_token(), kEndMark);
  try {
    template_.emplace(text.text);
  } catch (const jinja::SyntaxError& error) {
    error_ = Printable(error.what(), kShownErrorBytes);
    return;
  }
  missing_markers_ = MissingMarkers(text.text, tokenizer);
  end_of_turn_ = FindEndOfTurn(tokenizer);
  FindToolSupport(text.text, tokenizer);
}

// The token or marker that the template writes after a reply.
std::string ChatTemplate::FindEndOfTurn(const Tokenizer& tokenizer) const {
  constexpr std::string_view kReply = "a reply";
  const std::array<ChatMessage, 2> messages = {
      ChatMessage{ChatRole::kUser, "a question"},
      ChatMessage{ChatRole::kAssistant, std::string(kReply)}};
  const Result<jinja::Text> prompt = RenderOnce(messages, {}, /*add_generation_prompt=*/false);
  if (!prompt.ok()) return "";
  const size_t found = prompt.value().bytes().rfind(kReply);
  if (found == std::string::npos) return "";
  const std::string after = prompt.value().bytes().substr(found + kReply.size());
  size_t first = std::min(after.find(kBeginMark), after.find(kEndMark));
  std::string end_of_turn;
  for (const SpecialToken& token : tokenizer.special_tokens()) {
    const size_t at = after.find(token.text);
    if (token.text.empty() || at >= first) continue;
    first = at;
    const auto ends = tokenizer.end_tokens();
    end_of_turn = std::find(ends.begin(), ends.end(), token.token) == ends.end() ? token.text : "";
  }
  if (first != std::string::npos) return end_of_turn;
  // Without special tokens, a marker of letters or a blank line.
  const size_t marker_end = after.find("|>");
  if (after.starts_with("<|") && marker_end != std::string::npos) {
    return after.substr(0, marker_end + 2);
  }
  return after == "\n\n" ? after : "";
}

void ChatTemplate::FindToolSupport(const std::string& text, const Tokenizer& tokenizer) {
  constexpr std::string_view kFunction = "probe_function", kArgument = "probe_argument";
  constexpr std::string_view kResult = "probe_result", kSystem = "probe_system";
  const Tool tool = {.name = std::string(kFunction),
                     .description = "Does.",
                     .parameters = {{"type", "object"}, {"properties", OrderedJson::object()}}};
  const auto shows = [&](const std::vector<ChatMessage>& messages, bool with_tools,
                         std::string_view shown) {
    ChatOptions options;
    if (with_tools) options.tools = ToolsJson({tool});
    const Result<jinja::Text> prompt = RenderOnce(messages, options, true);
    return prompt.ok() && prompt.value().bytes().find(shown) != std::string::npos;
  };
  const ChatMessage question = {ChatRole::kUser, "a question"};
  ChatMessage calling = {ChatRole::kAssistant, ""};
  calling.tool_calls = {
      {.id = "probe0000", .name = std::string(kFunction), .arguments = R"({"probe_argument": 1})"}};
  ChatMessage result = {ChatRole::kTool, std::string(kResult)};
  result.tool_call_id = "probe0000";
  result.name = kFunction;
  tools_.shows_tools = shows({question}, true, kFunction);
  tools_.shows_system =
      shows({{ChatRole::kSystem, std::string(kSystem)}, question}, false, kSystem);
  for (const auto& [no_content, as_text] : {std::pair(false, false), std::pair(false, true),
                                            std::pair(true, false), std::pair(true, true)}) {
    tools_.calls_have_no_content = no_content;
    tools_.text_arguments = as_text;
    tools_.shows_calls = shows({question, calling, result}, true, kArgument);
    if (tools_.shows_calls) break;
  }
  if (tools_.shows_calls) {
    ChatMessage calls = calling, second = result;
    calls.tool_calls.push_back(calls.tool_calls.front());
    calls.tool_calls.back().id = second.tool_call_id = "probe0001";
    calls.tool_calls.back().arguments = R"({"probe_second": 1})";
    tools_.one_call = !shows({question, calls, result, second}, true, "probe_second");
  } else {
    calling.tool_calls.clear();
  }
  // Calls without marks are JSON, as Llama's.
  const CallFormat without_marks = {tools_.shows_calls ? CallFormat::Kind::kLlama
                                                       : CallFormat::Kind::kTagged};
  tools_.format = FormatOf(text).value_or(without_marks);
  tools_.shows_results = shows({question, calling, result}, tools_.shows_tools, kResult);
  for (const std::string& marker : MarkersOf(tools_.format)) {
    for (const SpecialToken& token : tokenizer.special_tokens()) {
      if (token.text == marker) tools_.marker_tokens.push_back(token.token);
    }
  }
}

Result<jinja::Text> ChatTemplate::RenderOnce(std::span<const ChatMessage> messages,
                                             const ChatOptions& options,
                                             bool add_generation_prompt) const {
  std::vector<Value> values;
  values.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    values.push_back(MessageValue(message, tools_));
  }
  jinja::Variables variables = special_;
  variables.emplace_back("messages", Value::Of(std::move(values)));
  variables.emplace_back("tools", jinja::FromJson(options.tools, Source::kData));
  variables.emplace_back("documents", Value::None());
  variables.emplace_back("add_generation_prompt", Value::Of(add_generation_prompt));
  for (const auto& [name, value] : options.variables.items()) {
    variables.emplace_back(name, jinja::FromJson(value, Source::kData));
  }
  const size_t bytes = BytesOf(messages, options);
  jinja::Limits limits;
  limits.max_steps += 4 * static_cast<int64_t>(bytes);
  limits.max_bytes += 8 * bytes;
  limits.max_output_bytes += 2 * bytes;
  try {
    return template_->Render(variables, limits, std::time(nullptr));
  } catch (const jinja::RenderError& error) {
    return InvalidArgument("messages",
                           std::string(error.kind() == jinja::RenderError::kRaised
                                           ? "are refused by the chat template: "
                                           : "cannot be rendered by the chat template: ") +
                               Printable(error.what(), kShownErrorBytes));
  }
}

Result<jinja::Text> ChatTemplate::Render(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const {
  for (const auto& [name, value] : options.variables.items()) {
    if (std::find(kReserved.begin(), kReserved.end(), name) == kReserved.end()) continue;
    return InvalidArgument("chat_template_kwargs." + name,
                           "is set; allowed: variables that the server does not set itself");
  }
  const bool replied = !messages.empty() && messages.back().role == ChatRole::kAssistant;
  const int64_t last_index =
      options.last_message ? static_cast<int64_t>(*options.last_message) : std::ssize(messages) - 1;
  const std::string last = "messages[" + std::to_string(last_index) + "]";
  if (options.continue_final_message) {
    if (options.add_generation_prompt) {
      return InvalidArgument("add_generation_prompt",
                             "is true; allowed with continue_final_message: false");
    }
    if (!replied) {
      return InvalidArgument(last + ".role",
                             "is not \"assistant\"; allowed with "
                             "continue_final_message: \"assistant\"");
    }
  }
  Result<jinja::Text> prompt = RenderOnce(messages, options, options.add_generation_prompt);
  if (!prompt.ok()) return prompt;
  if (options.continue_final_message) {
    return Continued(prompt.value(), messages.back().content, last + ".content");
  }
  if (replied && options.add_generation_prompt) {
    const Result<jinja::Text> ended = RenderOnce(messages, options, false);
    if (ended.ok() && ended.value().bytes() == prompt.value().bytes()) {
      return InvalidArgument(last + ".role",
                             "is \"assistant\", after which the chat template begins no new turn; "
                             "allowed: \"user\", or continue_final_message");
    }
  }
  return prompt;
}

int64_t TextBytes(const jinja::Text& prompt) {
  auto bytes = static_cast<int64_t>(prompt.size());
  prompt.ForEachRun([&](std::string_view run, Source source) {
    if (source == Source::kData) return;
    for (const std::string_view mark : {kBeginMark, kEndMark}) {
      for (size_t i = run.find(mark); i != run.npos; i = run.find(mark, i + mark.size())) {
        bytes -= static_cast<int64_t>(mark.size());
      }
    }
  });
  return bytes;
}

std::vector<int32_t> Encode(const jinja::Text& prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  std::vector<TextPart> parts;  // adjacent parts are encoded as one text
  const auto flush = [&] {
    const std::vector<int32_t> encoded = tokenizer.Encode(parts);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
    parts.clear();
  };
  prompt.ForEachRun([&](std::string_view run, Source source) {
    if (source == Source::kData) {
      parts.push_back({run});
      return;
    }
    while (true) {
      const size_t mark = std::min(run.find(kBeginMark), run.find(kEndMark));
      if (mark > 0) parts.push_back({run.substr(0, mark), SpecialTokens::kParsed});
      if (mark == run.npos) break;
      flush();
      const bool begins = run.substr(mark).starts_with(kBeginMark);
      tokens.push_back(begins ? tokenizer.begin_token().value_or(tokenizer.end_token())
                              : tokenizer.end_token());
      run.remove_prefix(mark + kBeginMark.size());
      if (run.empty()) break;
    }
  });
  flush();
  return tokens;
}

bool EndsInThoughts(const jinja::Text& prompt) {
  const std::string_view text = prompt.bytes();
  return text.substr(0, text.size() - jinja::TrailingSpaces(text)).ends_with("<think>");
}

}  // namespace triptych::server
