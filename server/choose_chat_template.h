// Choice of the chat template of a model that is loaded.
#ifndef TRIPTYCH_SERVER_CHOOSE_CHAT_TEMPLATE_H_
#define TRIPTYCH_SERVER_CHOOSE_CHAT_TEMPLATE_H_

#include <memory>
#include <optional>

#include "engine/checkpoint/tokenizer/chat_templates.h"
#include "engine/text/tokenizer.h"
#include "server/core/chat/built_in_templates.h"
#include "server/core/chat/chat_template.h"
#include "server/model_log.h"
#include "server/option_values.h"

namespace triptych::server {

// The model's chat template: the one of its options, or else its default one if that can be used,
// or else `otherwise` if that is a text or names one of its templates, or else its default one.
// Null if there is none of these. A template that cannot be used has its error. Sets the origin and
// adds warnings. Throws LoadError if the options name a template that is not there.
std::shared_ptr<const ChatTemplate> ChooseChatTemplate(
    const ModelOptions& model, const checkpoint::OwnChatTemplates& own, const Tokenizer& tokenizer,
    const std::optional<ChatTemplateText>& otherwise, ModelOrigins& origins);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CHOOSE_CHAT_TEMPLATE_H_
