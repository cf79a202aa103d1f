#include "server/core/chat/built_in_templates.h"

#include <map>

namespace triptych::server {
namespace {

constexpr std::string_view kOwn = "own";  // the checkpoint's
constexpr std::string_view kDefaultName = "default";

constexpr const char* kChatml = R"({% for message in messages %}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{%- endif %})";

// The system's text is a part of the user's first turn.
constexpr const char* kLlama2 = R"({% set system = namespace(text='') %}
{% for message in messages %}
{% if message.role == 'system' %}
{% if not loop.first %}
{{ raise_exception('A system message is not the first one') }}
{% endif %}
{% set system.text = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' %}
{% elif message.role == 'user' %}
{% if loop.previtem is defined and loop.previtem.role == 'user' %}
{{ raise_exception('Messages of user and assistant do not alternate') }}
{% endif %}
{{ bos_token ~ '[INST] ' ~ (system.text + message.content).strip() ~ ' [/INST]' }}
{%- set system.text = '' %}
{% else %}
{% if loop.previtem is undefined or loop.previtem.role != 'user' %}
{{ raise_exception('Messages of user and assistant do not alternate') }}
{% endif %}
{{ ' ' + message.content.strip() + ' ' + eos_token }}
{%- endif %}
{% endfor %}
{% if system.text %}
{{ raise_exception('A system message has no user message after it') }}
{% endif %})";

constexpr const char* kLlama3 = R"({{ bos_token }}
{%- for message in messages %}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content.strip() }}
{{- '<|eot_id|>' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})";

constexpr const char* kMistral = R"({% set system = namespace(text='') %}
{{ bos_token }}
{%- for message in messages %}
{% if message.role == 'system' %}
{% if not loop.first %}
{{ raise_exception('A system message is not the first one') }}
{% endif %}
{% set system.text = message.content + '\n\n' %}
{% elif message.role == 'user' %}
{% if loop.previtem is defined and loop.previtem.role == 'user' %}
{{ raise_exception('Messages of user and assistant do not alternate') }}
{% endif %}
{{ ' [INST] ' + system.text + message.content + ' [/INST]' }}
{%- set system.text = '' %}
{% else %}
{% if loop.previtem is undefined or loop.previtem.role != 'user' %}
{{ raise_exception('Messages of user and assistant do not alternate') }}
{% endif %}
{{ ' ' + message.content + eos_token }}
{%- endif %}
{% endfor %}
{% if system.text %}
{{ raise_exception('A system message has no user message after it') }}
{% endif %})";

// Names before speeches, as in a play.
constexpr const char* kPlain = R"({{ bos_token }}
{%- for message in messages %}
{% if message.role != 'system' %}
{{ message.role.capitalize() + ':\n' }}
{%- endif %}
{{ message.content + '\n\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ 'Assistant:\n' }}
{%- endif %})";

constexpr const char* kZephyr = R"({% for message in messages %}
{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|assistant|>\n' }}
{%- endif %})";

const std::map<std::string_view, const char*>& Templates() {
  static const std::map<std::string_view, const char*> templates = {
      {"chatml", kChatml},   {"llama2", kLlama2}, {"llama3", kLlama3},
      {"mistral", kMistral}, {"plain", kPlain},   {"zephyr", kZephyr}};
  return templates;
}

}  // namespace

ChatTemplateText OwnTemplate(const std::string& name, const std::string& text) {
  return {name == kDefaultName ? std::string(kOwn) : std::string(kOwn) + ":" + name, text};
}

std::optional<ChatTemplateText> OwnTemplateChoice(std::string_view text) {
  if (!text.starts_with(kOwn)) return std::nullopt;
  text.remove_prefix(kOwn.size());
  if (!text.empty() && (text.front() != ':' || text.size() == 1)) return std::nullopt;
  const std::string name(text.empty() ? kDefaultName : text.substr(1));
  ChatTemplateText choice = OwnTemplate(name, "");
  choice.own = name;
  return choice;
}

std::optional<ChatTemplateText> BuiltInTemplate(std::string_view name) {
  const auto found = Templates().find(name);
  if (found == Templates().end()) return std::nullopt;
  return ChatTemplateText{std::string(name), found->second};
}

std::string BuiltInTemplateNames() {
  std::string all;
  for (const auto& [name, text] : Templates()) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

}  // namespace triptych::server
