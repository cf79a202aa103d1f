// Chat templates that options name.
#ifndef TRIPTYCH_SERVER_CORE_CHAT_BUILT_IN_TEMPLATES_H_
#define TRIPTYCH_SERVER_CORE_CHAT_BUILT_IN_TEMPLATES_H_

#include <optional>
#include <string>
#include <string_view>

namespace triptych::server {

// The Jinja text of a chat template.
struct ChatTemplateText {
  std::string name;  // of a built-in one, of a file without its folder, "own" or "own:NAME"
  std::string text;
  // In an option: the name of one of the checkpoint's templates, whose text is not known yet.
  std::optional<std::string> own = {};

  bool operator==(const ChatTemplateText&) const = default;
};

// The checkpoint's template of that name.
ChatTemplateText OwnTemplate(const std::string& name, const std::string& text);

// The choice "own" or "own:NAME" of an option; absent for other texts.
std::optional<ChatTemplateText> OwnTemplateChoice(std::string_view text);

// The template of that name; absent if there is none.
std::optional<ChatTemplateText> BuiltInTemplate(std::string_view name);

// The names of all built-in templates, separated by commas, for messages.
std::string BuiltInTemplateNames();

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_BUILT_IN_TEMPLATES_H_
