// Messages of chats in the bodies of all APIs.
#ifndef TRIPTYCH_SERVER_HTTP_CHAT_MESSAGES_H_
#define TRIPTYCH_SERVER_HTTP_CHAT_MESSAGES_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/core/chat/chat_template.h"
#include "server/http/fields.h"

namespace triptych::server {

// The text of the member `name`, a string or a list of text parts, which become lines. `path`: the
// prefix of the member's name in errors.
std::string ReadContent(Fields& fields, const std::string& name, const std::string& path);

// The messages in the member `name`. `object`: the text of the JSON object whose members `fields`
// reads; objects in arguments of calls keep the order of their members. Members that change nothing
// are ignored. Thoughts of the assistant are a member of its message, such as reasoning_content;
// parts of the type "thinking" in its content; or items of the type "reasoning" before it, which
// without it are a message without content.
std::vector<ChatMessage> ReadMessages(Fields& fields, const std::string& name,
                                      std::string_view object);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_CHAT_MESSAGES_H_
