// Tests of templates. compare.mjs compares published ones with other implementations.
#include "engine/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/jinja/from_json.h"

namespace triptych::jinja::template_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Text Rendered(const std::string& text, const std::string& data = "{}", const Limits& limits = {}) {
  Variables variables;
  const auto json = nlohmann::ordered_json::parse(data);
  for (const auto& [name, value] : json.items()) {
    variables.emplace_back(name, FromJson(value, Source::kData));
  }
  variables.emplace_back("bos", Value::Of("<s>", Source::kTemplate));
  return Template(text).Render(variables, limits, /*now=*/86'400);
}

// The rendered text, with the data's in [].
std::string Marked(const std::string& text, const std::string& data = "{}") {
  std::string marked;
  Rendered(text, data).ForEachRun([&](std::string_view run, Source source) {
    marked += source == Source::kData ? "[" + std::string(run) + "]" : std::string(run);
  });
  return marked;
}

std::string Plain(const std::string& text, const std::string& data = "{}") {
  return Rendered(text, data).bytes();
}

// The message of the failure.
std::string Failing(const std::string& text, const std::string& data = "{}") {
  try {
    return "rendered: " + Plain(text, data);
  } catch (const SyntaxError& error) {
    return error.what();
  } catch (const RenderError& error) {
    return error.what();
  }
}

bool ReachesLimit(const std::string& text, const std::string& data = "{}") {
  try {
    Rendered(text, data);
    return false;
  } catch (const RenderError& error) {
    return error.kind() == RenderError::kLimit;
  }
}

TEST(TemplateTest, BlanksAroundTagsAreTransformers) {
  EXPECT_EQ(Plain("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(Plain("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(Plain("a\n  {%+ if true +%}\nb{% endif %}"), "a\n  \nb");
  EXPECT_EQ(Plain("a {# x #}\n  {# y -#}  b"), "a b");
  EXPECT_EQ(Plain("{% raw %} {{ x }} {% endraw %}\n."), " {{ x }} .");
  EXPECT_EQ(Plain("a\r\nb\n\n"), "a\nb\n");
}

TEST(TemplateTest, ValuesHavePythonsText) {
  EXPECT_EQ(Plain("{{ [1, 2.0, none, true, 'a', \"it's\", ('x',), {'k': 'é\\n'}] }}"),
            "[1, 2.0, None, True, 'a', \"it's\", ('x',), {'k': 'é\\n'}]");
  EXPECT_EQ(Plain("{{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} "
                  "{{ 2 ** 10 }} {{ 6 / 3 }}"),
            "1e+16 0.30000000000000004 1e-05 3.5 -4 2 1024 2.0");
  EXPECT_EQ(Plain("{{ missing }}|{{ missing is defined }}|{{ none }}|{{ 'a' ~ 1 ~ none }}"),
            "|False|None|a1None");
}

TEST(TemplateTest, ExpressionsHavePythonsMeaning) {
  EXPECT_EQ(Plain("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' in 'cat' }} {{ 'x' not in {'x': 1} }} "
                  "{{ not 1 == 2 }} {{ (1 if false) is undefined }} {{ 'a' if 0 else 'b' }}"),
            "True False True False True True b");
  EXPECT_EQ(Plain("{{ 'aébc'[1:3] }} {{ 'abc'[::-1] }} {{ [1, 2, 3][-2:] }} {{ 'abc'[-1] }} "
                  "{{ [1, 2, 3][::2] }}"),
            "éb cba [2, 3] c [1, 3]");
  EXPECT_EQ(Plain("{{ '%s is %d%% of %.2f' % ('x', 5, 1.005) }} {{ '{} {b}'.format(1, b=2) }}"),
            "x is 5% of 1.00 1 2");
}

TEST(TemplateTest, LoopsKnowTheirPlace) {
  EXPECT_EQ(Plain("{% for x in 'abc' %}{{ loop.index }}{{ loop.first }}{{ loop.last }}"
                  "{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}"),
            "1TrueFalseb 2FalseFalseac 3FalseTrueb ");
  EXPECT_EQ(Plain("{% for x in [1, 2, 3, 4] if x is even %}{{ x }}/{{ loop.length }} {% else %}-"
                  "{% endfor %}{% for x in [] %}{% else %}none{% endfor %}"),
            "2/2 4/2 none");
  EXPECT_EQ(Plain("{% for x in range(9) %}{% if x == 1 %}{% continue %}{% elif x > 3 %}{% break %}"
                  "{% endif %}{{ x }}{% endfor %}"),
            "023");
  EXPECT_EQ(Plain("{% for x in range(4) %}{% with y = x %}{% if y == 1 %}{% break %}{% endif %}"
                  "{{ y }}{% endwith %}{% endfor %}"),
            "0");
  EXPECT_EQ(Plain("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
                  R"({"d": {"b": 1, "a": 2}})"),
            "b=1;a=2;");
  EXPECT_EQ(Plain("{% for x in t recursive %}{{ x.n }}{{ loop(x.c) if x.c }}{% endfor %}",
                  R"({"t": [{"n": 1, "c": [{"n": 2, "c": []}]}, {"n": 3}]})"),
            "123");
}

// As Jinja's extension of loop controls, which writes Python's break and continue in their place.
TEST(TemplateTest, BreakAndContinueLeaveBlocksToTheLoopAround) {
  const std::string for_each = "{% for i in [1, 2, 3] %}{{ i }}";
  EXPECT_EQ(Plain(for_each + "{% for j in [] %}{% else %}{% break %}{% endfor %}!{% endfor %}"),
            "1");
  EXPECT_EQ(Plain(for_each + "{% for j in [] %}{% else %}{% continue %}{% endfor %}!{% endfor %}"),
            "123");
  EXPECT_EQ(Plain(for_each + "{% set x %}a{% if i == 2 %}{% break %}{% endif %}{% endset %}{{ x }}"
                             "{% endfor %}"),
            "1a2");
  EXPECT_EQ(Plain(for_each + "{% filter upper %}a{% if i == 2 %}{% continue %}{% endif %}"
                             "{% endfilter %}{% endfor %}"),
            "1A23A");
  EXPECT_EQ(Plain(for_each + "{% with y = 1 %}{% break %}{% endwith %}!{% endfor %}"), "1");
  EXPECT_EQ(Failing("{% for j in [] %}{% else %}{% break %}{% endfor %}"),
            "line 1: break and continue are allowed in a loop only");
  EXPECT_EQ(Failing(for_each + "{% for j in [] recursive %}{% else %}{% break %}{% endfor %}"
                               "{% endfor %}"),
            "line 1: break and continue are allowed in a loop only");
}

TEST(TemplateTest, ErrorsNameTheMethod) {
  EXPECT_EQ(Failing("{{ 'a'.lower(1) }}"), "line 1: lower has 1 arguments; allowed: at most 0");
  EXPECT_EQ(Failing("{{ 'a'.rstrip(1) }}"), "line 1: rstrip: chars is of type int; allowed: str");
  EXPECT_EQ(Failing("{{ 'a'.isalpha(1) }}"), "line 1: isalpha has 1 arguments; allowed: at most 0");
  EXPECT_EQ(Failing("{{ 'a'.removesuffix() }}"), "line 1: removesuffix needs the argument suffix");
  EXPECT_EQ(Failing("{{ 'a' | lower(1) }}"), "line 1: lower has 1 arguments; allowed: at most 0");
  EXPECT_EQ(Failing("{{ [1] | max(1, 2, 3) }}"), "line 1: max has 3 arguments; allowed: at most 2");
}

TEST(TemplateTest, NamesOfALoopEndWithItAndNamespacesDoNot) {
  EXPECT_EQ(
      Plain("{% set x = 0 %}{% set ns = namespace(x=0) %}{% for i in [1, 2] %}"
            "{% set x = x + i %}{% set ns.x = ns.x + i %}{{ x }}{% endfor %} {{ x }} {{ ns.x }}"),
      "12 0 3");
  EXPECT_THAT(Failing("{% set d = {} %}\n{% set d.x = 1 %}"),
              "line 2: cannot assign to an attribute of 'd'; allowed: namespaces");
}

TEST(TemplateTest, MacrosHaveDefaultsAndCallers) {
  EXPECT_EQ(
      Plain("{% macro m(a, b=a ~ '!') %}<{{ a }}{{ b }}{{ caller() if caller }}>{% endmacro %}"
            "{{ m(1) }}{{ m(b=2, a=3) }}{% call m(4) %}in{% endcall %}"),
      "<11!><32><44!in>");
  EXPECT_EQ(
      Plain("{% set x %} a {% endset %}{{ x | trim | upper }}{% filter upper %}b{% endfilter %}"
            "{% generation %}c{% endgeneration %}"),
      "ABc");
}

TEST(TemplateTest, FiltersAndTests) {
  const std::string data = R"({"l": [{"n": "b", "v": 2}, {"n": "A", "v": 1}, {"n": "c"}]})";
  EXPECT_EQ(
      Plain("{{ l | map(attribute='n') | join(',') }} {{ l | selectattr('v', 'defined') | list | "
            "length }} {{ l | rejectattr('n', 'in', ['c']) | map(attribute='v') | sum }} "
            "{{ l | map(attribute='n') | sort | join }} {{ ['a', 'b'] | map('upper') | list }}",
            data),
      "b,A,c 2 3 Abc ['A', 'B']");
  EXPECT_EQ(
      Plain("{{ {'a': [1, {}], 'b': 'é<\"'} | tojson }} {{ [1] | tojson(indent=2) }} "
            "{{ 'é' | tojson(ensure_ascii=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }}"),
      "{\"a\": [1, {}], \"b\": \"é<\\\"\"} [\n  1\n] \"\\u00e9\" [1,2]");
  EXPECT_EQ(Plain("{{ 'x' is string }}{{ {} is mapping }}{{ 'x' is iterable }}{{ 1 is number }}"
                  "{{ true is integer }}{{ 4 is divisibleby 2 }}{{ none is not none }}"),
            "TrueTrueTrueTrueFalseTrueFalse");
  EXPECT_EQ(
      Plain("{{ 'a\nb\n\nc' | indent(2) }}|{{ x | default('d') }}|{{ '' | d('e', true) }}|"
            "{{ 2.5 | round }}|{{ '7x' | int(3) }}|{{ [3, 1] | max }}|{{ 'straße' | upper }}"),
      "a\n  b\n\n  c|d|e|2.0|3|3|STRASSE");
  EXPECT_EQ(Plain("{{ strftime_now('%d %B %Y') }}"), "02 January 1970");
}

TEST(TemplateTest, ListsAndDictsCannotBeChanged) {
  EXPECT_EQ(Failing("{% set x = [] %}{{ x.append(1) }}"),
            "line 1: the method 'append' changes its object, which is not allowed");
  EXPECT_EQ(Plain("{{ {}.update is defined }}"), "False");
}

TEST(TemplateTest, ErrorsNameTheLine) {
  EXPECT_EQ(Failing("\n{% if x %}"),
            "line 2: unexpected the end of the template; expected: {% endif %}");
  EXPECT_EQ(Failing("\n\n{{ x | nope }}"), "line 3: there is no filter 'nope'");
  EXPECT_EQ(Plain("{% if false %}{{ x | nope }}{% endif %}."), ".");
  EXPECT_EQ(Failing("{% if true %}\n{{ x | nope }}{% endif %}."),
            "line 2: there is no filter 'nope'");
  EXPECT_THAT(Failing("{% include 'x' %}"),
              StartsWith("line 1: the tag 'include' is not supported"));
  EXPECT_EQ(Failing("\n{{ x.y }}"), "line 2: 'x' is undefined");
  EXPECT_EQ(Failing("{{ 1 + 'a' }}"), "line 1: '+' is not defined for int and str");
  EXPECT_EQ(Failing("a\n{{ raise_exception('Roles must alternate') }}"), "Roles must alternate");
  EXPECT_THAT(Failing("\n\xFF"), "line 2: the template is not UTF-8");
}

TEST(TemplateTest, TextKeepsItsSource) {
  const std::string data = R"({"m": " <|a|>b <|a|> ", "r": "user"})";
  EXPECT_EQ(Marked("<|a|>{{ m | trim }}{{ '<|b|>' + m[1:3] }}", data),
            "<|a|>[<|a|>b <|a|>]<|b|>[<|]");
  EXPECT_EQ(Marked("{{ m.split('<|a|>') | join('<|c|>') }}", data), "[ ]<|c|>[b ]<|c|>[ ]");
  EXPECT_EQ(Marked("{{ m.replace('b', '<|c|>') | upper }}", data), "[ <|A|>]<|C|>[ <|A|> ]");
  EXPECT_EQ(Marked("{{ [m, '<|c|>'] | tojson }}", data), "[[\" <|a|>b <|a|> \", \"]<|c|>[\"]]");
  EXPECT_EQ(Marked("{{ '%s|%s' % (m[0], 'x') }}{{ '{}'.format(r) }}{{ bos }}{{ 1 }}", data),
            "[ ]|x[user]<s>1");
  EXPECT_EQ(
      Marked("{% for c in r %}{{ c }}-{% endfor %}{% set x %}{{ r }}!{% endset %}{{ x }}", data),
      "[u]-[s]-[e]-[r]-[user]!");
  EXPECT_EQ(Marked("{{ r | indent }}{{ [r] }}{{ r ~ r | e }}{{ r * 2 }}", data),
            "[user['user']useruseruseruser]");
}

TEST(TemplateTest, HostileTemplatesReachALimit) {
  EXPECT_TRUE(ReachesLimit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"));
  EXPECT_TRUE(
      ReachesLimit("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}"
                   "{% set ns.x = ns.x + ns.x %}{% endfor %}"));
  EXPECT_TRUE(ReachesLimit("{{ 'a' * 10 ** 12 }}"));
  EXPECT_TRUE(ReachesLimit("{{ [0] * 10 ** 12 }}"));
  EXPECT_TRUE(ReachesLimit("{{ range(10 ** 9) | list }}"));
  EXPECT_TRUE(
      ReachesLimit("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"));
  EXPECT_TRUE(
      ReachesLimit("{% set ns = namespace(x=1) %}{% for i in range(10000) %}"
                   "{% set ns.x = [ns.x] %}{% endfor %}"));
  EXPECT_TRUE(
      ReachesLimit("{% set ns = namespace(x='a' * 100000) %}{% for i in range(100000) %}"
                   "{{ ns.x }}{% endfor %}"));
  EXPECT_TRUE(ReachesLimit("{% set x = 'ab' * 1000000 %}{{ x.replace('a', x) }}"));
  EXPECT_TRUE(ReachesLimit("{% set x = 'ab' * 1000000 %}{{ x | list | join(x) }}"));
  EXPECT_TRUE(ReachesLimit("{% set x = ['ab'] * 1000 %}{% set y = [x] * 1000 %}{{ [y] * 1000 }}"));
  EXPECT_TRUE(
      ReachesLimit("{% set ns = namespace() %}{% for i in range(100000) %}"
                   "{% for x in [ns.p] %}{% set ns.p = loop %}{% endfor %}{% endfor %}"));
}

TEST(TemplateTest, DeepSyntaxIsRefused) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const std::string deep = "levels deep";
  EXPECT_THAT(Failing("{{ " + repeated("(", 50'000) + "1" + repeated(")", 50'000) + "}}"),
              HasSubstr(deep));
  EXPECT_THAT(Failing("{{ " + repeated("[", 50'000) + repeated("]", 50'000) + "}}"),
              HasSubstr(deep));
  EXPECT_THAT(Failing("{{ " + repeated("-", 100'000) + "1 }}"), HasSubstr(deep));
  EXPECT_THAT(Failing("{{ " + repeated("not ", 100'000) + "1 }}"), HasSubstr(deep));
  EXPECT_THAT(Failing("{{ 1" + repeated("+1", 50'000) + " }}"), HasSubstr(deep));
  EXPECT_THAT(Failing("{{ a" + repeated(".a", 50'000) + " }}"), HasSubstr(deep));
  EXPECT_THAT(Failing("{{ a" + repeated("|trim", 50'000) + " }}"), HasSubstr(deep));
  EXPECT_THAT(Failing("{{ 1" + repeated(" if 1", 20'000) + " }}"), HasSubstr(deep));
  EXPECT_THAT(Failing(repeated("{% if 1 %}", 20'000)), HasSubstr(deep));
  EXPECT_THAT(Failing("{% set " + repeated("(", 50'000) + "a" + repeated(")", 50'000) + "=1 %}"),
              HasSubstr(deep));
  EXPECT_THAT(Failing(repeated("{{1}}", 100'000)), HasSubstr("more than 131072 tokens"));
}

TEST(TemplateTest, ValuesThatReferToThemselvesAreFreed) {  // LeakSanitizer sees the others
  EXPECT_EQ(Plain("{% set ns = namespace() %}{% set ns.x = [ns] %}{% macro m() %}{% endmacro %}"
                  "{% set ns.m = m %}ok"),
            "ok");
}

}  // namespace
}  // namespace triptych::jinja::template_test
