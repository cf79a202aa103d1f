// Chat templates: conversations as prompts, in the forms of published models.
#ifndef TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_H_
#define TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/names.h"
#include "engine/text/tokenizer.h"
#include "server/core/error.h"

namespace triptych::server {

enum class ChatRole { kSystem, kUser, kAssistant };

constexpr std::string_view Name(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
  }
  return "";
}

struct ChatMessage {
  ChatRole role;
  std::string content;
};

enum class ChatTemplate { kChatml, kLlama2, kLlama3, kMistral, kPlain, kZephyr };

constexpr std::string_view Name(ChatTemplate form) {
  switch (form) {
    case ChatTemplate::kChatml:
      return "chatml";
    case ChatTemplate::kLlama2:
      return "llama2";
    case ChatTemplate::kLlama3:
      return "llama3";
    case ChatTemplate::kMistral:
      return "mistral";
    case ChatTemplate::kPlain:
      return "plain";
    case ChatTemplate::kZephyr:
      return "zephyr";
  }
  return "";
}

// The names of all templates, separated by commas, for error messages.
std::string ChatTemplateNames();

// A piece of a prompt. The content of messages is always kText, so that a tokenizer with special
// tokens for markers never parses them from a message.
struct ChatPiece {
  enum Kind { kBegin, kEnd, kMarker, kText } kind;
  std::string_view text = {};  // of kMarker and kText
};

// Renders a conversation to pieces that view `messages`. Their bytes are those of the published
// template, without begin and end token. A message whose role the published template refuses or
// would leave out at its place is an error.
Result<std::vector<ChatPiece>> Render(ChatTemplate form, std::span<const ChatMessage> messages,
                                      bool add_generation_prompt);

// The pieces' tokens. Content of messages is encoded as text even if it names special tokens;
// markers are special tokens if the tokenizer has them. Throws EncodeError.
std::vector<int32_t> Encode(std::span<const ChatPiece> pieces, const Tokenizer& tokenizer);

// The text that ends a reply, in addition to the end token; empty if there is none.
std::string_view EndOfTurn(ChatTemplate form);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_H_
