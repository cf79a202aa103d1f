#include "server/http/responses.h"

#include <utility>

#include "server/http/chat_messages.h"
#include "server/http/completion_answer.h"
#include "server/http/error_response.h"
#include "server/http/output_form.h"

namespace triptych::server {
namespace {

void ReadInput(Fields& fields, std::vector<ChatMessage>& messages) {
  constexpr const char* kAllowed = "a string, or an array of messages, at least one";
  const Json* const input = fields.Need("input", kAllowed);
  if (input == nullptr) return;
  if (input->is_string()) {
    messages.push_back({ChatRole::kUser, input->get<std::string>()});
    return;
  }
  if (!input->is_array()) return fields.Refuse("input", *input, kAllowed);
  for (ChatMessage& message : ReadMessages(fields, "input")) messages.push_back(std::move(message));
}

// Reads {"format": {"type": ...}, "verbosity": ...}.
void ReadTextFormat(Fields& fields, std::string_view body, CompletionRequest& request) {
  const Json* const text = fields.Any("text");
  if (text == nullptr) return;
  if (!text->is_object()) return fields.Refuse("text", *text, "an object");
  Fields members(*text, "text.");
  const std::string_view object = MemberText(body, "text");
  ReadResponseFormat(members, "format", object, /*nested=*/false, request.params.form);
  if (request.params.form) request.text_format = MemberText(object, "format");
  members.Lack("verbosity", "medium");
  if (const auto error = members.Finish()) fields.Fail(*error);
}

// Members of conversations that the server would have to keep, and of tools.
void ReadUnsupported(Fields& fields) {
  for (const char* const name : {"previous_response_id", "conversation", "prompt", "background",
                                 "include", "tools", "max_tool_calls"}) {
    fields.Lack(name);
  }
  const Json* const choice = fields.Any("tool_choice");
  if (choice != nullptr && *choice != "auto") fields.Lack("tool_choice", "none");
  fields.Lack("truncation", "disabled");
  fields.Lack("top_logprobs", 0);
  fields.Ignore({"parallel_tool_calls", "stream_options"});
}

}  // namespace

Result<ChatRequest> ParseResponses(const JsonBody& body) {
  ChatRequest request;
  CompletionRequest& completion = request.completion;
  completion.prompt_field = "input";
  completion.length_field = "max_output_tokens";
  Fields fields(body.json);
  if (const auto instructions = fields.String("instructions")) {
    request.messages.push_back({ChatRole::kSystem, std::string(*instructions)});
  }
  ReadInput(fields, request.messages);
  ReadGeneration(fields, completion);
  completion.params.max_new_tokens = fields.Integer("max_output_tokens");
  completion.stream = fields.Bool("stream").value_or(false);
  ReadTextFormat(fields, body.text, completion);
  completion.thinking = ReadReasoning(fields);
  ReadUnsupported(fields);
  if (const auto error = fields.Finish()) return *error;
  return request;
}

ResponsesAnswer::ResponsesAnswer(const AnswerStart& start, const CompletionRequest& request)
    : model_(start.model.name),
      id_("resp_" + start.request_id),
      max_output_tokens_(request.params.max_new_tokens),
      temperature_(request.params.sampling.temperature),
      top_p_(request.params.sampling.top_p),
      effort_(request.thinking.effort),
      text_format_(request.text_format),
      splitter_(request.thoughts),
      thoughts_{.type = "reasoning", .part_type = "reasoning_text", .id = "rs_" + start.request_id},
      message_{.type = "message", .part_type = "output_text", .id = "msg_" + start.request_id},
      tokenizer_(*start.model.tokenizer),
      token_splitter_(request.thoughts) {}

JsonOutput ResponsesAnswer::Part(const Item& item, const std::string& text) {
  JsonOutput part = {{"type", item.part_type}, {"text", text}};
  if (part.at("type") != "output_text") return part;
  part["annotations"] = JsonOutput::array();
  part["logprobs"] = JsonOutput::array();
  return part;
}

JsonOutput ResponsesAnswer::ItemJson(const Item& item, bool done) const {
  // The reply may have been cut in its last item.
  const bool is_last = &item == &message_ || message_.text.empty();
  const bool cut = is_last && reason_ == serving::FinishReason::kLength;
  JsonOutput json = {{"id", item.id},
                     {"type", item.type},
                     {"status", !done ? "in_progress"
                                : cut ? "incomplete"
                                      : "completed"}};
  if (&item == &message_) {
    json["role"] = "assistant";
  } else {
    json["summary"] = JsonOutput::array();
  }
  json["content"] = JsonOutput::array();
  if (done) json["content"].push_back(Part(item, item.text));
  return json;
}

JsonOutput ResponsesAnswer::Response(bool done) const {
  const bool cut = reason_ == serving::FinishReason::kLength;
  JsonOutput response = {
      {"id", id_},
      {"object", "response"},
      {"created_at", created_},
      {"status", !done ? "in_progress"
                 : cut ? "incomplete"
                       : "completed"},
      {"background", false},
      {"error", nullptr},
      {"incomplete_details",
       done && cut ? JsonOutput{{"reason", "max_output_tokens"}} : JsonOutput(nullptr)},
      {"instructions", nullptr},
      {"max_output_tokens",
       max_output_tokens_ ? JsonOutput(*max_output_tokens_) : JsonOutput(nullptr)},
      {"model", model_},
      {"output", JsonOutput::array()},
      {"parallel_tool_calls", false},
      {"previous_response_id", nullptr},
      {"reasoning",
       {{"effort", effort_ ? JsonOutput(*effort_) : JsonOutput(nullptr)}, {"summary", nullptr}}},
      {"store", false},
      {"temperature", temperature_ ? JsonOutput(*temperature_) : JsonOutput(nullptr)},
      {"text", {{"format", JsonOutput::parse(text_format_)}}},
      {"tool_choice", "none"},
      {"tools", JsonOutput::array()},
      {"top_p", top_p_ ? JsonOutput(*top_p_) : JsonOutput(nullptr)},
      {"truncation", "disabled"},
      {"usage", nullptr},
      {"metadata", JsonOutput::object()}};
  if (!done) return response;
  if (!thoughts_.text.empty()) response["output"].push_back(ItemJson(thoughts_, done));
  if (!message_.text.empty() || thoughts_.text.empty()) {
    response["output"].push_back(ItemJson(message_, done));
  }
  response["usage"] = {{"input_tokens", usage_.prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", usage_.cached_prompt_tokens}}},
                       {"output_tokens", usage_.generated_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", thought_tokens_}}},
                       {"total_tokens", usage_.prompt_tokens + usage_.generated_tokens},
                       {"kv_cache", KvCacheUsageJson(usage_.kv_cache)}};
  return response;
}

void ResponsesAnswer::Add(const StreamChunk& chunk) { Read(chunk); }

ReasoningSplitter::Parts ResponsesAnswer::Read(const StreamChunk& chunk) {
  ReasoningSplitter::Parts parts =
      splitter_.Push(chunk.text, /*last=*/chunk.completion.has_value());
  thoughts_.text += parts.reasoning;
  message_.text += parts.content;
  for (const int32_t token : chunk.tokens) {
    token_splitter_.Push(tokenizer_.Decode(token), /*last=*/false);
    if (token_splitter_.in_thoughts()) ++thought_tokens_;
  }
  if (chunk.completion) {
    reason_ = chunk.completion->reason;
    usage_ = chunk.completion->usage;
  }
  return parts;
}

std::string ResponsesAnswer::Whole() const { return ToText(Response(/*done=*/true)); }

std::string ResponsesAnswer::Event(const std::string& type, const JsonOutput& members) {
  JsonOutput event = {{"type", type}, {"sequence_number", next_number_++}};
  event.update(members);
  return ServerEvent(type, ToText(event));
}

std::string ResponsesAnswer::ItemEvent(const std::string& type, bool done) {
  return Event(type, {{"output_index", items_ - 1}, {"item", ItemJson(*item_, done)}});
}

std::string ResponsesAnswer::PartEvent(const std::string& type, const std::string& name,
                                       const JsonOutput& value) {
  JsonOutput members = {{"item_id", item_->id}, {"output_index", items_ - 1}, {"content_index", 0}};
  members[name] = value;
  if (name != "part" && item_ == &message_) members["logprobs"] = JsonOutput::array();
  return Event(type, members);
}

std::string ResponsesAnswer::BeginEvents() {
  const JsonOutput response = {{"response", Response(/*done=*/false)}};
  std::string events = Event("response.created", response);
  return events += Event("response.in_progress", response);
}

std::string ResponsesAnswer::DeltaEvents(const Item& item, const std::string& text) {
  std::string events;
  if (item_ != &item) {
    if (item_ != nullptr) events = DoneEvents();
    item_ = &item;
    ++items_;
    events += ItemEvent("response.output_item.added", /*done=*/false);
    events += PartEvent("response.content_part.added", "part", Part(item, ""));
  }
  if (text.empty()) return events;
  return events + PartEvent(std::string("response.") + item.part_type + ".delta", "delta", text);
}

std::string ResponsesAnswer::Events(const StreamChunk& chunk) {
  const ReasoningSplitter::Parts parts = Read(chunk);
  std::string events;
  if (!parts.reasoning.empty()) events = DeltaEvents(thoughts_, parts.reasoning);
  if (!parts.content.empty()) events += DeltaEvents(message_, parts.content);
  return events;
}

std::string ResponsesAnswer::DoneEvents() {
  std::string events =
      PartEvent(std::string("response.") + item_->part_type + ".done", "text", item_->text);
  events += PartEvent("response.content_part.done", "part", Part(*item_, item_->text));
  return events + ItemEvent("response.output_item.done", /*done=*/true);
}

std::string ResponsesAnswer::EndEvents() {
  std::string events;
  if (item_ == nullptr) events = DeltaEvents(message_, "");
  events += DoneEvents();
  const bool cut = reason_ == serving::FinishReason::kLength;
  return events + Event(cut ? "response.incomplete" : "response.completed",
                        {{"response", Response(/*done=*/true)}});
}

std::string ResponsesAnswer::ErrorEvents(const Error& error) {
  const JsonOutput body = ErrorJson(error);
  return Event(
      "error",
      {{"code", body.at("code")}, {"message", body.at("message")}, {"param", body.at("param")}});
}

}  // namespace triptych::server
