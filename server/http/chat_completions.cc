#include "server/http/chat_completions.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "server/core/requests/validation.h"

namespace triptych::server {
namespace {

std::string At(const std::string& list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

constexpr std::string_view kRoles = R"("system", "developer", "user", "assistant")";
constexpr std::string_view kContents = "a string, or an array of text parts, at least one";

// The text of a content part; its type must be "text". `path`: the part's path and a '.'.
std::string_view ReadPart(const Json& part, const std::string& path, Fields& message) {
  Fields fields(part, path);
  const Json* const type = fields.Need("type", "\"text\"");
  if (type != nullptr && *type != "text") fields.Refuse("type", *type, "\"text\"");
  fields.Need("text", "a string");
  const std::string_view text = fields.String("text").value_or("");
  if (auto error = fields.Finish()) message.Fail(std::move(*error));
  return text;
}

// The content of a message, its parts joined by line breaks. `path`: the message's path and a '.'.
std::string ReadContent(Fields& message, const std::string& path) {
  const Json* const content = message.Need("content", kContents);
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array() || content->empty()) {
    message.Refuse("content", *content, kContents);
    return "";
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    if (!part.is_object()) {
      message.Refuse(At("content", i), part, "an object of the type \"text\"");
      return "";
    }
    if (i > 0) text += '\n';
    text += ReadPart(part, path + At("content", i) + ".", message);
  }
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

std::vector<ChatMessage> ReadMessages(Fields& fields) {
  constexpr std::string_view kAllowed = "an array of messages, at least one";
  const Json* const array = fields.Need("messages", kAllowed);
  if (array == nullptr) return {};
  if (!array->is_array() || array->empty()) {
    fields.Refuse("messages", *array, kAllowed);
    return {};
  }
  std::vector<ChatMessage> messages;
  for (const Json& object : *array) {
    const std::string path = At("messages", messages.size());
    if (!object.is_object()) {
      fields.Refuse(path, object, "an object");
      return {};
    }
    Fields message(object, path + ".");
    const ChatRole role = ReadRole(message);
    messages.push_back({role, ReadContent(message, path + ".")});
    if (auto error = message.Finish()) {
      fields.Fail(std::move(*error));
      return {};
    }
  }
  return messages;
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

Result<ChatRequest> ParseChat(const Json& body) {
  ChatRequest request;
  CompletionRequest& completion = request.completion;
  completion.prompt_field = "messages";
  completion.logprobs_field = "top_logprobs";
  Fields fields(body);
  request.messages = ReadMessages(fields);
  ReadCommon(fields, completion);
  completion.params.logprobs = ReadLogprobs(fields);
  fields.Lack("tools", Json::array());
  fields.Lack("tool_choice", "none");
  fields.Lack("functions", Json::array());
  fields.Lack("function_call", "none");
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
    completion.prompt_tokens = Encode(pieces.value(), *model.tokenizer);
  } catch (const EncodeError& e) {
    return InvalidArgument("messages", e.what());
  }
  completion.params.prompt.input = std::span<const int32_t>(completion.prompt_tokens);
  completion.params.end_of_turn = EndOfTurn(*model.chat_template);
  return std::move(completion);
}

ChatCompletion::ChatCompletion(const ModelInfo& model, const std::string& request_id,
                               const CompletionRequest& request)
    : CompletionAnswer({.id_prefix = "chatcmpl-",
                        .object = "chat.completion",
                        .chunk_object = "chat.completion.chunk",
                        .no_logprobs = {{"content", JsonOutput::array()}, {"refusal", nullptr}},
                        .bytes_per_logprob = 512},
                       model, request_id, request),
      begun_(request.params.n.value_or(1)) {}

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
