// Chat templates: conversations as prompts.
#ifndef TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_H_
#define TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/names.h"
#include "engine/jinja/template.h"
#include "engine/text/tokenizer.h"
#include "server/core/chat/built_in_templates.h"
#include "server/core/error.h"
#include "server/core/tools/call_format.h"
#include "server/core/tools/tools.h"

namespace triptych::server {

enum class ChatRole { kSystem, kUser, kAssistant, kTool };

constexpr std::string_view Name(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
    case ChatRole::kTool:
      return "tool";
  }
  return "";
}

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;
  std::optional<std::string> reasoning = {};  // the variable reasoning_content
  std::vector<ToolCall> tool_calls = {};      // of the assistant
  std::string tool_call_id = {};              // kTool: of the call whose result this is
  std::string name = {};                      // kTool: of the function, if the client names it
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends with the last message's text
  Json variables = nullptr;             // an object, or null: chat_template_kwargs
  OrderedJson tools = nullptr;          // as ToolsJson makes them, or null
  // The last message's index in errors; absent: its own.
  std::optional<size_t> last_message = {};
};

// Facts about a template's use of tools, found by rendering a small conversation.
struct ToolSupport {
  bool shows_tools = false;            // otherwise the server describes them
  bool shows_calls = false;            // of the assistant's messages
  bool one_call = false;               // a message of the assistant has at most one
  bool shows_results = false;          // messages of the role "tool"
  bool calls_have_no_content = false;  // messages with calls are those whose content is none
  bool text_arguments = false;         // arguments of calls are texts for the template, not objects
  bool shows_system = false;           // messages of the role "system"
  CallFormat format = {};
  std::vector<int32_t> marker_tokens = {};  // special tokens that mark calls
};

// The template of a model. Immutable and thread-safe.
class ChatTemplate {
 public:
  // Texts of special tokens by the names of their variables, such as bos_token.
  using SpecialTexts = std::map<std::string, std::string>;

  // Begin and end token are the tokenizer's unless `special` names them. Never throws for a text:
  // see error().
  ChatTemplate(ChatTemplateText text, const Tokenizer& tokenizer, const SpecialTexts& special);

  const std::string& name() const { return name_; }
  // The line and the reason if the text cannot be used; otherwise empty.
  const std::string& error() const { return error_; }
  // The text or special token that ends a reply, in addition to the end tokens; empty if none does.
  const std::string& end_of_turn() const { return end_of_turn_; }
  // True if replies may begin with thoughts in <think> and </think>.
  bool reasons() const { return reasons_; }
  const ToolSupport& tools() const { return tools_; }
  // The markers <|...|> in the text that are no tokens of the tokenizer.
  const std::vector<std::string>& missing_markers() const { return missing_markers_; }

  // The prompt. Only the template's own text and roles count as the template's. REQUIRES: no
  // error(). A hostile template takes about a second, and as much for each MiB of messages.
  Result<jinja::Text> Render(std::span<const ChatMessage> messages,
                             const ChatOptions& options) const;

 private:
  Result<jinja::Text> RenderOnce(std::span<const ChatMessage> messages, const ChatOptions& options,
                                 bool add_generation_prompt) const;
  std::string FindEndOfTurn(const Tokenizer& tokenizer) const;
  void FindToolSupport(const std::string& text, const Tokenizer& tokenizer);

  const std::string name_;
  std::string error_;
  std::optional<jinja::Template> template_;
  jinja::Variables special_;
  std::string end_of_turn_;
  bool reasons_ = false;
  ToolSupport tools_;
  std::vector<std::string> missing_markers_;
};

// The bytes of the prompt's text, without begin and end tokens that have no text.
int64_t TextBytes(const jinja::Text& prompt);

// The prompt's tokens. Special tokens are parsed in the template's text alone. Throws EncodeError.
std::vector<int32_t> Encode(const jinja::Text& prompt, const Tokenizer& tokenizer);

// True if the prompt ends with an open <think>, so that the reply begins with thoughts.
bool EndsInThoughts(const jinja::Text& prompt);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_H_
