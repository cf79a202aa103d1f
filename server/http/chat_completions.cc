#include "server/http/chat_completions.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "server/core/requests/context_length.h"
#include "server/http/chat_messages.h"
#include "server/http/tools.h"

namespace triptych::server {
namespace {

ChatOptions ReadOptions(Fields& fields) {
  constexpr size_t kMostVariables = 128;
  ChatOptions options;
  options.continue_final_message = fields.Bool("continue_final_message").value_or(false);
  options.add_generation_prompt =
      fields.Bool("add_generation_prompt").value_or(!options.continue_final_message);
  if (const Json* const variables = fields.Any("chat_template_kwargs")) {
    if (!variables->is_object() || variables->size() > kMostVariables) {
      fields.Refuse("chat_template_kwargs", *variables, "an object of up to 128 variables");
    } else {
      options.variables = *variables;
    }
  }
  return options;
}

// The old names of tools.
void ReadFunctions(Fields& fields) {
  fields.Lack("functions");
  const Json* const choice = fields.Any("function_call");
  if (choice != nullptr && *choice != "auto") fields.Lack("function_call", "none");
}

// Number of alternatives per token; absent if log-probabilities are not requested.
std::optional<int32_t> ReadLogprobs(Fields& fields) {
  const bool logprobs = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Int32("top_logprobs");
  if (logprobs) return top.value_or(0);
  if (top.value_or(0) != 0) {
    fields.Fail(InvalidArgument("top_logprobs",
                                "is " + std::to_string(*top) + "; allowed: only with logprobs"));
  }
  return std::nullopt;
}

JsonOutput TokenJson(const serving::TokenLogprob& one, const Tokenizer& tokenizer) {
  JsonOutput bytes = nullptr;
  for (const unsigned char byte : tokenizer.Decode(one.token)) bytes.push_back(byte);
  return {{"token", TokenText(one.token, tokenizer)},
          {"logprob", LogprobJson(one.logprob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

Result<ChatRequest> ParseChat(const JsonBody& body) {
  ChatRequest request;
  CompletionRequest& completion = request.completion;
  completion.prompt_field = "messages";
  completion.logprobs_field = "top_logprobs";
  Fields fields(body.json);
  request.messages = ReadMessages(fields, "messages", body.text);
  request.options = ReadOptions(fields);
  ReadCommon(fields, body.text, completion);
  completion.params.logprobs = ReadLogprobs(fields);
  ReadPrediction(fields, completion);
  // OpenAI's name of the level of thoughts, or else OpenRouter's.
  completion.thinking = ReadEffort(fields, "reasoning_effort", "");
  Thinking reasoning = ReadReasoning(fields);
  if (!completion.thinking.enabled) completion.thinking = std::move(reasoning);
  request.tools = ReadChatTools(fields, body.text);
  ReadFunctions(fields);
  fields.Lack("echo");
  fields.Lack("add_special_tokens");
  fields.Lack("return_token_strs");
  fields.Lack("modalities", Json::array({"text"}));
  fields.Lack("audio");
  if (const auto error = fields.Finish()) return *error;
  return request;
}

Result<CompletionRequest> ToCompletion(ChatRequest request, const ModelInfo& model) {
  const ChatTemplate* const chat_template = model.chat_template.get();
  if (chat_template == nullptr || !chat_template->error().empty()) {
    const std::string why = chat_template == nullptr
                                ? "has no chat template"
                                : "has a chat template (" + chat_template->name() +
                                      ") that cannot be used: " + chat_template->error();
    return InvalidArgument("model", "is " + model.name + ", which " + why +
                                        "; allowed: models with one, or with one set by the "
                                        "server's --chat-template FILE or NAME (" +
                                        BuiltInTemplateNames() + "), or /v1/completions");
  }
  if (const auto error = SetThinking(request.completion.thinking, model, request.options)) {
    return *error;
  }
  CompletionRequest& completion = request.completion;
  UseTools(request.tools, chat_template->tools(), request.messages, request.options, completion);
  const Result<jinja::Text> prompt = chat_template->Render(request.messages, request.options);
  if (!prompt.ok()) return prompt.error();
  if (const auto error = CheckSurelyFits(TextBytes(prompt.value()), /*begin_token=*/false,
                                         "messages", model, /*generates=*/true)) {
    return *error;
  }
  try {
    completion.AddPrompt(Encode(prompt.value(), *model.tokenizer));
  } catch (const EncodeError& e) {
    return InvalidArgument("messages", e.what());
  }
  completion.params.end_of_turn = chat_template->end_of_turn();
  // A form is that of the whole reply, except of calls.
  const bool may_think = !completion.params.form || completion.params.calls != nullptr;
  if (chat_template->reasons() && may_think) {
    SetThoughts(EndsInThoughts(prompt.value()) ? ReasoningSplitter::Begin::kThoughts
                                               : ReasoningSplitter::Begin::kUnknown,
                completion);
  }
  return std::move(completion);
}

Result<CompletionRequest> RenderChat(const ServerCore& core, Result<ChatRequest> chat) {
  if (!chat.ok()) return chat.error();
  const auto model = core.models.Find(chat.value().completion.params.model);
  if (!model.ok()) return model.error();
  const std::string field = chat.value().completion.prompt_field;
  Result<CompletionRequest> completion = ToCompletion(std::move(chat).value(), *model.value());
  if (completion.ok()) return completion;
  Error error = completion.error();
  constexpr std::string_view kMessages = "messages";
  if (error.field.starts_with(kMessages)) error.field.replace(0, kMessages.size(), field);
  return error;
}

ChatCompletion::ChatCompletion(const AnswerStart& start, const CompletionRequest& request)
    : CompletionAnswer({.id_prefix = "chatcmpl-",
                        .object = "chat.completion",
                        .chunk_object = "chat.completion.chunk",
                        .no_logprobs = {{"content", JsonOutput::array()}, {"refusal", nullptr}},
                        .bytes_per_logprob = 512},
                       start, request),
      form_(request.reply),
      streams_(start.prompts.size() * request.choices(), Stream{.parser = ReplyParser(form_)}) {
  for (Stream& stream : streams_) stream.parser.StreamArguments();
}

void ChatCompletion::AddLogprobs(const StreamChunk& chunk, JsonOutput& lists) {
  const Tokenizer& tokenizer = *model().tokenizer;
  for (const serving::TokenLogprobs& one : chunk.logprobs) {
    JsonOutput token = TokenJson(one.chosen, tokenizer);
    JsonOutput& top = token["top_logprobs"] = JsonOutput::array();
    for (const serving::TokenLogprob& other : one.top) top.push_back(TokenJson(other, tokenizer));
    lists["content"].push_back(std::move(token));
  }
}

JsonOutput ChatCompletion::Message(size_t choice, const ReplyPieces& pieces, size_t& calls) const {
  std::string content, thoughts;
  JsonOutput list = JsonOutput::array();
  for (const auto& [kind, text] : pieces) {
    switch (kind) {
      case ReplyPiece::Kind::kThoughts:
        thoughts += text;
        break;
      case ReplyPiece::Kind::kContent:
        content += text;
        break;
      case ReplyPiece::Kind::kCall:
        list.push_back({{"index", calls},
                        {"id", ToolCallId(id(), choice, calls)},
                        {"type", "function"},
                        {"function", {{"name", text}, {"arguments", ""}}}});
        ++calls;
        break;
      case ReplyPiece::Kind::kArguments:
        if (list.empty()) {
          list.push_back({{"index", calls - 1}, {"function", {{"arguments", ""}}}});
        }
        list.back()["function"]["arguments"].get_ref<std::string&>() += text;
        break;
    }
  }
  JsonOutput message = JsonOutput::object();
  if (!content.empty()) message["content"] = std::move(content);
  if (!thoughts.empty()) message["reasoning_content"] = std::move(thoughts);
  if (!list.empty()) message["tool_calls"] = std::move(list);
  return message;
}

CompletionAnswer::ChoiceText ChatCompletion::WholeText(size_t choice,
                                                       const std::string& text) const {
  size_t calls = 0;
  const JsonOutput parts = Message(choice, ReplyParser(form_).Push(text, /*last=*/true), calls);
  const JsonOutput no_content = calls > 0 ? JsonOutput(nullptr) : JsonOutput("");
  JsonOutput message = {{"role", "assistant"}, {"content", no_content}, {"refusal", nullptr}};
  message.update(parts);
  if (calls > 0) {
    for (JsonOutput& call : message["tool_calls"]) call.erase("index");
  }
  return {.json = {{"message", std::move(message)}}, .calls = calls > 0};
}

CompletionAnswer::ChoiceText ChatCompletion::ChunkText(size_t choice, const std::string& text,
                                                       bool last) {
  Stream& stream = streams_[choice];
  JsonOutput delta = JsonOutput::object();
  if (!stream.begun) delta = {{"role", "assistant"}, {"content", ""}};
  stream.begun = true;
  delta.update(Message(choice, stream.parser.Push(text, last), stream.calls));
  const bool empty = delta.empty();
  return {.json = {{"delta", std::move(delta)}}, .calls = stream.calls > 0, .empty = empty};
}

}  // namespace triptych::server
