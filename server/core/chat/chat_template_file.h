// Recognition of a model's own chat template.
#ifndef TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_FILE_H_
#define TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_FILE_H_

#include <optional>
#include <string>
#include <string_view>

#include "server/core/chat/chat_template.h"

namespace triptych::server {

// Canonical text of a Jinja template: without white space that does not reach the output (with
// trim_blocks and lstrip_blocks, as for published templates) and with one style of quotation marks.
// Templates with the same canonical text render the same.
std::string CanonicalJinja(std::string_view text);

// The template whose published text `jinja` is, up to CanonicalJinja; absent if there is none. A
// text that is merely similar may render differently, so it is not recognized.
std::optional<ChatTemplate> KnownChatTemplate(std::string_view jinja);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_CHAT_CHAT_TEMPLATE_FILE_H_
