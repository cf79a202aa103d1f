// Conversations as prompts, in the forms that published models were trained on.
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

// The names of all templates, for messages.
std::string ChatTemplateNames();

// A piece of a prompt. What messages say comes as text alone, so that a tokenizer with tokens for
// markers takes those for markers and never for what somebody has written.
struct ChatPiece {
  enum Kind { kBegin, kEnd, kMarker, kText } kind;
  std::string_view text = {};  // of markers and text
};

// The pieces of a conversation, which view its messages: byte for byte what the template's own text
// renders, begin and end token apart. Refused is what that refuses or leaves out: a message whose
// role may not stand where it does.
Result<std::vector<ChatPiece>> Render(ChatTemplate form, std::span<const ChatMessage> messages,
                                      bool add_generation_prompt);

// What messages say is text, whatever special tokens it names; markers are special tokens where the
// tokenizer has such. Throws EncodeError.
std::vector<int32_t> Encode(std::span<const ChatPiece> pieces, const Tokenizer& tokenizer);

// What ends a reply beside the end token; empty if nothing does.
std::string_view EndOfTurn(ChatTemplate form);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_H_
