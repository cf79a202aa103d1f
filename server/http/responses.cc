#include "server/http/responses.h"

#include <algorithm>
#include <utility>

#include "server/http/chat_messages.h"
#include "server/http/completion_answer.h"
#include "server/http/error_response.h"
#include "server/http/output_form.h"
#include "server/http/tools.h"

namespace triptych::server {
namespace {

void ReadInput(Fields& fields, std::string_view body, std::vector<ChatMessage>& messages) {
  constexpr const char* kAllowed = "a string, or an array of messages, at least one";
  const Json* const input = fields.Need("input", kAllowed);
  if (input == nullptr) return;
  if (input->is_string()) {
    messages.push_back({ChatRole::kUser, input->get<std::string>()});
    return;
  }
  if (!input->is_array()) return fields.Refuse("input", *input, kAllowed);
  for (ChatMessage& message : ReadMessages(fields, "input", body))
    messages.push_back(std::move(message));
}

OrderedJson OrderedMember(std::string_view object, const std::string& name) {
  return ParseOrderedJson(MemberText(object, name), name, kMaxJsonValues, kMaxBodyDepth);
}

// Reads {"format": {"type": ...}, "verbosity": ...}.
void ReadTextFormat(Fields& fields, std::string_view body, CompletionRequest& request) {
  const Json* const text = fields.Any("text");
  if (text == nullptr) return;
  if (!text->is_object()) return fields.Refuse("text", *text, "an object");
  Fields members(*text, "text.");
  const std::string_view object = MemberText(body, "text");
  ReadResponseFormat(members, "format", object, /*nested=*/false, request.params.form);
  if (request.params.form) request.responses.text_format = OrderedMember(object, "format");
  members.Lack("verbosity", "medium");
  if (const auto error = members.Finish()) fields.Fail(*error);
}

// Keeps the members about tools as they are.
void KeepTools(const JsonBody& body, const ToolOptions& options, ResponsesMembers& members) {
  members.parallel_tool_calls = options.parallel;
  for (const auto& [name, value] :
       {std::pair("tools", &members.tools), std::pair("tool_choice", &members.tool_choice)}) {
    if (!body.json.value(name, Json()).is_null()) *value = OrderedMember(body.text, name);
  }
}

// Members of conversations that the server would have to keep, and others.
void ReadUnsupported(Fields& fields) {
  for (const char* const name : {"previous_response_id", "conversation", "prompt", "background",
                                 "include", "max_tool_calls"}) {
    fields.Lack(name);
  }
  fields.Lack("truncation", "disabled");
  fields.Lack("top_logprobs", 0);
  fields.Ignore({"stream_options"});
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
  ReadInput(fields, body.text, request.messages);
  ReadGeneration(fields, completion);
  completion.params.max_new_tokens = fields.Integer("max_output_tokens");
  completion.stream = fields.Bool("stream").value_or(false);
  ReadTextFormat(fields, body.text, completion);
  completion.thinking = ReadReasoning(fields);
  request.tools = ReadResponsesTools(fields, body.text);
  ReadUnsupported(fields);
  if (const auto error = fields.Finish()) return *error;
  KeepTools(body, request.tools, completion.responses);
  return request;
}

ResponsesAnswer::ResponsesAnswer(const AnswerStart& start, const CompletionRequest& request)
    : model_(start.model.name),
      request_id_(start.request_id),
      id_("resp_" + start.request_id),
      max_output_tokens_(request.params.max_new_tokens),
      temperature_(request.params.sampling.temperature),
      top_p_(request.params.sampling.top_p),
      effort_(request.thinking.effort),
      shown_(request.responses),
      parser_(request.reply),
      tokenizer_(*start.model.tokenizer),
      token_splitter_(request.reply.thoughts) {}

JsonOutput ResponsesAnswer::Part(const Item& item, const std::string& text) {
  if (item.kind == ReplyPiece::Kind::kThoughts) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", JsonOutput::array()},
          {"logprobs", JsonOutput::array()}};
}

JsonOutput ResponsesAnswer::ItemJson(const Item& item, bool done) const {
  // The reply may have been cut in its last item. A call may have turned out to be none.
  const bool is_last = &item == &items_.back() && reason_ == serving::FinishReason::kLength;
  const bool cut = item.is_call() ? !Json::accept(item.text) : is_last;
  const char* const status = !done ? "in_progress" : cut ? "incomplete" : "completed";
  JsonOutput json = {{"id", item.id}, {"type", "message"}, {"status", status}};
  if (item.is_call()) {
    json["type"] = "function_call";
    json["call_id"] = item.call_id;
    json["name"] = item.name;
    json["arguments"] = done ? item.text : "";
    return json;
  }
  if (item.kind == ReplyPiece::Kind::kThoughts) {
    json["type"] = "reasoning";
    json["summary"] = JsonOutput::array();
  } else {
    json["role"] = "assistant";
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
      {"parallel_tool_calls", shown_.parallel_tool_calls},
      {"previous_response_id", nullptr},
      {"reasoning",
       {{"effort", effort_ ? JsonOutput(*effort_) : JsonOutput(nullptr)}, {"summary", nullptr}}},
      {"store", false},
      {"temperature", temperature_ ? JsonOutput(*temperature_) : JsonOutput(nullptr)},
      {"text", {{"format", shown_.text_format}}},
      {"tool_choice", shown_.tool_choice},
      {"tools", shown_.tools},
      {"top_p", top_p_ ? JsonOutput(*top_p_) : JsonOutput(nullptr)},
      {"truncation", "disabled"},
      {"usage", nullptr},
      {"metadata", JsonOutput::object()}};
  if (!done) return response;
  for (const Item& item : items_) response["output"].push_back(ItemJson(item, done));
  response["usage"] = {{"input_tokens", usage_.prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", usage_.cached_prompt_tokens}}},
                       {"output_tokens", usage_.generated_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", thought_tokens_}}},
                       {"total_tokens", usage_.prompt_tokens + usage_.generated_tokens},
                       {"kv_cache", KvCacheUsageJson(usage_.kv_cache)}};
  return response;
}

std::string ResponsesAnswer::Read(const StreamChunk& chunk, bool streams) {
  for (const int32_t token : chunk.tokens) {
    token_splitter_.Push(tokenizer_.Decode(token), /*last=*/false);
    if (token_splitter_.in_thoughts()) ++thought_tokens_;
  }
  const bool last = chunk.completion.has_value();
  std::string events;
  for (const auto& [kind, text] : parser_.Push(chunk.text, last)) {
    if (kind == ReplyPiece::Kind::kCall) {
      events += BeginItem(kind, text, streams);
      continue;
    }
    const bool goes_on =
        kind == ReplyPiece::Kind::kArguments || (!items_.empty() && items_.back().kind == kind);
    if (!goes_on) events += BeginItem(kind, "", streams);
    items_.back().text += text;
    if (streams) events += DeltaEvent(text);
  }
  if (last) {  // not before: items that end here are not cut
    reason_ = chunk.completion->reason;
    usage_ = chunk.completion->usage;
  }
  // A reply has an item.
  if (last && items_.empty()) events += BeginItem(ReplyPiece::Kind::kContent, "", streams);
  return events;
}

std::string ResponsesAnswer::BeginItem(ReplyPiece::Kind kind, const std::string& name,
                                       bool streams) {
  std::string events;
  if (streams && !items_.empty()) events = DoneEvents();
  const auto same = std::count_if(items_.begin(), items_.end(),
                                  [kind](const Item& item) { return item.kind == kind; });
  const char* const prefix = kind == ReplyPiece::Kind::kThoughts ? "rs_"
                             : kind == ReplyPiece::Kind::kCall   ? "fc_"
                                                                 : "msg_";
  Item& item = items_.emplace_back();
  item.kind = kind;
  item.id = prefix + request_id_ + (same == 0 ? "" : "_" + std::to_string(same));
  item.name = name;
  if (item.is_call()) item.call_id = ToolCallId(request_id_, 0, static_cast<size_t>(same));
  if (!streams) return "";
  events += ItemEvent("response.output_item.added", /*done=*/false);
  if (item.is_call()) return events;
  return events + PartEvent("response.content_part.added", "part", Part(item, ""));
}

void ResponsesAnswer::Add(const StreamChunk& chunk) { Read(chunk, /*streams=*/false); }

std::string ResponsesAnswer::Whole() const { return ToText(Response(/*done=*/true)); }

std::string ResponsesAnswer::Event(const std::string& type, const JsonOutput& members) {
  JsonOutput event = {{"type", type}, {"sequence_number", next_number_++}};
  event.update(members);
  return ServerEvent(type, ToText(event));
}

std::string ResponsesAnswer::ItemEvent(const std::string& type, bool done) {
  return Event(type,
               {{"output_index", items_.size() - 1}, {"item", ItemJson(items_.back(), done)}});
}

std::string ResponsesAnswer::PartEvent(const std::string& type, const std::string& name,
                                       const JsonOutput& value) {
  const Item& item = items_.back();
  JsonOutput members = {{"item_id", item.id}, {"output_index", items_.size() - 1}};
  if (!item.is_call()) members["content_index"] = 0;
  members[name] = value;
  if (name != "part" && item.kind == ReplyPiece::Kind::kContent) {
    members["logprobs"] = JsonOutput::array();
  }
  return Event(type, members);
}

std::string ResponsesAnswer::DeltaEvent(const std::string& text) {
  const ReplyPiece::Kind kind = items_.back().kind;
  return PartEvent(kind == ReplyPiece::Kind::kCall      ? "response.function_call_arguments.delta"
                   : kind == ReplyPiece::Kind::kContent ? "response.output_text.delta"
                                                        : "response.reasoning_text.delta",
                   "delta", text);
}

std::string ResponsesAnswer::BeginEvents() {
  parser_.StreamArguments();
  const JsonOutput response = {{"response", Response(/*done=*/false)}};
  std::string events = Event("response.created", response);
  return events += Event("response.in_progress", response);
}

std::string ResponsesAnswer::Events(const StreamChunk& chunk) {
  return Read(chunk, /*streams=*/true);
}

std::string ResponsesAnswer::DoneEvents() {
  const Item& item = items_.back();
  std::string events;
  if (item.is_call()) {
    events = PartEvent("response.function_call_arguments.done", "arguments", item.text);
  } else {
    const bool thinks = item.kind == ReplyPiece::Kind::kThoughts;
    events = PartEvent(thinks ? "response.reasoning_text.done" : "response.output_text.done",
                       "text", item.text);
    events += PartEvent("response.content_part.done", "part", Part(item, item.text));
  }
  return events + ItemEvent("response.output_item.done", /*done=*/true);
}

std::string ResponsesAnswer::EndEvents() {
  std::string events = DoneEvents();
  const bool cut = reason_ == serving::FinishReason::kLength;
  return events += Event(cut ? "response.incomplete" : "response.completed",
                         {{"response", Response(/*done=*/true)}});
}

std::string ResponsesAnswer::ErrorEvents(const Error& error) {
  const JsonOutput body = ErrorJson(error);
  return Event(
      "error",
      {{"code", body.at("code")}, {"message", body.at("message")}, {"param", body.at("param")}});
}

}  // namespace triptych::server
