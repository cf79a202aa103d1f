#include <cmath>
#include <string_view>

#include "engine/base/quoted.h"
#include "engine/grammar/error.h"
#include "engine/grammar/json_number.h"
#include "engine/grammar/pattern_length.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/string_formats.h"

namespace triptych::grammar {
namespace {

constexpr int64_t kMaxDivisor = 100;
constexpr int64_t kMaxMultiples = 4096;

}  // namespace

Expression SchemaCompiler::StringOf(const OrderedJson& schema, const std::string& path) {
  return json_.Quoted(Content(schema, path));
}

Expression SchemaCompiler::Content(const OrderedJson& schema, const std::string& path) {
  const int32_t min = CountOf(schema, "minLength", path).value_or(0);
  const int32_t max = CountOf(schema, "maxLength", path).value_or(Expressions::kUnbounded);
  const bool has_length = min > 0 || max != Expressions::kUnbounded;
  const char* const key = schema.contains("pattern") ? "pattern" : "format";
  if (!schema.contains(key)) return e_.Repeat(json_.Character(), min, max);
  const OrderedJson& value = schema[key];
  if (!value.is_string()) RefuseKeyword(path, key, value, "a string");
  std::string pattern = value.get<std::string>();
  if (std::string_view(key) == "pattern" && schema.contains("format")) {
    FailAt(PathOf(path, "format"), "is not supported together with pattern");
  }
  if (std::string_view(key) == "format") {
    const auto known = FormatPattern(pattern);
    if (!known) {
      FailAt(PathOf(path, key),
             "is " + Quoted(pattern) + ", which is not supported; allowed: " + FormatNames());
    }
    pattern = *known;
  }
  try {
    const Expression content = ParsePattern(e_, json_, pattern);
    if (!has_length) return content;
    if (const auto bounded = WithLength(e_, json_, content, min, max)) return *bounded;
    throw GrammarError(
        "is not supported together with minLength or maxLength, as its length varies in several "
        "places");
  } catch (const GrammarError& error) {
    FailAt(PathOf(path, key), error.what());
  }
}

Expression SchemaCompiler::NumberOf(const OrderedJson& schema, const std::string& path,
                                    bool integer) {
  std::optional<DecimalBound> low, high;
  if (schema.contains("minimum")) low = {DecimalOf(schema, "minimum", path), false};
  if (schema.contains("maximum")) high = {DecimalOf(schema, "maximum", path), false};
  if (schema.contains("exclusiveMinimum")) {
    const DecimalBound bound = {DecimalOf(schema, "exclusiveMinimum", path), true};
    if (!low || schema["exclusiveMinimum"] >= schema["minimum"]) low = bound;
  }
  if (schema.contains("exclusiveMaximum")) {
    const DecimalBound bound = {DecimalOf(schema, "exclusiveMaximum", path), true};
    if (!high || schema["exclusiveMaximum"] <= schema["maximum"]) high = bound;
  }
  if (schema.contains("multipleOf")) return MultipleOf(schema, path, low, high);
  if (low || high) return NumberBetween(e_, low, high, integer);
  return integer ? json_.Integer() : json_.Number();
}

Expression SchemaCompiler::MultipleOf(const OrderedJson& schema, const std::string& path,
                                      const std::optional<DecimalBound>& low,
                                      const std::optional<DecimalBound>& high) {
  const OrderedJson& value = schema["multipleOf"];
  const double divisor = value.is_number() ? value.get<double>() : 0;
  if (divisor < 1 || divisor > kMaxDivisor || divisor != std::trunc(divisor)) {
    RefuseKeyword(path, "multipleOf", value, "integers from 1 to " + std::to_string(kMaxDivisor));
  }
  const auto step = static_cast<int64_t>(divisor);
  if (!low && !high) return grammar::MultipleOf(e_, step);
  if (!high && IsZero(*low) && !low->exclusive) {
    return grammar::MultipleOf(e_, step, /*negative=*/false);
  }
  const auto multiples = low && high ? MultiplesBetween(*low, *high, step) : std::nullopt;
  if (!multiples || std::ssize(*multiples) > kMaxMultiples) {
    FailAt(PathOf(path, "multipleOf"),
           "is not supported together with minimum or maximum; allowed: a minimum of 0, or bounds "
           "with at most " +
               std::to_string(kMaxMultiples) + " multiples between them");
  }
  std::vector<Expression> choices;
  for (const int64_t multiple : *multiples) choices.push_back(e_.Literal(std::to_string(multiple)));
  return e_.Choice(std::move(choices));
}

}  // namespace triptych::grammar
