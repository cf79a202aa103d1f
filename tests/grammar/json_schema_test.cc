// Texts that JSON Schemas accept, and schemas that are refused.
#include "engine/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/grammar/json_text.h"
#include "engine/grammar/limits.h"
#include "engine/grammar/readings.h"
#include "engine/grammar/schema_keywords.h"
#include "tests/grammar/texts.h"

namespace triptych::grammar::json_schema_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Case {
  std::string schema;
  std::vector<std::string> accepted, refused;
};

void Check(const std::vector<Case>& cases) {
  for (const auto& [schema, accepted, refused] : cases) {
    const auto grammar = Schema(schema);
    for (const std::string& text : accepted) EXPECT_TRUE(Has(grammar, text)) << schema << text;
    for (const std::string& text : refused) EXPECT_FALSE(Has(grammar, text)) << schema << text;
  }
}

TEST(JsonSchema, AcceptsValuesOfATypeAlone) {
  Check({{"true",
          {"1", "[1, {\"a\": null}]", "\"\\ud83d\\ude00 \xc3\xa9\""},
          {"", "1 2", "\"\xc3\""}},
         {R"({"type": "string"})",
          {R"("")", R"("a\n\"")"},
          {"1", "\"\n\"", R"("\ud83d")", R"("\x")"}},
         {R"({"type": "integer"})", {"0", "-12"}, {"01", "1.5", "1e3", "-"}},
         {R"({"type": "number"})", {"0", "-1.25", "1e-7"}, {".5", "1.", "+1", "NaN"}},
         {R"({"type": ["null", "boolean"]})", {"null", "true", "false"}, {"0", "nul"}}});
}

TEST(JsonSchema, KeepsTheOrderOfProperties) {
  Check({{R"({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "null"}},
              "required": ["b"], "additionalProperties": false})",
          {R"({"b":1,"a":null})", R"({"b": 1})", "{\n  \"b\": 1,\n  \"a\": null\n}"},
          {R"({"a":null,"b":1})", R"({"a":null})", "{}", R"({"b":1,})", R"({"b":1,"c":2})"}},
         {R"({"type": "object", "properties": {"a": {"type": "integer"}}})",
          {R"({})", R"({"a":1})", R"({"a":1,"ab":[],"b":2})", R"({"":0})"},
          {R"({"a":null})", R"({"b":1,"a":"x"})"}},
         {R"({"type": "object", "additionalProperties": {"type": "integer"}, "required": ["x"]})",
          {R"({"x":1})", R"({"x":1,"y":2})"},
          {R"({})", R"({"x":1,"y":null})"}},
         {R"({"type": "object", "patternProperties": {"^[a-z]+$": {"type": "null"}},
              "additionalProperties": false})",
          {R"({})", R"({"ab":null,"c":null})"},
          {R"({"A":null})", R"({"a":1})"}}});
}

TEST(JsonSchema, BoundsNumbers) {
  Check(
      {{R"({"type": "integer", "minimum": -5, "maximum": 120})",
        {"-5", "-1", "0", "9", "10", "99", "100", "120"},
        {"-6", "-10", "121", "200", "1000", "-0"}},
       {R"({"type": "integer", "exclusiveMinimum": 10})", {"11", "99", "100"}, {"10", "9", "-11"}},
       {R"({"type": "integer", "maximum": -7})", {"-7", "-8", "-70", "-100"}, {"-6", "0", "7"}},
       {R"({"type": "integer", "minimum": 2.5, "maximum": 3.5})", {"3"}, {"2", "4", "3.1"}},
       {R"({"type": "number", "minimum": 0.25, "exclusiveMaximum": 1.5})",
        {"0.25", "0.3", "1", "1.0", "1.49", "0.250"},
        {"0.2", "0.249", "1.5", "1.50", "2", "0", "-1"}},
       {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})",
        {"0.001", "1", "1.0", "0.5"},
        {"0", "0.0", "1.01", "-0.5"}},
       {R"({"type": "integer", "multipleOf": 7})", {"0", "14", "-21", "700"}, {"1", "13", "07"}}});
}

TEST(JsonSchema, BoundsStrings) {
  Check({{R"({"type": "string", "minLength": 2, "maxLength": 3})",
          {R"("ab")", R"("a\n\"")", "\"\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\""},
          {R"("a")", R"("abcd")"}},
         {R"({"type": "string", "pattern": "^[a-c]{2}$|x\\d"})",
          {R"("ab")", R"("..x7..")"},
          {R"("abc")", R"("ad")", R"("x")"}},
         {R"({"type": "string", "format": "date"})",
          {R"("2024-02-29")", R"("1999-12-31")"},
          {R"("2023-02-29")", R"("1999-13-01")"}},
         {R"({"type": "string", "format": "date-time"})",
          {R"("2024-01-01T00:00:00Z")"},
          {R"("2024")"}},
         {R"({"type": "string", "format": "ipv6"})",
          {R"("::")", R"("1::")", R"("fe80::1:2")", R"("1:2:3:4:5:6:7:8")"},
          {R"("1:2:3")", R"("1::2::3")", R"("1:2:3:4:5:6:7:8:9")"}},
         {R"({"type": "string", "format": "uuid"})",
          {R"("123e4567-e89b-12d3-a456-426614174000")"},
          {R"("123e4567")"}},
         {R"({"type": "string", "format": "duration"})", {R"("P1DT2H")", R"("P3W")"}, {R"("P")"}},
         {R"({"type": "string", "format": "email"})", {R"("a.b@c.de")"}, {R"("a@")", R"("@c.de")"}},
         {R"({"type": "string", "format": "ipv4"})", {R"("255.0.10.1")"}, {R"("256.0.0.1")"}},
         {R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})",
          {R"("https://a.b:80/c/%20d?e=/#f")", R"("mailto:a@b.c")", R"("urn:a:b")", R"("a:/b")"},
          {R"("a")", R"("http://a b")", R"("http://")", R"("//a/b")"}},
         {R"({"type": "string", "maxLength": 100000})", {R"("a")"}, {"1"}}});
}

TEST(JsonSchema, BoundsArrays) {
  Check({{R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
          {"[1]", "[1, 2]", "[ 1,2,3 ]"},
          {"[]", "[1,2,3,4]", "[null]", "[1,]"}},
         {R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "integer"}],
              "items": {"type": "string"}, "minItems": 1})",
          {"[null]", "[null,1]", R"([null,1,"a","b"])"},
          {"[]", "[1]", "[null,1,1]"}},
         {R"({"type": "array", "prefixItems": [{"type": "null"}], "items": false})",
          {"[]", "[null]"},
          {"[null,null]"}}});
}

TEST(JsonSchema, CombinesSchemas) {
  Check(
      {{R"({"enum": ["a", 1, null, {"b": [2]}]})",
        {R"("a")", "1", "null", R"({"b":[2]})", R"({"b": [2]})"},
        {R"("b")", "{}"}},
       {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
       {R"({"const": 2.0})", {"2"}, {"3"}},
       {R"({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "null"}]})",
        {"5", "null"},
        {"4"}},
       {R"({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]})",
        {"5", "1", "-9"},
        {"3", "null"}},
       {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "null"}},
              "required": ["k", "x"]}, {"type": "object", "properties": {"k": {"const": "b"}},
              "required": ["k"]}]})",
        {R"({"k":"a","x":null})", R"({"k":"b"})"},
        {R"({"k":"a"})", R"({"k":"c"})"}},
       {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
              {"properties": {"a": {"minimum": 3}, "b": {"type": "null"}},
               "additionalProperties": false}]})",
        {R"({"a":3})", R"({"a":4,"b":null})"},
        {R"({"a":2})", R"({"b":null})", R"({"a":3,"c":1})"}},
       {R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
              "v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
              {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": false}}})",
        {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
        {R"({"v":1,"next":{}})"}}});
}

TEST(JsonSchema, JoinsItemsByTheirPositions) {
  Check({{R"({"type": "array", "allOf": [{"prefixItems": [{"minimum": 3}]}],
              "items": {"type": "integer", "minimum": 5}})",
          {"[]", "[5]", "[6,5]"},
          {"[3]", "[3,5]", "[5,4]"}},
         {R"({"type": "array", "allOf": [{"prefixItems": [{"const": 1}, {"enum": [2, 3]}]},
              {"prefixItems": [{}], "items": {"enum": [2, 4]}}]})",
          {"[1]", "[1,2]", "[1,2,4]"},
          {"[2]", "[1,3]", "[1,4]", "[1,2,3]"}}});
  EXPECT_THAT(Refusal(Schema, R"({"allOf": [{"prefixItems": 1}, {"items": {}}]})"),
              HasSubstr("prefixItems"));
}

// Those of a class that two parts inherit, which could not be joined with others.
TEST(JsonSchema, JoinsEqualItemsOfTwoParts) {
  const auto twice = [](const std::string& items, const std::string& defs) {
    const std::string part = R"({"type": "array", "items": )" + items + "}";
    return R"({"allOf": [)" + part + ", " + part + R"(], "$defs": {)" + defs + "}}";
  };
  Check({{twice(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", ""),
          {"[1,null]", "[]"},
          {R"(["a"])"}},
         {twice(R"({"$ref": "#/$defs/Node"})",
                R"("Node": {"type": "array", "items": {"$ref": "#/$defs/Node"}})"),
          {"[[],[[]]]"},
          {"[1]"}}});
}

// A hostile schema: each of its thousands of items would be joined with a large enum.
TEST(JsonSchema, BoundsTheValuesOfJoinedSchemas) {
  std::string items = "{}", values = "0";
  for (int i = 1; i < 15'000; ++i) items += ",{}", values += "," + std::to_string(i);
  EXPECT_THAT(Refusal(Schema, R"({"prefixItems": [)" + items +
                                  R"(], "allOf": [{"items": {"enum": [)" + values + "]}}]}"),
              HasSubstr("needs too many schemas to be joined"));
}

TEST(JsonSchema, RequiredMembersComeAsWritten) {
  Check({{R"({"type": "object", "required": ["b", "a"]})",
          {R"({"b":1,"a":2})", R"({"b":1,"a":2,"c":3})"},
          {R"({"a":2,"b":1})", R"({"b":1})"}}});
}

TEST(JsonSchema, RefusesPatternsThatReadATextInTooManyWays) {
  const auto schema = [](const std::string& pattern) {
    return R"({"type": "object", "properties": {"a": {"type": "string", "pattern": ")" + pattern +
           R"("}}})";
  };
  for (const char* const pattern :
       {"^(?:\\\\w{1,30} ?){1,40}$", "^(?:a{1,100}){1,100}$", "x(?:.{9,99}y?){50,}"}) {
    EXPECT_EQ(Refusal(Schema, schema(pattern)),
              ".properties.a.pattern reads a text in too many ways (more than 512 positions of "
              "the matcher), by its counted repetitions; allowed: repetitions of texts that show "
              "where they end")
        << pattern;
  }
  for (const char* const pattern :
       {"^(?:[A-Za-z0-9-]{1,63}\\\\.){1,10}[a-z]{2,20}$", "^(?:\\\\w{1,30} ){1,400}$",
        "^.{1,100000}$", "^(?:[0-9]{1,3}, ?){1,1000}$", "[0-9]{500}"}) {
    EXPECT_NE(Schema(schema(pattern)), nullptr) << pattern;
  }
}

// A schema of many patterns could otherwise take any time.
TEST(JsonSchema, TriesPatternsUntilTheWorkIsUsedUp) {
  Expressions expressions;
  JsonText json(expressions);
  const Expression pattern = ParsePattern(expressions, json, "^(?:a{1,100}){1,100}$");
  size_t work = kMaxReadingSteps;
  EXPECT_THROW(CheckReadings(expressions, pattern, work), GrammarError);
  EXPECT_LT(work, kMaxReadingSteps);
  work = 20'000;
  EXPECT_NO_THROW(CheckReadings(expressions, pattern, work));
  EXPECT_EQ(work, 0);
  EXPECT_NO_THROW(CheckReadings(expressions, pattern, work));
}

TEST(JsonSchema, RefusesNamesOfMembersInTooManyWays) {
  EXPECT_THAT(Refusal(Schema, R"({"type": "object", "additionalProperties": false,
                                  "patternProperties": {"^(?:a{1,100}){1,100}$": {}}})"),
              HasSubstr("reads a text in too many ways"));
}

TEST(JsonSchema, BoundsTheLengthOfPatterns) {
  Check({{R"({"type": "string", "pattern": "^[a-z\u00e9]+$", "minLength": 2, "maxLength": 3})",
          {R"("ab")", "\"a\xc3\xa9z\""},
          {R"("a")", R"("abcd")", R"("")", R"("a1")"}},
         {R"({"type": "string", "pattern": "^id", "maxLength": 4})",
          {R"("id")", R"("id\n!")"},
          {R"("i")", R"("id123")", R"("id\n!!")"}},
         {R"({"type": "string", "pattern": "^(?:(?:ab)*|x[0-9]{1,9})$", "minLength": 3})",
          {R"("abab")", R"("x12")"},
          {R"("")", R"("ab")", R"("x1")"}},
         {R"({"type": "string", "format": "date", "minLength": 10, "maxLength": 10})",
          {R"("2026-11-28")"},
          {R"("2026-11-2")"}}});
  EXPECT_THAT(Refusal(Schema, R"({"type": "string", "pattern": "^a*b*$", "maxLength": 9})"),
              StartsWith(".pattern is not supported together with minLength or maxLength"));
  // A repetition of texts of any length.
  for (const char* const pattern : {"^(?:[a-z]+ ?)+$", R"(^(?:[0-9]+\\.)*[0-9]+$)"}) {
    for (const char* const bound : {R"("maxLength": 10)", R"("minLength": 2)"}) {
      const std::string schema =
          R"({"type": "string", "pattern": ")" + std::string(pattern) + R"(", )" + bound + "}";
      EXPECT_THAT(Refusal(Schema, schema), HasSubstr(".pattern is not supported together with"));
    }
  }
  EXPECT_THAT(Refusal(Schema, R"({"type": "string", "format": "date", "maxLength": 9})"),
              HasSubstr("no finite text"));
}

TEST(JsonSchema, BoundsMultiples) {
  Check({{R"({"type": "integer", "multipleOf": 7, "minimum": -14.5, "exclusiveMaximum": 21})",
          {"-14", "-7", "0", "7", "14"},
          {"-21", "21", "1", "-0"}},
         {R"({"type": "number", "multipleOf": 5, "minimum": 0})",
          {"0", "5", "1000"},
          {"-5", "-0", "7"}}});
  Check({{R"({"type": "number", "multipleOf": 0.01})",
          {"0", "-1", "0.5", "12.34", "1.50", "9999999999.99"},
          {"-0", "0.001", "1e2", ".5", "1.", "10000000000"}},
         {R"({"type": "number", "multipleOf": 0.25, "minimum": 0})",
          {"0", "0.25", "7.5", "7.50", "3"},
          {"-1", "0.2", "0.3", "0.125"}},
         {R"({"type": "number", "multipleOf": 2.5, "minimum": -6, "exclusiveMaximum": 5})",
          {"-5", "-2.5", "0", "2.5"},
          {"5", "-7.5", "1"}},
         {R"({"type": "number", "multipleOf": 0.01, "minimum": 0.995, "maximum": 1000000})",
          {"1", "1.0", "1.01", "1000000", "999999.99"},
          {"0.99", "0.995", "1.001", "1000000.01"}},
         {R"({"type": "integer", "multipleOf": 0.4})", {"0", "2", "-10"}, {"1", "0.4", "0.8"}},
         {R"({"type": "integer", "multipleOf": 0.5, "minimum": 1e6})",
          {"1000000", "1000001"},
          {"999999"}}});
  for (const char* const divisor : {"0", "-0.5", "0.0000001", "1.25e-1", "101", "\"1\"", "1e20"}) {
    EXPECT_THAT(
        Refusal(Schema, R"({"type": "number", "multipleOf": )" + std::string(divisor) + "}"),
        StartsWith(".multipleOf is "))
        << divisor;
  }
  for (const char* const bounds :
       {R"("maximum": 8)", R"("minimum": 1)", R"("minimum": 0, "maximum": 1e6)",
        R"("minimum": -1e30, "maximum": 1e30)"}) {
    EXPECT_THAT(
        Refusal(Schema, std::string(R"({"type": "integer", "multipleOf": 2, )") + bounds + "}"),
        StartsWith(".multipleOf is not supported together with minimum or maximum"));
  }
}

TEST(JsonSchema, KeepsItemsOfAnEnumUnique) {
  Check({{R"({"type": "array", "items": {"enum": ["a", "b", 1, 1.0]}, "uniqueItems": true,
              "minItems": 1, "maxItems": 2})",
          {R"(["a"])", R"(["b", 1])"},
          {"[]", R"(["a","a"])", R"([1,1])", R"(["a","b",1])"}},
         {R"({"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": true})",
          {"[]", "[3,1,2]"},
          {"[1,2,1]", "[1,]"}},
         {R"({"type": "array", "items": {"$ref": "#/$defs/e"}, "uniqueItems": true,
              "$defs": {"e": {"enum": [1, 2], "title": "E"}}})",
          {"[]", "[2,1]"},
          {"[1,1]", "[3]"}}});
  for (const char* const items :
       {"{}", R"({"enum": [1, []]})", R"({"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]})"}) {
    EXPECT_THAT(Refusal(Schema, std::string(R"({"type": "array", "uniqueItems": true, "items": )") +
                                    items + "}"),
                StartsWith(".uniqueItems is not supported"));
  }
}

TEST(JsonSchema, KeepsSeveralPatternsOfProperties) {
  Check({{R"({"type": "object", "patternProperties": {"^s_": {"type": "null"},
              "^i_[a-z]+$": {"type": "integer"}}, "additionalProperties": false})",
          {"{}", R"({"s_":null,"i_a":1,"s_1":null})"},
          {R"({"s_":1})", R"({"i_a":null})", R"({"x":1})"}}});
  EXPECT_THAT(Refusal(Schema, R"({"type": "object", "patternProperties": {"a": {}, "b": {}},
              "additionalProperties": false})"),
              StartsWith(".patternProperties.b may match a name that another pattern matches"));
  // Their comparison takes bounded work, over the whole schema.
  std::string objects;
  for (int i = 0; i < 1000; ++i) {
    std::string patterns;
    for (char c = 'a'; c <= 'h'; ++c) {
      patterns += std::string(patterns.empty() ? "" : ", ") + "\"^[#-Z]{200}" + c + "$\": {}";
    }
    objects += std::string(i == 0 ? "" : ", ") + R"({"type": "object", "patternProperties": {)" +
               patterns + R"(}, "additionalProperties": false})";
  }
  EXPECT_THAT(Refusal(Schema, R"({"type": "array", "prefixItems": [)" + objects + "]}"),
              HasSubstr("may match a name that another pattern matches"));
}

TEST(JsonSchema, TakesOpenApisKeywords) {
  Check({{R"({"type": "object", "x-order": 1, "discriminator": {"propertyName": "k"}, "properties":
              {"k": {"type": "string", "nullable": true, "enum": ["a", null], "xml": {}},
               "n": {"type": "integer", "format": "int32", "nullable": false, "x-a": null}},
              "required": ["k"], "additionalProperties": false, "externalDocs": {}})",
          {R"({"k":"a"})", R"({"k":null,"n":-2147483648})", R"({"k":"a","n":2147483647})"},
          {"null", R"({"k":"b"})", R"({"k":"a","n":null})", R"({"k":"a","n":2147483648})"}},
         {R"({"type": "integer", "nullable": true})", {"1", "null"}, {R"("")"}},
         {R"({"type": ["number"], "nullable": true, "minimum": 2, "allOf": [{"x-b": 1}]})",
          {"2", "null"},
          {"1"}},
         {R"({"type": "string", "nullable": true, "allOf": [{"type": "string"}]})",
          {R"("")"},
          {"null"}},
         {R"({"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png",
              "contentSchema": {"not": {}}, "format": "byte"})",
          {R"("")", R"("YWI=")"},
          {R"("a")"}},
         {R"({"type": "string", "format": "password", "minLength": 1})", {R"("x")"}, {R"("")"}}});
  EXPECT_EQ(Refusal(Schema, R"({"$ref": "#/$defs/a", "nullable": true, "$defs": {"a": {}}})"),
            ".nullable is true; allowed: true next to type, false");
  EXPECT_EQ(Refusal(Schema, R"({"type": "null", "allOf": [{"$ref": "#/$defs/a"}], "$defs":
                                {"a": {"nullable": 1}}})"),
            ".nullable is 1; allowed: true, false");
}

TEST(JsonSchema, TellsAlternativesApart) {
  Check({{R"({"oneOf": [
              {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"],
               "additionalProperties": false},
              {"type": "object", "properties": {"b": {"type": "null"}, "a": false},
               "required": ["b"]},
              {"enum": ["x", 1]}, {"type": "array"}]})",
          {R"({"a":null})", R"({"b":null})", R"({"b":null,"c":1})", R"("x")", "[]"},
          {R"({"a":null,"b":null})", "{}", R"("y")"}},
         // Only one of them requires the member that tells them apart.
         {R"({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
              "a": {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
              "b": {"type": "object", "properties": {"k": {"const": "b"}}}}})",
          {R"({"k":"a"})", R"({"k":"b"})", "{}"},
          {R"({"k":"c"})"}}});
  const auto refusal = [](const std::string& alternatives) {
    return Refusal(Schema, R"({"oneOf": [)" + alternatives + "]}");
  };
  const std::string overlaps = ".oneOf[1] may accept a value that oneOf[0] accepts, too";
  EXPECT_THAT(refusal(R"({"type": "object", "properties": {"a": {}}, "required": ["a"]},
                         {"type": "object", "properties": {"b": {}}, "required": ["b"]})"),
              StartsWith(overlaps));
  EXPECT_THAT(refusal(R"({"type": "object", "properties": {"a": {}}, "additionalProperties": false},
                         {"type": "object", "properties": {"b": {}},
                          "additionalProperties": false})"),
              StartsWith(overlaps))
      << "the empty object";
  EXPECT_THAT(refusal(R"({"type": "object", "properties": {"ab": {}}, "required": ["ab"]},
                         {"type": "object", "patternProperties": {"^a": {}},
                          "additionalProperties": false})"),
              StartsWith(overlaps));
  EXPECT_THAT(refusal(R"({"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}})"),
              StartsWith(overlaps));
  EXPECT_THAT(refusal(R"({"type": "string", "nullable": true}, {"type": "null"})"),
              StartsWith(overlaps));
  // Each level names the next one for many members: comparisons are bounded.
  std::string names, levels;
  for (int i = 0; i < 100; ++i) names += (i > 0 ? ",\"m" : "\"m") + std::to_string(i) + '"';
  for (int level = 0; level < 8; ++level) {
    levels += R"(, "d)" + std::to_string(level) + R"(": {"type": "object", "required": [)" + names +
              R"(], "additionalProperties": {"$ref": "#/$defs/d)" + std::to_string(level + 1) +
              R"("}})";
  }
  EXPECT_THAT(
      Refusal(Schema, R"({"$defs": {"d8": {})" + levels +
                          R"(}, "oneOf": [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d0"}]})"),
      StartsWith(overlaps));
}

TEST(JsonSchema, CountsProperties) {
  const std::string three = R"("properties": {"a": {}, "b": {}, "c": {}})";
  const std::string closed = R"("additionalProperties": false)";
  Check({{R"({"type": "object", )" + three + "," + closed + R"(, "minProperties": 2})",
          {R"({"a":1,"b":1})", R"({"a":1,"c":1})", R"({"a":1,"b":1,"c":1})"},
          {"{}", R"({"a":1})", R"({"c":1})"}},
         {R"({"type": "object", )" + three + "," + closed + R"(, "minProperties": 1,
              "maxProperties": 2, "required": ["b"]})",
          {R"({"b":1})", R"({"a":1,"b":1})", R"({"b":1,"c":1})"},
          {"{}", R"({"a":1})", R"({"a":1,"b":1,"c":1})"}},
         {R"({"type": "object", )" + three + R"(, "required": ["c"], "minProperties": 2,
              "maxProperties": 3})",
          {R"({"a":1,"c":1})", R"({"c":1,"x":1})", R"({"a":1,"c":1,"x":1})",
           R"({"c":1,"x":1,"y":1})"},
          {R"({"c":1})", R"({"a":1,"b":1,"c":1,"x":1})", R"({"x":1,"y":1})"}},
         {R"({"type": "object", )" + three + R"(, "maxProperties": 0})", {"{}"}, {R"({"a":1})"}},
         {R"({"type": "object", )" + three + "," + closed + R"(, "maxProperties": 9})",
          {R"({"a":1,"b":1,"c":1})"},
          {}}});
  // Others may repeat a key, which counts once.
  EXPECT_THAT(Refusal(Schema, R"({"type": "object", "minProperties": 2, )" + three + "}"),
              StartsWith(".minProperties is 2; allowed: at most 1, one more than required"));
  EXPECT_THAT(
      Refusal(Schema, R"({"type": "object", "minProperties": 4, )" + three + "," + closed + "}"),
      HasSubstr("no finite text"));
  std::string many;
  for (int i = 0; i < 60; ++i) many += (i > 0 ? ",\"m" : "\"m") + std::to_string(i) + "\": {}";
  EXPECT_THAT(
      Refusal(Schema, R"({"type": "object", "maxProperties": 30, "properties": {)" + many + "}}"),
      StartsWith(".maxProperties needs too many states"));
}

TEST(JsonSchema, TakesAPatternTogetherWithAFormat) {
  Check({{R"({"type": "string", "format": "date-time", "pattern": "T.*Z$"})",
          {R"("2024-02-29T00:00:00.5Z")"},
          {R"("2024-02-30T00:00:00Z")", R"("2024-02-29T00:00:00+01:00")"}},
         {R"({"type": "string", "format": "uuid", "pattern": "^.{14}4"})",
          {R"("123e4567-e89b-42d3-a456-426614174000")"},
          {R"("123e4567-e89b-12d3-a456-426614174000")"}},
         {R"({"type": "string", "format": "uri", "pattern": "^https?://[^/]+\\.org(?:$|/.*$)+"})",
          {R"("https://a.org")", R"("http://a.b.org/x")", R"("https://u@a.org/%20?q#f")"},
          {R"("ftp://a.org")", R"("https://a.com/")", R"("https://a.org/%2")",
           R"("https://a.org/ ")"}},
         {R"({"type": "string", "format": "binary", "pattern": "^\"\u00e9+$", "maxLength": 3})",
          {"\"\\\"\xc3\xa9\""},
          {R"("a")"}}});
  EXPECT_THAT(Refusal(Schema, R"({"type": "string", "format": "date", "pattern": "^x"})"),
              HasSubstr("no finite text"));
  EXPECT_EQ(
      Refusal(Schema, R"({"type": "string", "format": "date", "pattern": "1", "maxLength": 9})"),
      ".pattern is not supported together with format and minLength or maxLength");
  EXPECT_EQ(Refusal(Schema, R"({"type": "string", "format": "byte", "pattern": "^[a-z]{5000}$"})"),
            ".pattern needs too many states together with format; allowed: at most 4096");
  EXPECT_EQ(Refusal(Schema, R"({"properties": {"a": {"type": "string", "format": "uri",
                                "pattern": "[ab].{12}[cd].{12}[ef]"}}})"),
            ".properties.a.pattern takes too many steps together with format; allowed: at most "
            "1048576 for all parts of a schema");
}

TEST(JsonSchema, PatternsAreThoseOfEcmaScript) {
  Check(
      {{R"({"type": "string", "pattern": "\\bfoo\\b"})",
        {R"("foo")", R"("a foo")", R"("foo\n")",
         "\"\xc3\xa9"
         "foo.\""},
        {R"("afoo")", R"("foo_")"}},
       {R"j({"type": "string", "pattern": "(^a|b$)"})j",
        {R"("ax")", R"("xb")"},
        {R"("xa")", R"("bx")"}},
       {R"({"type": "string", "pattern": "^\\p{Lu}[\\p{Script=Greek}\\u{1F600}\\uD83D\\uDE01]*$"})",
        {"\"\xc3\x89\xce\xb1\xf0\x9f\x98\x81\xf0\x9f\x98\x80\""},
        {"\"\xc3\xa9\"", "\"Ab\""}},
       {R"({"type": "string", "pattern": "^.(?s:.)\\cJ\\0$"})",
        {R"("a\r\n\u0000")"},
        {R"("\ra\n\u0000")"}},
       {R"({"type": "string", "pattern": "(?i)^k$"})",
        {R"("k")", R"("K")", "\"\xe2\x84\xaa\""},
        {R"("kk")"}},
       {R"({"type": "string", "pattern": "(?m)^b$"})", {R"("a\nb\rc")", R"("b")"}, {R"("ab")"}},
       {R"({"type": "string", "pattern": "^\\p{L}{2,4}$", "maxLength": 3})",
        {"\"\xc3\xa9\xc3\xa9z\""},
        {R"("a")", R"("abcd")"}},
       {R"({"type": "string", "format": "date", "pattern": "\\b02\\b"})",
        {R"("2024-02-29")"},
        {R"("2024-12-29")"}},
       {R"({"type": "object", "patternProperties": {"^[\\w-]+\\b$": {"type": "null"}},
              "additionalProperties": false})",
        {R"({"a-b":null})"},
        {R"({"a-":null})"}}});
  for (const char* const pattern :
       {R"(\\Aa)", R"(\\a)", R"(\\1)", R"(\\01)", R"(\\u{110000})", R"(\\uD800a)", R"(\\uDC00)",
        R"(\\Qa)", R"(\\p{X})", "(?<=a)b", "(?=a)"}) {
    EXPECT_THAT(
        Refusal(Schema, R"({"type": "string", "pattern": ")" + std::string(pattern) + R"("})"),
        StartsWith(".pattern is not a supported regular expression"))
        << pattern;
  }
  EXPECT_THAT(Refusal(Schema, R"({"type": "string", "pattern": "\\ba", "maxLength": 9})"),
              HasSubstr("or it has \\b, \\B, or ^ or $ inside"));
  EXPECT_THAT(Refusal(Schema, R"({"type": "string", "pattern": "\\p{RGI_Emoji}"})"),
              HasSubstr("is no known class"));
}

TEST(JsonSchema, RefusesWhatItCannotKeepByItsPath) {
  const auto refusal = [](const std::string& schema) { return Refusal(Schema, schema); };
  EXPECT_EQ(refusal(R"({"properties": {"a": {"not": {}}}})"), ".properties.a.not is not supported");
  EXPECT_THAT(refusal(R"({"anyOf": [{}, {"type": "strin"}]})"),
              StartsWith(R"(.anyOf[1].type is "strin"; allowed: array, boolean)"));
  EXPECT_THAT(refusal(R"({"type": "string", "format": "color"})"),
              StartsWith(R"(.format is "color", which is not supported; allowed: binary,)"));
  EXPECT_THAT(refusal(R"g({"type": "string", "pattern": "a(?=b)"})g"),
              StartsWith(".pattern is not a supported regular expression: look-around"));
  EXPECT_THAT(refusal(R"({"$ref": "http://x/y"})"), StartsWith(R"(.$ref is "http://x/y", which)"));
  EXPECT_THAT(refusal(R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})"),
              StartsWith(".oneOf[1] may accept a value that oneOf[0] accepts, too"));
  EXPECT_THAT(refusal(R"({"type": "array", "uniqueItems": true})"), StartsWith(".uniqueItems"));
  EXPECT_THAT(refusal("{"), HasSubstr("cannot be read: the schema: not valid JSON"));
  EXPECT_THAT(refusal("false"), HasSubstr("has no finite text"));
  EXPECT_THAT(refusal(R"({"$ref": "#"})"), HasSubstr("no finite text"));
  EXPECT_THAT(
      refusal(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
      HasSubstr("no finite text"));
}

// The keywords in backticks in the first column of the document's table, by whether they are kept.
std::map<bool, std::set<std::string>> DocumentedKeywords() {
  std::map<bool, std::set<std::string>> keywords;
  std::ifstream file(TRIPTYCH_HTTP_README);
  bool in_section = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) in_section = line == "### Keywords of schemas";
    if (!in_section || !line.starts_with("| `")) continue;
    const size_t column = line.find(" | ");
    const bool kept = line.substr(column) != " | refused |";
    for (size_t at = 0; (at = line.find('`', at)) < column;) {
      const size_t end = line.find('`', at + 1);
      keywords[kept].insert(line.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  return keywords;
}

TEST(JsonSchema, KeepsTheKeywordsOfTheDocument) {
  std::map<std::string, std::string> examples = {
      {"type", R"("type": "null")"},
      {"const", R"("const": 1)"},
      {"enum", R"("enum": ["a", null], "minimum": 1)"},
      {"properties", R"("properties": {"a": {}})"},
      {"required", R"("required": ["a"])"},
      {"additionalProperties", R"("additionalProperties": {"type": "null"})"},
      {"patternProperties", R"("patternProperties": {"a": {}}, "additionalProperties": false)"},
      {"propertyNames", R"("propertyNames": {"pattern": "a"})"},
      {"minProperties", R"("properties": {"a": {}}, "minProperties": 1)"},
      {"maxProperties", R"("properties": {"a": {}, "b": {}}, "maxProperties": 1)"},
      {"items", R"("items": {"type": "null"})"},
      {"prefixItems", R"("prefixItems": [true])"},
      {"minItems", R"("minItems": 2)"},
      {"maxItems", R"("maxItems": 2)"},
      {"uniqueItems", R"("items": {"enum": [1, 2]}, "uniqueItems": true)"},
      {"minLength", R"("minLength": 2)"},
      {"maxLength", R"("pattern": "^a*$", "maxLength": 2)"},
      {"pattern", R"("pattern": "0", "format": "date")"},
      {"format", R"("format": "uri")"},
      {"minimum", R"("minimum": 1.5)"},
      {"maximum", R"("maximum": 1.5)"},
      {"exclusiveMinimum", R"("exclusiveMinimum": 1)"},
      {"exclusiveMaximum", R"("exclusiveMaximum": 1)"},
      {"multipleOf", R"("multipleOf": 0.000001, "maximum": 1)"},
      {"allOf", R"("allOf": [{"minimum": 1}, {"maximum": 2}])"},
      {"anyOf", R"("anyOf": [{"minimum": 1}, {"maximum": 2}])"},
      {"oneOf", R"("oneOf": [{"type": "string"}, {"const": 2}])"},
      {"$ref", R"("items": {"$ref": "#"})"},
      {"nullable", R"("type": "string", "nullable": true)"}};
  for (const char* const annotation :
       {"$defs",       "definitions", "$comment",        "$id",      "$schema",
        "default",     "deprecated",  "contentEncoding", "title",    "contentMediaType",
        "description", "example",     "contentSchema",   "examples", "externalDocs",
        "readOnly",    "writeOnly",   "discriminator",   "xml",      "x-\u2026"}) {
    examples[annotation] = '"' + std::string(annotation) + R"(": "a")";
  }
  std::set<std::string> kept;
  for (const auto& [keyword, members] : examples) {
    EXPECT_EQ(Refusal(Schema, "{" + members + "}"), "") << keyword;
    kept.insert(keyword);
  }
  const auto documented = DocumentedKeywords();
  EXPECT_EQ(documented.at(true), kept);
  EXPECT_GE(documented.at(false).size(), 17);
  for (const std::string& keyword : documented.at(false)) {
    EXPECT_EQ(Refusal(Schema, R"({"properties": {"a": {")" + keyword + R"(": {}}}})"),
              ".properties.a." + keyword + " is not supported");
  }
  for (const auto& [type, keywords] : kKeywordsOfTypes) {
    for (const std::string& keyword : keywords) EXPECT_TRUE(kept.contains(keyword)) << keyword;
  }
}

TEST(JsonSchema, BoundsHostileSchemas) {
  const auto refusal = [](const std::string& schema) { return Refusal(Schema, schema); };
  std::string nested = "{}";
  for (int i = 0; i < 100; ++i) nested = R"({"items":)" + nested + "}";
  EXPECT_THAT(refusal(nested), HasSubstr("nested too deeply"));
  // Joining would double the alternatives at every level.
  std::string doubling = R"({"$defs": {"d0": {"type": "null"})";
  for (int i = 1; i <= 40; ++i) {
    const std::string ref = R"({"$ref": "#/$defs/d)" + std::to_string(i - 1) + R"("})";
    doubling += R"(, "d)" + std::to_string(i) + R"(": {"title": "", "allOf": [{"anyOf": [)" + ref +
                ", " + ref + "]}]}";
  }
  doubling += R"(}, "$ref": "#/$defs/d40"})";
  EXPECT_EQ(refusal(doubling), "");  // each definition is compiled once
  EXPECT_THAT(refusal(R"({"allOf": [{"$ref": "#"}, {"type": "object"}]})"),
              HasSubstr("too many schemas"));
  std::string names;
  for (int i = 0; i < 40'000; ++i) names += (i > 0 ? ",\"" : "\"") + std::to_string(i * 7919) + '"';
  EXPECT_THAT(refusal(R"({"enum": [)" + names + "]}"), HasSubstr("bytes of fixed text"));
  // Each of 100 alternatives would be compared with all others by a large constant, or a long type.
  std::string zeros = "0", nulls = R"("null")";
  for (int i = 1; i < 25'000; ++i) {
    zeros += ",0";
    nulls += R"(,"null")";
  }
  for (const std::string& member : {R"("const":[)" + zeros + "]", R"("type":[)" + nulls + "]"}) {
    std::string list;
    for (int i = 0; i < 100; ++i) {
      list += (i > 0 ? "," : "") +
              std::string(R"({"type":"object","required":["a","k"],"properties":)") +
              R"({"a":{"$ref":"#/$defs/b"},"k":{"const":)" + std::to_string(i) + "}}}";
    }
    EXPECT_THAT(refusal(R"({"$defs":{"b":{)" + member + R"(}},"oneOf":[)" + list + "]}"),
                HasSubstr("may accept a value that oneOf["));
  }
}

TEST(JsonSchema, TheIdOfTheWholeBindsNothing) {
  for (const std::string rest :
       {R"("type": "object")", R"("allOf": [{"properties": {"a": {"type": "string"}}}])",
        R"("type": "object", "anyOf": [{"required": ["a"]}])"}) {
    EXPECT_EQ(Refusal(Schema, R"({"$id": "https://x/y", )" + rest + "}"), "");
  }
  EXPECT_THAT(Refusal(Schema, R"({"items": {"$id": "https://x/y"}})"),
              HasSubstr("items.$id is not supported"));
}

TEST(JsonSchema, MultiplesThatAreInt32AreIntegers) {
  EXPECT_EQ(Refusal(Schema, R"({"type": "integer", "format": "int32", "multipleOf": 10})"), "");
  EXPECT_EQ(
      Refusal(Schema, R"({"type": "number", "format": "int32", "multipleOf": 10, "minimum": 0})"),
      "");
}

}  // namespace
}  // namespace triptych::grammar::json_schema_test
