// Which of the chat templates a model's own is.
#ifndef TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_FILE_H_
#define TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_FILE_H_

#include <optional>
#include <string>
#include <string_view>

#include "server/core/chat/chat_template.h"

namespace triptych::server {

// The text of a Jinja template without what makes no difference to what it renders: white space
// that is rendered nowhere (with trim_blocks and lstrip_blocks, as published templates are), and
// how a string is quoted. Two texts of which this is the same render the same.
std::string CanonicalJinja(std::string_view text);

// The template that a published text is; nothing if it is none that is known here, as one that is
// like them may render otherwise.
std::optional<ChatTemplate> KnownChatTemplate(std::string_view jinja);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_FILE_H_
