#include "server/http/messages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/http/chat_messages.h"
#include "server/http/completion_answer.h"
#include "server/http/error_response.h"
#include "server/http/tools.h"

namespace triptych::server {
namespace {

// Reads {"type": "enabled", "budget_tokens": N}, {"type": "disabled"} or {"type": "adaptive"},
// which leaves it to the template. The budget is Anthropic's target and not a bound.
Thinking ReadThinkingType(Fields& fields) {
  constexpr const char* kTypes = R"("enabled", "disabled", "adaptive")";
  const Json* const value = fields.Any("thinking");
  if (value == nullptr) return {};
  if (!value->is_object()) {
    fields.Refuse("thinking", *value, "an object");
    return {};
  }
  Fields members(*value, "thinking.");
  Thinking thinking = {.enabled = {}, .effort = {}, .field = "thinking.type"};
  const Json* const type = members.Need("type", kTypes);
  if (type != nullptr && (*type == "enabled" || *type == "disabled")) {
    thinking.enabled = *type == "enabled";
  } else if (type != nullptr && *type != "adaptive") {
    members.Refuse("type", *type, kTypes);
  }
  const auto budget = members.Integer("budget_tokens");
  if (budget && *budget < 1) {
    members.Refuse("budget_tokens", *budget, "an integer, at least 1");
  }
  members.Lack("display", "summarized");
  if (const auto error = members.Finish()) fields.Fail(*error);
  return thinking;
}

// Reads {"effort": LEVEL}, the level of thoughts that are enabled.
void ReadOutputConfig(Fields& fields, Thinking& thinking) {
  const Json* const value = fields.Any("output_config");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.Refuse("output_config", *value, "an object");
  Fields members(*value, "output_config.");
  if (const Json* const effort = members.Any("effort")) {
    if (*effort == "low" || *effort == "medium" || *effort == "high" || *effort == "max") {
      thinking.effort = effort->get<std::string>();
    } else {
      members.Refuse("effort", *effort, R"("low", "medium", "high", "max")");
    }
  }
  members.Lack("format");
  if (const auto error = members.Finish()) fields.Fail(*error);
}

std::string MessageEvent(const std::string& type, const JsonOutput& members) {
  JsonOutput event = {{"type", type}};
  event.update(members);
  return ServerEvent(type, ToText(event));
}

// Types of content blocks, and the members that have their text.
constexpr const char* kText = "text";
constexpr const char* kThinking = "thinking";

JsonOutput Block(const std::string& name, const std::string& text) {
  JsonOutput block = {{"type", name}, {name, text}};
  if (name == kThinking) block["signature"] = "";
  return block;
}

JsonOutput CallBlock(const std::string& id, const std::string& name, JsonOutput input) {
  return {{"type", "tool_use"}, {"id", id}, {"name", name}, {"input", std::move(input)}};
}

JsonOutput UsageOf(const serving::RequestUsage& usage) {
  // Anthropic's input tokens are those that were not read from the cache.
  return {{"input_tokens", usage.prompt_tokens - usage.cached_prompt_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_prompt_tokens},
          {"output_tokens", usage.generated_tokens},
          {"kv_cache", KvCacheUsageJson(usage.kv_cache)}};
}

}  // namespace

Result<ChatRequest> ParseMessages(const JsonBody& body, bool counts) {
  ChatRequest request;
  CompletionRequest& completion = request.completion;
  completion.prompt_field = "messages";
  Fields fields(body.json);
  if (fields.Any("system") != nullptr) {
    request.messages.push_back({ChatRole::kSystem, ReadContent(fields, "system", "")});
  }
  for (ChatMessage& message : ReadMessages(fields, "messages", body.text)) {
    request.messages.push_back(std::move(message));
  }
  // A last message of the assistant is the beginning of the reply, which may be empty.
  const auto is_last_reply = [&] {
    return !request.messages.empty() && request.messages.back().role == ChatRole::kAssistant;
  };
  if (is_last_reply() && !request.messages.back().tool_calls.empty()) {
    fields.Fail(InvalidArgument("messages",
                                "end with a call of a tool, which cannot be continued; allowed: "
                                "its result after it"));
  }
  if (is_last_reply() && request.messages.back().content.empty() && request.messages.size() > 1) {
    if (request.messages.back().reasoning) {
      fields.Fail(InvalidArgument("messages",
                                  "end with thoughts of the assistant, which cannot be continued; "
                                  "allowed: a text after them, or a message of the user"));
    }
    request.messages.pop_back();
  }
  if (is_last_reply()) {
    request.options.add_generation_prompt = false;
    request.options.continue_final_message = true;
  }
  ReadGeneration(fields, completion);
  ReadStop(fields, "stop_sequences", completion);
  if (!counts) fields.Need("max_tokens", "an integer, at least 1");
  completion.params.max_new_tokens = fields.Integer("max_tokens");
  completion.stream = fields.Bool("stream").value_or(false);
  request.tools = ReadMessagesTools(fields, body.text);
  completion.thinking = ReadThinkingType(fields);
  ReadOutputConfig(fields, completion.thinking);
  for (const char* const name : {"mcp_servers", "container", "context_management"}) {
    fields.Lack(name);
  }
  fields.Ignore({"cache_control"});
  if (const auto error = fields.Finish()) return *error;
  return request;
}

MessagesAnswer::MessagesAnswer(const AnswerStart& start, const CompletionRequest& request)
    : model_(start.model.name),
      id_("msg_" + start.request_id),
      stops_(request.params.stop),
      parser_(request.reply) {
  usage_.prompt_tokens = std::ssize(start.prompts.front().tokens);
}

JsonOutput MessagesAnswer::Stop() const {
  if (!completion_) return {{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
  const std::optional<std::string>& stop = completion_->stop;
  if (stop && std::find(stops_.begin(), stops_.end(), *stop) != stops_.end()) {
    return {{"stop_reason", "stop_sequence"}, {"stop_sequence", *stop}};
  }
  const bool cut = completion_->reason == serving::FinishReason::kLength;
  const char* const reason = cut ? "max_tokens" : calls_ > 0 ? "tool_use" : "end_turn";
  return {{"stop_reason", reason}, {"stop_sequence", nullptr}};
}

JsonOutput MessagesAnswer::Message() const {
  JsonOutput message = {{"id", id_},
                        {"type", "message"},
                        {"role", "assistant"},
                        {"model", model_},
                        {"content", JsonOutput::array()}};
  message.update(Stop());
  message["usage"] = UsageOf(usage_);
  return message;
}

ReplyPieces MessagesAnswer::Read(const StreamChunk& chunk) {
  if (chunk.completion) {
    completion_ = chunk.completion;
    usage_ = chunk.completion->usage;
  }
  return parser_.Push(chunk.text, /*last=*/chunk.completion.has_value());
}

void MessagesAnswer::Add(const StreamChunk& chunk) {
  for (const auto& [kind, text] : Read(chunk)) {
    AddPiece(kind, text, pieces_);
    if (kind == ReplyPiece::Kind::kCall) ++calls_;
  }
}

std::string MessagesAnswer::Whole() const {
  JsonOutput message = Message();
  JsonOutput& content = message["content"];
  size_t calls = 0;
  for (const auto& [kind, text] : pieces_) {
    switch (kind) {
      case ReplyPiece::Kind::kThoughts:
        content.push_back(Block(kThinking, text));
        break;
      case ReplyPiece::Kind::kContent:
        content.push_back(Block(kText, text));
        break;
      case ReplyPiece::Kind::kCall:
        content.push_back(CallBlock(ToolCallId(id_, 0, calls++), text, JsonOutput::object()));
        break;
      case ReplyPiece::Kind::kArguments:
        // Arguments that are cut off are none.
        content.back()["input"] =
            ArgumentsObject(text, CallParser::kMaxGrammarDepth).value_or(JsonOutput::object());
        break;
    }
  }
  if (content.empty()) content.push_back(Block(kText, ""));
  return ToText(message);
}

std::string MessagesAnswer::BeginEvents() {
  parser_.StreamArguments();
  return MessageEvent("message_start", {{"message", Message()}});
}

std::string MessagesAnswer::BeginBlock(const std::string& name, const JsonOutput& block) {
  std::string events;
  if (blocks_ > 0) events = MessageEvent("content_block_stop", {{"index", blocks_ - 1}});
  block_ = name;
  return events +
         MessageEvent("content_block_start", {{"index", blocks_++}, {"content_block", block}});
}

std::string MessagesAnswer::DeltaEvent(const JsonOutput& delta) const {
  return MessageEvent("content_block_delta", {{"index", blocks_ - 1}, {"delta", delta}});
}

std::string MessagesAnswer::TextEvents(const std::string& name, const std::string& text) {
  std::string events;
  if (block_ != name) events = BeginBlock(name, Block(name, ""));
  if (text.empty()) return events;
  return events + DeltaEvent({{"type", name + "_delta"}, {name, text}});
}

std::string MessagesAnswer::Events(const StreamChunk& chunk) {
  std::string events;
  for (const auto& [kind, text] : Read(chunk)) {
    switch (kind) {
      case ReplyPiece::Kind::kThoughts:
        events += TextEvents(kThinking, text);
        break;
      case ReplyPiece::Kind::kContent:
        events += TextEvents(kText, text);
        break;
      case ReplyPiece::Kind::kCall:
        events +=
            BeginBlock("", CallBlock(ToolCallId(id_, 0, calls_++), text, JsonOutput::object()));
        break;
      case ReplyPiece::Kind::kArguments:
        events += DeltaEvent({{"type", "input_json_delta"}, {"partial_json", text}});
        break;
    }
  }
  return events;
}

std::string MessagesAnswer::EndEvents() {
  std::string events;
  if (blocks_ == 0) events = TextEvents(kText, "");
  return events + MessageEvent("content_block_stop", {{"index", blocks_ - 1}}) +
         MessageEvent("message_delta", {{"delta", Stop()}, {"usage", UsageOf(usage_)}}) +
         MessageEvent("message_stop", JsonOutput::object());
}

std::string MessagesAnswer::ErrorEvents(const Error& error) {
  return ServerEvent("error", ErrorBody(error));
}

}  // namespace triptych::server
