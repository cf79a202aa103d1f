#include <numeric>
#include <optional>
#include <string>

#include "engine/base/quoted.h"
#include "engine/grammar/common_texts.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/json_number.h"
#include "engine/grammar/pattern_length.h"
#include "engine/grammar/readings.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/string_formats.h"

namespace triptych::grammar {
namespace {

constexpr int64_t kMaxUnits = 100;  // of multipleOf, without its decimal point
constexpr int kMaxDecimals = 6;
constexpr int64_t kMaxMultiples = 4096;  // that are alternatives of a grammar

// A keyword that is a string; absent if the schema lacks it.
std::optional<std::string> TextOf(const OrderedJson& schema, const std::string& key,
                                  const std::string& path) {
  if (!schema.contains(key)) return std::nullopt;
  const OrderedJson& value = schema[key];
  if (!value.is_string()) RefuseKeyword(path, key, value, "a string");
  return value.get<std::string>();
}

}  // namespace

Expression SchemaCompiler::StringOf(const OrderedJson& schema, const std::string& path) {
  return json_.Quoted(Content(schema, path));
}

Expression SchemaCompiler::Content(const OrderedJson& schema, const std::string& path) {
  const int32_t min = CountOf(schema, "minLength", path).value_or(0);
  const int32_t max = CountOf(schema, "maxLength", path).value_or(Expressions::kUnbounded);
  const bool has_length = min > 0 || max != Expressions::kUnbounded;
  const auto pattern = TextOf(schema, "pattern", path), format = TextOf(schema, "format", path);
  const bool has_format = format && !IsAnyText(*format);
  if (!pattern && !has_format) return e_.Repeat(json_.Character(), min, max);
  const char* const key = pattern ? "pattern" : "format";
  std::string known;
  if (has_format) {
    if (const auto found = FormatPattern(*format, /*with_pattern=*/pattern.has_value())) {
      known = *found;
    } else {
      FailAt(PathOf(path, "format"),
             "is " + Quoted(*format) + ", which is not supported; allowed: " + FormatNames());
    }
  }
  try {
    if (pattern && has_format) {
      if (has_length) {
        throw GrammarError("is not supported together with format and minLength or maxLength");
      }
      return PatternOfFormat(*pattern, known);
    }
    const Expression content = ParsePattern(e_, json_, pattern ? *pattern : known);
    if (pattern) CheckReadings(e_, content, readings_);
    if (!has_length) return content;
    if (const auto bounded = WithLength(e_, json_, content, min, max)) return *bounded;
    throw GrammarError(
        "is not supported together with minLength or maxLength, as its length varies in several "
        "places, or it has \\b, \\B, or ^ or $ inside");
  } catch (const GrammarError& error) {
    FailAt(PathOf(path, key), error.what());
  }
}

Expression SchemaCompiler::PatternOfFormat(const std::string& pattern, const std::string& format) {
  const auto [known, added] = common_.try_emplace({pattern, format});
  if (!added) return known->second;
  const Grammar a = Compile(e_, ParsePattern(e_, json_, pattern));
  const Grammar b = Compile(e_, ParsePattern(e_, json_, format));
  const auto both = CommonTexts(e_, a, b, comparisons_);
  if (!both && comparisons_ == 0) {
    throw GrammarError("takes too many steps together with format; allowed: at most " +
                       std::to_string(kMaxComparisons) + " for all parts of a schema");
  }
  if (!both) {
    throw GrammarError("needs too many states together with format; allowed: at most " +
                       std::to_string(kMaxCommonStates));
  }
  return known->second = *both;
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
  const auto format = TextOf(schema, "format", path);
  integer = integer || format == "int32" || format == "int64";
  if (format == "int32" && !schema.contains("multipleOf")) {
    constexpr const char *kLeast = "-2147483648", *kGreatest = "2147483647";
    if (!low || std::stod(low->value) < std::stod(kLeast)) low = {kLeast, false};
    if (!high || std::stod(high->value) > std::stod(kGreatest)) high = {kGreatest, false};
  }
  if (schema.contains("multipleOf")) return MultipleOf(schema, path, low, high, integer);
  if (low || high) {
    return NumberBetween(e_, low, high, integer ? std::optional(0) : std::nullopt);
  }
  return integer ? json_.Integer() : json_.Number();
}

Expression SchemaCompiler::MultipleOf(const OrderedJson& schema, const std::string& path,
                                      const std::optional<DecimalBound>& low,
                                      const std::optional<DecimalBound>& high, bool integer) {
  const auto known = StepOf(DecimalOf(schema, "multipleOf", path));
  if (!known || known->units > kMaxUnits || known->decimals > kMaxDecimals) {
    RefuseKeyword(path, "multipleOf", schema["multipleOf"],
                  "integers from 1 to " + std::to_string(kMaxUnits) +
                      ", and those with the decimal point moved by up to " +
                      std::to_string(kMaxDecimals) + " digits, such as 0.01");
  }
  DecimalStep step = *known;
  if (integer) {
    // The integers among the multiples of u / 10^d are the multiples of u / gcd(u, 10^d).
    for (; step.decimals > 0; --step.decimals) step.units /= std::gcd(step.units, 10);
  }
  if (!low && !high) return grammar::MultipleOf(e_, step);
  if (step.units == 1) return NumberBetween(e_, low, high, step.decimals);
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
  for (const std::string& multiple : *multiples) choices.push_back(e_.Literal(multiple));
  return e_.Choice(std::move(choices));
}

}  // namespace triptych::grammar
