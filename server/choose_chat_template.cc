#include "server/choose_chat_template.h"

#include <spdlog/fmt/fmt.h>

#include <string>
#include <utility>

#include "engine/base/error.h"

namespace triptych::server {
namespace {

// The template that an option chooses; absent if the checkpoint has none of that name.
std::optional<ChatTemplateText> Chosen(const ChatTemplateText& choice,
                                       const checkpoint::OwnChatTemplates& own) {
  if (!choice.own) return choice;
  const auto found = own.texts.find(*choice.own);
  if (found == own.texts.end()) return std::nullopt;
  return OwnTemplate(found->first, found->second);
}

// Names of the checkpoint's templates, for messages.
std::string TemplateNames(const checkpoint::OwnChatTemplates& own) {
  if (own.texts.empty()) return "none";
  std::string names;
  for (const auto& [name, text] : own.texts) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

std::shared_ptr<const ChatTemplate> ChooseChatTemplate(
    const ModelOptions& model, const checkpoint::OwnChatTemplates& own, const Tokenizer& tokenizer,
    const std::optional<ChatTemplateText>& otherwise, ModelOrigins& origins) {
  const auto make = [&](const ChatTemplateText& text) {
    return std::make_shared<const ChatTemplate>(text, tokenizer, own.special_tokens);
  };
  const auto warn_of = [&](const ChatTemplate& unusable, const std::string& instead) {
    origins.warnings.push_back(fmt::format("its chat template {} cannot be used: {}; {}",
                                           unusable.name(), unusable.error(), instead));
  };
  constexpr const char* kRefused =
      "chat requests are refused, unless chat-template=FILE or NAME is set";
  const auto found = own.texts.find(checkpoint::kDefaultTemplate);
  const bool has_default = found != own.texts.end();
  origins.chat = has_default ? "the checkpoint's own"
                 : own.texts.empty()
                     ? "the checkpoint has none; chat-template=FILE or NAME sets one"
                     : "the checkpoint has no default one, but " + TemplateNames(own) +
                           "; chat-template=own:NAME sets one";
  std::optional<ChatTemplateText> set;
  if (model.chat_template) {
    set = Chosen(*model.chat_template, own);
    if (!set) {
      throw LoadError(
          fmt::format("model {}: chat-template is \"{}\"; the checkpoint's templates: {}",
                      model.name, model.chat_template->name, TemplateNames(own)));
    }
  } else if (otherwise) {
    set = Chosen(*otherwise, own);
  }
  std::shared_ptr<const ChatTemplate> unusable;  // the default one
  if (has_default && !model.chat_template) {
    auto own_default = make(OwnTemplate(found->first, found->second));
    if (own_default->error().empty()) return own_default;
    unusable = std::move(own_default);
  }
  if (!set) {
    if (unusable != nullptr) warn_of(*unusable, kRefused);
    return unusable;
  }
  const auto chosen = make(*set);
  const bool is_usable = chosen->error().empty();
  if (unusable != nullptr) {
    warn_of(*unusable, is_usable ? "--chat-template takes its place"
                                 : "--chat-template cannot take its place");
  }
  const bool is_own = (model.chat_template ? *model.chat_template : *otherwise).own.has_value();
  origins.chat = model.chat_template ? "by the model's chat-template=" : "by --chat-template";
  if (!is_usable) {  // only the checkpoint's: others were checked with the options
    warn_of(*chosen, kRefused);
    return chosen;
  }
  if (is_own) return chosen;
  if (has_default && model.chat_template && found->second != set->text) {
    origins.warnings.push_back(
        fmt::format("the chat template {} takes the place of the model's own", chosen->name()));
  }
  if (!chosen->missing_markers().empty()) {
    origins.warnings.push_back(
        fmt::format("markers of the chat template {} are no tokens of its tokenizer: {}",
                    chosen->name(), fmt::join(chosen->missing_markers(), " ")));
  }
  return chosen;
}

}  // namespace triptych::server
