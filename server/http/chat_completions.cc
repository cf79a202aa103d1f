#include "server/http/chat_completions.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "server/core/requests/context_length.h"

namespace triptych::server {
namespace {

std::string At(const std::string& list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

constexpr std::string_view kRoles = R"("system", "developer", "user", "assistant")";
constexpr std::string_view kContents = "a string, or an array of text parts, at least one";

// The text of a content part, whose type is "text", or "input_text" or "output_text" as in
// /v1/responses. `path`: the part's path and a '.'.
std::string_view ReadPart(const Json& part, const std::string& path, Fields& message) {
  Fields fields(part, path);
  const Json* const type = fields.Need("type", "\"text\"");
  if (type != nullptr && *type != "text" && *type != "input_text" && *type != "output_text") {
    fields.Refuse("type", *type, "\"text\"");
  }
  fields.Ignore({"cache_control"});
  for (const char* const name : {"annotations", "citations", "logprobs"}) fields.Lack(name);
  fields.Need("text", "a string");
  const std::string_view text = fields.String("text").value_or("");
  if (auto error = fields.Finish()) message.Fail(std::move(*error));
  return text;
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

// Reads the members of a message besides its role and content, which change nothing.
void ReadMessageRest(Fields& message) {
  const Json* const type = message.Any("type");
  if (type != nullptr && *type != "message" && *type != "text") {
    message.Refuse("type", *type, "\"message\", \"text\"");
  }
  message.Ignore({"name", "id", "status", "cache_control"});
  for (const char* const name : {"tool_calls", "annotations", "refusal", "audio"}) {
    message.Lack(name);
  }
}

// Tools that a reply cannot call. Without tools, "auto" is as "none".
void ReadTools(Fields& fields) {
  fields.Lack("tools");
  fields.Lack("functions");
  for (const char* const name : {"tool_choice", "function_call"}) {
    const Json* const choice = fields.Any(name);
    if (choice != nullptr && *choice != "auto") fields.Lack(name, "none");
  }
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

std::string ReadContent(Fields& fields, const std::string& name, const std::string& path) {
  const Json* const content = fields.Need(name, kContents);
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array() || content->empty()) {
    fields.Refuse(name, *content, kContents);
    return "";
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    if (!part.is_object()) {
      fields.Refuse(At(name, i), part, "an object of the type \"text\"");
      return "";
    }
    if (i > 0) text += '\n';
    text += ReadPart(part, path + At(name, i) + ".", fields);
  }
  return text;
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
  for (const Json& object : *array) {
    const std::string path = At(name, messages.size());
    if (!object.is_object()) {
      fields.Refuse(path, object, "an object");
      return {};
    }
    Fields message(object, path + ".");
    const ChatRole role = ReadRole(message);
    messages.push_back({role, ReadContent(message, "content", path + ".")});
    ReadMessageRest(message);
    if (auto error = message.Finish()) {
      fields.Fail(std::move(*error));
      return {};
    }
  }
  return messages;
}

Result<ChatRequest> ParseChat(const Json& body) {
  ChatRequest request;
  CompletionRequest& completion = request.completion;
  completion.prompt_field = "messages";
  completion.logprobs_field = "top_logprobs";
  Fields fields(body);
  request.messages = ReadMessages(fields, "messages");
  ReadCommon(fields, completion);
  completion.params.logprobs = ReadLogprobs(fields);
  ReadTools(fields);
  fields.Lack("echo");
  fields.Lack("add_special_tokens");
  fields.Lack("response_format", {{"type", "text"}});
  fields.Lack("modalities", Json::array({"text"}));
  fields.Lack("audio");
  fields.Ignore({"parallel_tool_calls"});
  if (const auto error = fields.Finish()) return *error;
  return request;
}

Result<CompletionRequest> ToCompletion(ChatRequest request, const ModelInfo& model) {
  if (!model.chat_template) {
    return InvalidArgument("model", "is " + model.name +
                                        ", which has no recognized chat template; allowed: models "
                                        "with one, or with one set by the server's --chat-template "
                                        "NAME (" +
                                        ChatTemplateNames() + "), or /v1/completions");
  }
  const auto pieces =
      Render(*model.chat_template, request.messages, /*add_generation_prompt=*/true);
  if (!pieces.ok()) return pieces.error();
  int64_t bytes = 0;
  for (const ChatPiece& piece : pieces.value()) bytes += std::ssize(piece.text);
  if (const auto error = CheckSurelyFits(bytes, /*begin_token=*/false, "messages", model,
                                         /*generates=*/true)) {
    return *error;
  }
  CompletionRequest& completion = request.completion;
  try {
    completion.AddPrompt(Encode(pieces.value(), *model.tokenizer));
  } catch (const EncodeError& e) {
    return InvalidArgument("messages", e.what());
  }
  completion.params.end_of_turn = EndOfTurn(*model.chat_template);
  return std::move(completion);
}

ChatCompletion::ChatCompletion(const AnswerStart& start, const CompletionRequest& request)
    : CompletionAnswer({.id_prefix = "chatcmpl-",
                        .object = "chat.completion",
                        .chunk_object = "chat.completion.chunk",
                        .no_logprobs = {{"content", JsonOutput::array()}, {"refusal", nullptr}},
                        .bytes_per_logprob = 512},
                       start, request),
      begun_(request.choices()) {}

void ChatCompletion::AddLogprobs(const StreamChunk& chunk, JsonOutput& lists) {
  const Tokenizer& tokenizer = *model().tokenizer;
  for (const serving::TokenLogprobs& one : chunk.logprobs) {
    JsonOutput token = TokenJson(one.chosen, tokenizer);
    JsonOutput& top = token["top_logprobs"] = JsonOutput::array();
    for (const serving::TokenLogprob& other : one.top) top.push_back(TokenJson(other, tokenizer));
    lists["content"].push_back(std::move(token));
  }
}

JsonOutput ChatCompletion::WholeText(const std::string& text) const {
  return {{"message", {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}}};
}

JsonOutput ChatCompletion::ChunkText(size_t choice, const std::string& text) {
  JsonOutput delta = JsonOutput::object();
  if (!begun_[choice]) delta["role"] = "assistant";
  if (!begun_[choice] || !text.empty()) delta["content"] = text;
  begun_[choice] = true;
  return {{"delta", std::move(delta)}};
}

}  // namespace triptych::server
