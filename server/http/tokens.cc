#include "server/http/tokens.h"

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/text_stream.h"
#include "server/core/requests/context_length.h"
#include "server/http/chat_completions.h"
#include "server/http/error_response.h"
#include "server/http/fields.h"
#include "server/http/json_output.h"

namespace triptych::server {
namespace {

// Texts are written directly: JSON values would take sixteen bytes per token, and a body may have a
// token per byte.
template <typename Numbers>
void AppendList(const Numbers& numbers, std::string& text) {
  text += '[';
  for (const auto number : numbers) text += std::to_string(number) + ",";
  if (!numbers.empty()) text.pop_back();
  text += ']';
}

// The bytes of token `i`.
std::string_view PieceOf(const TokenizedText& tokenized, int64_t i) {
  const bool is_last = i + 1 == std::ssize(tokenized.offsets);
  const int64_t end = is_last ? std::ssize(tokenized.pieces) : tokenized.offsets[i + 1];
  return std::string_view(tokenized.pieces)
      .substr(tokenized.offsets[i], end - tokenized.offsets[i]);
}

// A piece as a list of bytes, since it need not be valid UTF-8.
void AppendBytes(std::string_view piece, std::string& text) {
  AppendList(std::span(reinterpret_cast<const unsigned char*>(piece.data()), piece.size()), text);
}

std::string TriptychText(const TokenizedText& tokenized, bool with_pieces) {
  std::string text = R"({"token_ids":)";
  AppendList(tokenized.tokens, text);
  if (!with_pieces) return text + "}";
  text += R"(,"offsets":)";
  AppendList(tokenized.offsets, text);
  text += R"(,"pieces":[)";
  for (int64_t i = 0; i < std::ssize(tokenized.offsets); ++i) {
    if (i > 0) text += ',';
    AppendBytes(PieceOf(tokenized, i), text);
  }
  return text + "]}";
}

std::string VllmText(std::span<const int32_t> tokens, const ModelInfo& model) {
  std::string text = R"({"count":)" + std::to_string(tokens.size()) + R"(,"max_model_len":)" +
                     std::to_string(MostPositions(model)) + R"(,"tokens":)";
  AppendList(tokens, text);
  return text + R"(,"token_strs":null})";
}

std::string LlamaCppText(const TokenizedText& tokenized, bool with_pieces) {
  std::string text = R"({"tokens":)";
  if (!with_pieces) {
    AppendList(tokenized.tokens, text);
    return text + "}";
  }
  text += '[';
  for (int64_t i = 0; i < std::ssize(tokenized.tokens); ++i) {
    text +=
        (i > 0 ? R"(,{"id":)" : R"({"id":)") + std::to_string(tokenized.tokens[i]) + R"(,"piece":)";
    const std::string piece(PieceOf(tokenized, i));
    if (ToValidUtf8(piece) == piece) {
      text += ToText(piece);
    } else {
      AppendBytes(piece, text);
    }
    text += '}';
  }
  return text + "]}";
}

HttpResponse TokenizeMessages(const JsonBody& body, const ServerCore& core) {
  const auto completion = RenderChat(core, ParseChat(body));
  if (!completion.ok()) return ErrorResponse(completion.error());
  const auto model = core.models.Find(completion.value().params.model);
  return {.body = VllmText(completion.value().token_ids.back(), *model.value())};
}

}  // namespace

HttpResponse Tokenize(const JsonBody& body, const ServerCore& core, const TextDefaults& defaults) {
  Fields fields(body.json);
  if (fields.Any("messages") != nullptr) return TokenizeMessages(body, core);
  const bool is_prompt = fields.Any("prompt") != nullptr;
  const bool is_content = !is_prompt && fields.Any("content") != nullptr;
  const std::string name = is_prompt ? "prompt" : is_content ? "content" : "text";
  TokenizeParams params;
  params.model = fields.String("model").value_or("");
  params.text = fields.String(name).value_or("");
  params.options = ReadTextOptions(fields, /*adds=*/is_prompt, defaults);
  if (is_content && fields.Bool("add_special").value_or(false)) params.options.begin_token = {};
  params.pieces = fields.Bool("with_pieces").value_or(false);
  fields.Lack("return_token_strs");
  if (const auto error = fields.Finish()) return ErrorResponse(*error);
  const auto text = core.requests.Tokenize(params);
  if (!text.ok()) {
    Error error = text.error();
    if (error.field == "text") error.field = name;
    return ErrorResponse(error);
  }
  if (is_prompt) {
    const auto model = core.models.Find(params.model);
    return {.body = VllmText(text.value().tokens, *model.value())};
  }
  return {.body = is_content ? LlamaCppText(text.value(), params.pieces)
                             : TriptychText(text.value(), params.pieces)};
}

HttpResponse Detokenize(const Json& body, const ServerCore& core) {
  Fields fields(body);
  const bool is_tokens = fields.Any("tokens") != nullptr;
  DetokenizeParams params;
  params.model = fields.String("model").value_or("");
  const std::vector<int32_t> ids = fields.TokenIds(is_tokens ? "tokens" : "token_ids");
  params.token_ids = ids;
  if (const auto error = fields.Finish()) return ErrorResponse(*error);
  const auto text = core.requests.Detokenize(params);
  if (!text.ok()) {
    Error error = text.error();
    constexpr std::string_view kIds = "token_ids";
    if (is_tokens && error.field.starts_with(kIds)) error.field.replace(0, kIds.size(), "tokens");
    return ErrorResponse(error);
  }
  if (!is_tokens) return {.body = ToText({{"text", text.value()}})};
  return {.body = ToText({{"content", text.value()}, {"prompt", text.value()}})};
}

}  // namespace triptych::server
