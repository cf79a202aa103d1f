// Tests of recognising a model's chat template. tests/server/chat_templates tests published ones.
#include "server/core/chat/chat_template_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/file.h"

namespace triptych::server::chat_template_file_test {
namespace {

TEST(CanonicalJinjaTest, SpaceThatIsRenderedNowhereIsGone) {
  const std::string canonical = "a{%if x is y%}{{'b\\n'+c}}\n{%endif%} d";
  EXPECT_EQ(CanonicalJinja("a{%if x is y%}{{'b\\n'+c}}\n{%endif%} d"), canonical);
  EXPECT_EQ(CanonicalJinja("a{% if x  is\ny %}{{ \"b\n\" + c }}\n{% endif %} d\n"), canonical);
  // trim_blocks and lstrip_blocks.
  EXPECT_EQ(CanonicalJinja("a{% if x is y %}\n{{ 'b\\n' + c }}\n  {% endif %}\n d"), canonical);
  EXPECT_EQ(CanonicalJinja("a \n {%- if x is y -%} \n\t{{ 'b\\n' + c }}\n{% endif %} d"),
            canonical);
}

TEST(CanonicalJinjaTest, WhatIsRenderedStays) {
  for (const auto& [one, other] : std::vector<std::pair<std::string, std::string>>{
           {"{{ 'a b' }}", "{{ 'ab' }}"},
           {"{{ 'a' }} {{ b }}", "{{ 'a' }}{{ b }}"},
           {"{{ 'a' }}\n{{ b }}", "{{ 'a' }}{{ b }}"},
           {"{% if a %} {% endif %}", "{% if a %}{% endif %}"},
           {"x {% if a %}", "x{% if a %}"},
           {" {{ a }}", "{{ a }}"},
           {"{{ a -}} b", "{{ a }} b"},
           {"a {{- b }}", "a {{ b }}"},
           {"{{ 'a\\'b' }}", "{{ 'a' b' }}"},
           {"{{ \"a'\" }}", "{{ 'a\"' }}"},
           {"{{ not a }}", "{{ nota }}"},
           {"a\n", "a\n\n"},
       }) {
    EXPECT_NE(CanonicalJinja(one), CanonicalJinja(other)) << one;
  }
}

TEST(CanonicalJinjaTest, TakesTextsThatAreNone) {
  for (const std::string text :
       {"", "{", "{{", "{%", "{{-", "{{ '", "{{ 'a\\", "{{ a", "}}", "%}"}) {
    EXPECT_EQ(KnownChatTemplate(text), std::nullopt) << text;
  }
}

TEST(ChatTemplateFileTest, TheShippedModelsAreAskedPlainly) {
  for (const std::string kind : {"mha", "gqa", "mla"}) {
    const std::string text = ReadText(std::filesystem::path(TRIPTYCH_MODELS_DIR) /
                                          ("shakespeare-" + kind) / "chat_template.jinja",
                                      1 << 20);
    EXPECT_EQ(KnownChatTemplate(text), ChatTemplate::kPlain);
    EXPECT_EQ(KnownChatTemplate(text + "."), std::nullopt);
  }
}

}  // namespace
}  // namespace triptych::server::chat_template_file_test
