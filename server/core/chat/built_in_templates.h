// Chat templates that options name.
#ifndef TRIPTYCH_SERVER_CORE_CHAT_BUILT_IN_TEMPLATES_H_
#define TRIPTYCH_SERVER_CORE_CHAT_BUILT_IN_TEMPLATES_H_

#include <optional>
#include <string>
#include <string_view>

namespace triptych::server {

// The Jinja text of a chat template.
struct ChatTemplateText {
  std::string name;  // of a built-in one, of a file without its folder, or kOwnTemplate
  std::string text;

  bool operator==(const ChatTemplateText&) const = default;
};

inline constexpr std::string_view kOwnTemplate = "own";  // the checkpoint's

// The template of that name; absent if there is none.
std::optional<ChatTemplateText> BuiltInTemplate(std::string_view name);

// The names of all built-in templates, separated by commas, for messages.
std::string BuiltInTemplateNames();

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_BUILT_IN_TEMPLATES_H_
