#include "server/http/responses.h"

#include <utility>

#include "server/http/error_response.h"

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

// Reads {"format": {"type": "text"}, "verbosity": ...}.
void ReadTextFormat(Fields& fields) {
  const Json* const text = fields.Any("text");
  if (text == nullptr) return;
  if (!text->is_object()) return fields.Refuse("text", *text, "an object");
  Fields members(*text, "text.");
  members.Lack("format", {{"type", "text"}});
  members.Lack("verbosity", "medium");
  if (const auto error = members.Finish()) fields.Fail(*error);
}

// Members of conversations that the server would have to keep, and of tools.
void ReadUnsupported(Fields& fields) {
  for (const char* const name : {"previous_response_id", "conversation", "prompt", "background",
                                 "include", "tools", "max_tool_calls", "reasoning"}) {
    fields.Lack(name);
  }
  const Json* const choice = fields.Any("tool_choice");
  if (choice != nullptr && *choice != "auto") fields.Lack("tool_choice", "none");
  fields.Lack("truncation", "disabled");
  fields.Lack("top_logprobs", 0);
  fields.Ignore({"parallel_tool_calls", "stream_options"});
}

}  // namespace

Result<ChatRequest> ParseResponses(const Json& body) {
  ChatRequest request;
  CompletionRequest& completion = request.completion;
  completion.prompt_field = "input";
  completion.length_field = "max_output_tokens";
  Fields fields(body);
  if (const auto instructions = fields.String("instructions")) {
    request.messages.push_back({ChatRole::kSystem, std::string(*instructions)});
  }
  ReadInput(fields, request.messages);
  ReadGeneration(fields, completion);
  completion.params.max_new_tokens = fields.Integer("max_output_tokens");
  completion.stream = fields.Bool("stream").value_or(false);
  ReadTextFormat(fields);
  ReadUnsupported(fields);
  if (const auto error = fields.Finish()) return *error;
  return request;
}

ResponsesAnswer::ResponsesAnswer(const AnswerStart& start, const CompletionRequest& request)
    : model_(start.model.name),
      id_("resp_" + start.request_id),
      item_id_("msg_" + start.request_id),
      max_output_tokens_(request.params.max_new_tokens),
      temperature_(request.params.sampling.temperature),
      top_p_(request.params.sampling.top_p) {}

JsonOutput ResponsesAnswer::Part() const {
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", JsonOutput::array()},
          {"logprobs", JsonOutput::array()}};
}

JsonOutput ResponsesAnswer::Item(bool done) const {
  const bool cut = reason_ == serving::FinishReason::kLength;
  JsonOutput content = JsonOutput::array();
  if (done) content.push_back(Part());
  return {{"id", item_id_},
          {"type", "message"},
          {"status", !done ? "in_progress"
                     : cut ? "incomplete"
                           : "completed"},
          {"role", "assistant"},
          {"content", std::move(content)}};
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
      {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
      {"store", false},
      {"temperature", temperature_ ? JsonOutput(*temperature_) : JsonOutput(nullptr)},
      {"text", {{"format", {{"type", "text"}}}}},
      {"tool_choice", "none"},
      {"tools", JsonOutput::array()},
      {"top_p", top_p_ ? JsonOutput(*top_p_) : JsonOutput(nullptr)},
      {"truncation", "disabled"},
      {"usage", nullptr},
      {"metadata", JsonOutput::object()}};
  if (!done) return response;
  response["output"].push_back(Item(done));
  response["usage"] = {{"input_tokens", usage_.prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", usage_.cached_prompt_tokens}}},
                       {"output_tokens", usage_.generated_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", 0}}},
                       {"total_tokens", usage_.prompt_tokens + usage_.generated_tokens}};
  return response;
}

void ResponsesAnswer::Add(const StreamChunk& chunk) {
  text_ += chunk.text;
  if (!chunk.completion) return;
  reason_ = chunk.completion->reason;
  usage_ = chunk.completion->usage;
}

std::string ResponsesAnswer::Whole() const { return ToText(Response(/*done=*/true)); }

std::string ResponsesAnswer::Event(const std::string& type, const JsonOutput& members) {
  JsonOutput event = {{"type", type}, {"sequence_number", next_number_++}};
  event.update(members);
  return ServerEvent(type, ToText(event));
}

std::string ResponsesAnswer::ItemEvent(const std::string& type, const JsonOutput& item) {
  return Event(type, {{"output_index", 0}, {"item", item}});
}

std::string ResponsesAnswer::PartEvent(const std::string& type, const std::string& name,
                                       const JsonOutput& value) {
  JsonOutput members = {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
  members[name] = value;
  if (name != "part") members["logprobs"] = JsonOutput::array();
  return Event(type, members);
}

std::string ResponsesAnswer::BeginEvents() {
  const JsonOutput response = {{"response", Response(/*done=*/false)}};
  std::string events = Event("response.created", response);
  events += Event("response.in_progress", response);
  events += ItemEvent("response.output_item.added", Item(/*done=*/false));
  return events + PartEvent("response.content_part.added", "part", Part());
}

std::string ResponsesAnswer::Events(const StreamChunk& chunk) {
  Add(chunk);
  return PartEvent("response.output_text.delta", "delta", chunk.text);
}

std::string ResponsesAnswer::EndEvents() {
  std::string events = PartEvent("response.output_text.done", "text", text_);
  events += PartEvent("response.content_part.done", "part", Part());
  events += ItemEvent("response.output_item.done", Item(/*done=*/true));
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
