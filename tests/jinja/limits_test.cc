// Costs of operations: a template that repeats an expensive one reaches the limit of steps or of
// memory, however few nodes it has. Each test counts refusals; none measures time.
#include "engine/jinja/limits.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/jinja/error.h"
#include "engine/jinja/template.h"

namespace triptych::jinja::limits_test {
namespace {

constexpr size_t kLongBytes = size_t{1} << 20;
constexpr size_t kManyRuns = 20'000;

Value Data(const std::string& text) { return Value::Of(text, Source::kData); }

// Texts that a message may have, and a dict and a list of a thousand members.
Variables MakeVariables() {
  std::vector<Value> items;
  std::vector<std::pair<std::string, Value>> members;
  for (int i = 0; i < 1000; ++i) {
    items.push_back(Value::Of(int64_t{i}));
    members.emplace_back("member " + std::to_string(i), Value::Of(int64_t{i}));
  }
  std::vector<std::pair<std::string, Value>> long_keys;
  for (int i = 0; i < 4; ++i) {
    long_keys.emplace_back(std::string(kLongBytes, 'k') + std::to_string(i), Value::Of(int64_t{i}));
  }
  return {{"a", Data(std::string(kLongBytes, 'a'))},
          {"part", Data(std::string(kLongBytes / 2, 'a') + "b")},
          {"blanks", Data(std::string(kLongBytes, ' '))},
          {"digits", Data(std::string(kLongBytes, '1'))},
          {"list", Value::Of(std::move(items))},
          {"members", Value::Of(std::move(members), Source::kData)},
          {"keys", Value::Of(std::move(long_keys), Source::kData)}};
}

// The kind of the failure; kRaised if there is none.
RenderError::Kind Rendered(const std::string& text, int64_t steps,
                           size_t bytes = Limits().max_bytes) {
  static const Variables variables = MakeVariables();
  try {
    Template(text).Render(variables, {.max_steps = steps, .max_bytes = bytes}, 0);
    return RenderError::kRaised;
  } catch (const RenderError& error) {
    return error.kind();
  }
}

class CostTest : public ::testing::TestWithParam<const char*> {};

// With a step for each node alone, every one of these takes less than a hundred.
TEST_P(CostTest, IsThatOfTheBytesOrItems) {
  EXPECT_EQ(Rendered(GetParam(), 500), RenderError::kLimit);
  EXPECT_NE(Rendered(GetParam(), int64_t{1} << 40), RenderError::kLimit);
}

INSTANTIATE_TEST_SUITE_P(Operators, CostTest,
                         ::testing::Values("{% set x = a == a ~ '' %}", "{% set x = a < a %}",
                                           "{% set x = part in a %}", "{% set x = 'b' in a %}",
                                           "{% set x = 1000 in list %}", "{% set x = a[1] %}",
                                           "{% set x = a[5:6] %}", "{% set x = list[::2] %}",
                                           "{% set x = a ~ '' %}", "{% set x = list + list %}",
                                           "{% set x = list == list %}"));

INSTANTIATE_TEST_SUITE_P(
    Keys, CostTest,
    ::testing::Values("{% set x = {a: 1} %}", "{% set x = members[a] %}",
                      "{% set x = members.get(a) %}", "{% set x = a in members %}",
                      "{% set x = members == members %}",
                      "{% set x = keys.get('k') %}{% set y = dict(keys) %}",
                      "{% set x = {(a, a): 1} %}", "{% set x = '%(k)s' % {'k': a} %}",
                      "{% set x = [a, a] | unique | list %}", "{% set x = namespace(keys) %}",
                      "{% macro m() %}{{ kwargs | length }}{% endmacro %}{% set x = m(**keys) %}"));

INSTANTIATE_TEST_SUITE_P(
    Methods, CostTest,
    ::testing::Values(
        "{% set x = a.find(part) %}", "{% set x = a.rfind(part) %}", "{% set x = a.count(part) %}",
        "{% set x = a.find('b') %}", "{% set x = a.rfind('b') %}", "{% set x = a.count('b') %}",
        "{% set x = a.split(part) %}", "{% set x = a.rsplit(part) %}", "{% set x = a.split() %}",
        "{% set x = a.rsplit() %}", "{% set x = a.splitlines() %}",
        "{% set x = a.partition(part) %}", "{% set x = a.rpartition(part) %}",
        "{% set x = a.replace(part, '') %}", "{% set x = blanks.strip() %}",
        "{% set x = blanks.rstrip(' ') %}", "{% set x = 'b'.strip(a) %}",
        "{% set x = a.startswith(a) %}", "{% set x = a.endswith((a,)) %}",
        "{% set x = a.removeprefix(a) %}", "{% set x = a.removesuffix(a) %}",
        "{% set x = a.upper() %}", "{% set x = a.title() %}", "{% set x = a.capitalize() %}",
        "{% set x = a.isalpha() %}", "{% set x = a.islower() %}", "{% set x = digits.isdigit() %}",
        "{% set x = a.center(1) %}", "{% set x = 'b'.join([a, a]) %}", "{% set x = a.format() %}",
        "{% set x = members.items() %}", "{% set x = list.count(1) %}",
        "{% set x = list.index(999) %}"));

INSTANTIATE_TEST_SUITE_P(
    Filters, CostTest,
    ::testing::Values("{% set x = blanks | trim %}", "{% set x = blanks | int %}",
                      "{% set x = digits | int %}", "{% set x = blanks | float %}",
                      "{% set x = digits | float %}", "{% set x = a | length %}",
                      "{% set x = a | upper %}", "{% set x = a | title %}",
                      "{% set x = a | tojson %}", "{% set x = keys | tojson(sort_keys=true) %}",
                      "{% set x = [a] | string %}", "{% set x = a | e %}",
                      "{% set x = a | indent %}", "{% set x = a | wordcount %}",
                      "{% set x = '%s' | format(a) %}", "{% set x = '%.1s' % a %}",
                      "{% set x = '%.900f' % 1e300 %}", "{% set x = list | sort %}",
                      "{% set x = list | groupby(0) %}", "{% set x = list | map('abs') | list %}",
                      "{% set x = list | select('odd') | list %}", "{% set x = list | sum %}",
                      "{% set x = list | join %}", "{% set x = list | batch(9) | list %}",
                      "{% set x = a is lower %}", "{% set x = strftime_now('%c') %}"));

// Names in braces are looked for one by one.
TEST(LimitsTest, NamedArgumentsOfFormatsCount) {
  std::string many = "{{ '";
  for (int i = 0; i < 50; ++i) many += "{n}";
  many += "'.format(n=1, **members) }}";
  EXPECT_EQ(Rendered(many, 20'000), RenderError::kLimit);
}

TEST(LimitsTest, VariablesAndParametersCount) {
  std::string parameters = "p0";
  for (int i = 1; i < 1000; ++i) parameters += ", p" + std::to_string(i);
  EXPECT_EQ(Rendered("{% macro m(" + parameters + ") %}{% endmacro %}{{ m() }}", 2000),
            RenderError::kLimit);
  // Each call's scope has its thousand variables.
  EXPECT_EQ(Rendered("{% macro m(n, " + parameters +
                         ") %}{% if n %}{{ m(n - 1) }}{% endif %}"
                         "{% endmacro %}{{ m(20) }}",
                     int64_t{1} << 30, size_t{1} << 20),
            RenderError::kLimit);
}

TEST(LimitsTest, RunsOfBothSourcesCount) {
  const std::string make =
      "{% set x = ('b' ~ a[:1]) * " + std::to_string(kManyRuns) + " %}{% set y = x ~ '' %}";
  const auto without = [&](const std::string& more) { return Rendered(make + more, 200'000); };
  EXPECT_NE(without(""), RenderError::kLimit);
  EXPECT_EQ(without("{% set y = x ~ x ~ x ~ x ~ x %}"), RenderError::kLimit);
}

TEST(LimitsTest, AKeyOfTuplesThatShareTuplesIsBounded) {
  EXPECT_EQ(Rendered("{% set ns = namespace(t=('a', 'b')) %}{% for i in range(40) %}"
                     "{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1} }}",
                     Limits().max_steps),
            RenderError::kLimit);
}

// Names of namespaces, methods, reasons of undefined values and functions of loops count as memory.
TEST(LimitsTest, KeptValuesCount) {
  const auto of_ten_thousand = [](const std::string& value) {
    std::string text = "{% for i in [1] %}{% set l = [" + value;
    for (int i = 1; i < 10'000; ++i) text += "," + value;
    return text + "] %}{% endfor %}";
  };
  constexpr int64_t kAnySteps = int64_t{1} << 40;
  constexpr size_t kListBytes = 600'000;  // of ten thousand values, without their own memory
  EXPECT_NE(Rendered(of_ten_thousand("1"), kAnySteps, kListBytes), RenderError::kLimit);
  for (const char* const kept : {"''.upper", "a.b", "z", "loop.cycle"}) {
    EXPECT_EQ(Rendered(of_ten_thousand(kept), kAnySteps, kListBytes), RenderError::kLimit) << kept;
  }
  EXPECT_EQ(Rendered("{% set l = [namespace(keys), namespace(keys)] %}", kAnySteps, 6 << 20),
            RenderError::kLimit);
}

TEST(LimitsTest, LoopsThatAskForTheirLengthDoNotVisitTheirItems) {
  EXPECT_NE(Rendered("{% for i in list %}{{ loop.length }}{{ loop.revindex }}{% break %}"
                     "{% endfor %}",
                     100),
            RenderError::kLimit);
}

TEST(LimitsTest, NamesAreShort) {
  const std::string name(256, 'n');
  EXPECT_NO_THROW(Template("{{ " + name + " }}"));
  EXPECT_THROW(Template("{{ " + name + "n }}"), SyntaxError);
}

}  // namespace
}  // namespace triptych::jinja::limits_test
