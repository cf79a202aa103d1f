#include "server/core/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace triptych::server {
namespace {

// The characters that Python's strip() removes, as published templates call it.
constexpr std::array<std::string_view, 29> kSpaces = {
    "\t",           "\n",           "\v",           "\f",           "\r",
    "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
    "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
    "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8",
    "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};

// Length of the first of kSpaces that `fits`; 0 if none does.
template <typename Fits>
size_t SpaceThat(Fits fits) {
  const auto* const found = std::find_if(kSpaces.begin(), kSpaces.end(), fits);
  return found == kSpaces.end() ? 0 : found->size();
}

std::string_view StripEnd(std::string_view text) {
  const auto ends = [&](std::string_view space) { return text.ends_with(space); };
  while (const size_t length = SpaceThat(ends)) text.remove_suffix(length);
  return text;
}

std::string_view Strip(std::string_view text) {
  const auto begins = [&](std::string_view space) { return text.starts_with(space); };
  while (const size_t length = SpaceThat(begins)) text.remove_prefix(length);
  return StripEnd(text);
}

class Renderer {
 public:
  Renderer(std::span<const ChatMessage> messages, bool add_generation_prompt)
      : messages_(messages), add_generation_prompt_(add_generation_prompt) {}

  std::vector<ChatPiece> Take() { return std::move(pieces_); }

  void Chatml() {
    for (const ChatMessage& message : messages_) {
      ChatmlTurn(message.role);
      Text(message.content);
      Marker("<|im_end|>");
      Text("\n");
    }
    if (add_generation_prompt_) ChatmlTurn(ChatRole::kAssistant);
  }

  void Llama3() {
    if (!messages_.empty()) Begin();
    for (const ChatMessage& message : messages_) {
      Llama3Turn(message.role);
      Text(Strip(message.content));
      Marker("<|eot_id|>");
    }
    if (add_generation_prompt_) Llama3Turn(ChatRole::kAssistant);
  }

  void Zephyr() {
    for (const ChatMessage& message : messages_) {
      ZephyrTurn(message.role);
      Text(message.content);
      End();
      Text("\n");
    }
    if (add_generation_prompt_) ZephyrTurn(ChatRole::kAssistant);
  }

  void Plain() {
    Begin();
    for (const ChatMessage& message : messages_) {
      PlainTurn(message.role);
      Text(message.content);
      Text("\n\n");
    }
    if (add_generation_prompt_) PlainTurn(ChatRole::kAssistant);
  }

  void Llama2() {
    const std::optional<std::string_view> system = TakeSystem();
    for (size_t i = 0; i < messages_.size(); ++i) {
      const std::string& content = messages_[i].content;
      if (messages_[i].role == ChatRole::kAssistant) {
        Text(" ");
        Text(Strip(content));
        Text(" ");
        End();
        continue;
      }
      Begin();
      Marker("[INST]");
      Text(" ");
      if (i == 0 && system) {
        Marker("<<SYS>>");
        Text("\n");
        Text(*system);
        Text("\n");
        Marker("<</SYS>>");
        // The published template strips the system block and the message as one text.
        const std::string_view stripped = StripEnd(content);
        if (!stripped.empty()) Text("\n\n");
        Text(stripped);
      } else {
        Text(Strip(content));
      }
      Text(" ");
      Marker("[/INST]");
    }
  }

  void Mistral() {
    const std::optional<std::string_view> system = TakeSystem();
    Begin();
    for (size_t i = 0; i < messages_.size(); ++i) {
      Text(" ");
      if (messages_[i].role == ChatRole::kAssistant) {
        Text(messages_[i].content);
        End();
        continue;
      }
      Marker("[INST]");
      Text(" ");
      if (i == 0 && system) {
        Text(*system);
        Text("\n\n");
      }
      Text(messages_[i].content);
      Text(" ");
      Marker("[/INST]");
    }
  }

 private:
  void Begin() { pieces_.push_back({.kind = ChatPiece::kBegin}); }
  void End() { pieces_.push_back({.kind = ChatPiece::kEnd}); }
  void Marker(std::string_view text) { pieces_.push_back({ChatPiece::kMarker, text}); }
  void Text(std::string_view text) { pieces_.push_back({ChatPiece::kText, text}); }

  // The beginning of a turn.
  void ChatmlTurn(ChatRole role) {
    Marker("<|im_start|>");
    Text(Name(role));
    Text("\n");
  }
  void Llama3Turn(ChatRole role) {
    Marker("<|start_header_id|>");
    Text(Name(role));
    Marker("<|end_header_id|>");
    Text("\n\n");
  }
  void ZephyrTurn(ChatRole role) {
    switch (role) {
      case ChatRole::kSystem:
        Marker("<|system|>");
        break;
      case ChatRole::kUser:
        Marker("<|user|>");
        break;
      case ChatRole::kAssistant:
        Marker("<|assistant|>");
        break;
    }
    Text("\n");
  }
  void PlainTurn(ChatRole role) {
    if (role != ChatRole::kSystem) Text(role == ChatRole::kUser ? "User:\n" : "Assistant:\n");
  }

  // Removes a leading system message from messages_ and returns it.
  std::optional<std::string_view> TakeSystem() {
    if (messages_.empty() || messages_.front().role != ChatRole::kSystem) return std::nullopt;
    const std::string_view content = messages_.front().content;
    messages_ = messages_.subspan(1);
    return content;
  }

  std::span<const ChatMessage> messages_;
  const bool add_generation_prompt_;
  std::vector<ChatPiece> pieces_;
};

// True if user and assistant must alternate, after at most one system message.
bool Alternates(ChatTemplate form) {
  return form == ChatTemplate::kLlama2 || form == ChatTemplate::kMistral;
}

Error Misplaced(ChatTemplate form, size_t index, ChatRole role, const std::string& allowed) {
  return InvalidArgument("messages[" + std::to_string(index) + "].role",
                         "is \"" + std::string(Name(role)) + "\"; allowed here by template " +
                             std::string(Name(form)) + ": " + allowed);
}

}  // namespace

std::string ChatTemplateNames() {
  std::string all;
  for (const auto& [name, form] : Names<ChatTemplate>()) all += (all.empty() ? "" : ", ") + name;
  return all;
}

Result<std::vector<ChatPiece>> Render(ChatTemplate form, std::span<const ChatMessage> messages,
                                      bool add_generation_prompt) {
  if (Alternates(form) && !messages.empty()) {
    const size_t first = messages[0].role == ChatRole::kSystem ? 1 : 0;
    if (first == messages.size()) {
      return Misplaced(form, 0, messages[0].role, "user, and system before it");
    }
    for (size_t i = first; i < messages.size(); ++i) {
      const ChatRole due = (i - first) % 2 == 0 ? ChatRole::kUser : ChatRole::kAssistant;
      if (messages[i].role == due) continue;
      return Misplaced(form, i, messages[i].role,
                       (i == 0 ? "system, " : "") + std::string(Name(due)));
    }
  }
  Renderer renderer(messages, add_generation_prompt);
  switch (form) {
    case ChatTemplate::kChatml:
      renderer.Chatml();
      break;
    case ChatTemplate::kLlama2:
      renderer.Llama2();
      break;
    case ChatTemplate::kLlama3:
      renderer.Llama3();
      break;
    case ChatTemplate::kMistral:
      renderer.Mistral();
      break;
    case ChatTemplate::kPlain:
      renderer.Plain();
      break;
    case ChatTemplate::kZephyr:
      renderer.Zephyr();
      break;
  }
  return renderer.Take();
}

std::vector<int32_t> Encode(std::span<const ChatPiece> pieces, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  std::vector<TextPart> parts;  // adjacent parts are encoded as one text
  const auto flush = [&] {
    const std::vector<int32_t> encoded = tokenizer.Encode(parts);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
    parts.clear();
  };
  const auto add_token = [&](int32_t token) {
    for (const SpecialToken& special : tokenizer.special_tokens()) {
      if (special.token != token) continue;
      parts.push_back({special.text, SpecialTokens::kParsed});
      return;
    }
    flush();
    tokens.push_back(token);
  };
  for (const ChatPiece& piece : pieces) {
    switch (piece.kind) {
      case ChatPiece::kBegin:
        if (const auto begin = tokenizer.begin_token()) add_token(*begin);
        break;
      case ChatPiece::kEnd:
        add_token(tokenizer.end_token());
        break;
      case ChatPiece::kMarker:
        parts.push_back({piece.text, SpecialTokens::kParsed});
        break;
      case ChatPiece::kText:
        parts.push_back({piece.text});
        break;
    }
  }
  flush();
  return tokens;
}

std::string_view EndOfTurn(ChatTemplate form) {
  switch (form) {
    case ChatTemplate::kChatml:
      return "<|im_end|>";
    case ChatTemplate::kLlama3:
      return "<|eot_id|>";
    case ChatTemplate::kPlain:
      return "\n\n";
    case ChatTemplate::kLlama2:
    case ChatTemplate::kMistral:
    case ChatTemplate::kZephyr:
      return "";
  }
  return "";
}

}  // namespace triptych::server
