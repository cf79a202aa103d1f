#include "engine/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "tests/support/refusal.h"

namespace triptych::json_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Refusal(const std::string& text) {
  return RefusalOf<LoadError>([&] { ParseJson(text, "file"); });
}

std::string Repeated(const std::string& text, size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// "[value,value,...,0]"
std::string List(const std::string& value, size_t count) {
  std::string all(1, '[');
  all.append(Repeated(value, count)).append("0]");
  return all;
}

TEST(JsonTest, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5e3", "\"a\\u00e9\\n\"", "[]", "{}",
        R"({"b": [1, {"a": []}, [[], "x"]], "a": {"c": {"d": null}}, "": false})"}) {
    EXPECT_EQ(ParseJson(text, "file"), Json::parse(text)) << text;
  }
}

TEST(JsonTest, RefusesWhatIsNoJson) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{} x"), std::string("{\"a\" 1}"),
        std::string("1e999"), std::string("\"\xff\""), std::string("[1,]"), std::string("NaN")}) {
    EXPECT_THAT(Refusal(text), StartsWith("file: not valid JSON: ")) << text;
  }
}

// The parser would take it for the end, and pass over the rest.
TEST(JsonTest, RefusesNulBytes) {
  using std::string_literals::operator""s;
  EXPECT_EQ(Refusal("{}\0garbage"s), "file: not valid JSON: byte 2 is NUL");
  for (const std::string& text :
       {"{}\0"s, "\0"s, "\0{}"s, "[1,\0 2]"s, "\"a\0b\""s, "{}\0{\"b\":1}"s}) {
    EXPECT_THAT(Refusal(text), HasSubstr(" is NUL")) << text;
  }
  EXPECT_EQ(ParseJson(R"("\u0000")", "file"), "\0"s);
}

TEST(JsonTest, RefusesNamesThatStandTwiceAtAnyDepth) {
  EXPECT_EQ(Refusal(R"({"a":1,"b":2,"a":1})"), "file: names \"a\" twice");
  EXPECT_EQ(Refusal(R"([{"x":{"a":1,"\u0061":{}}}])"), "file: names \"a\" twice");
  EXPECT_EQ(Refusal(R"({"a":{"a":{"a":1}},"b":{"a":1}})"), "accepted");
}

TEST(JsonTest, RefusesDeepNesting) {
  const std::string sixteen = std::string(16, '[') + std::string(16, ']');
  EXPECT_EQ(Refusal(sixteen), "accepted");
  EXPECT_EQ(Refusal("[" + sixteen + "]"), "file: is nested too deeply; allowed: at most 16 levels");
  EXPECT_EQ(Refusal(Repeated("{\"a\":", 100'000)),
            "file: is nested too deeply; allowed: at most 16 levels");
}

// With time quadratic in the length, each of these would take minutes or more.
TEST(JsonTest, TimeGrowsAsTheLength) {
  constexpr size_t kValues = 1'000'000;
  EXPECT_EQ(Refusal(List("{},", kValues)), "accepted");
  EXPECT_EQ(Refusal(List("[],", kValues)), "accepted");
  EXPECT_EQ(Refusal(List("0,", kValues)), "accepted");
  std::string members = "{";
  for (size_t i = 0; i < kValues / 4; ++i)
    members.append(1, '"').append(std::to_string(i)).append("\":{},");
  EXPECT_EQ(Refusal(members + "\"\":0}"), "accepted");
  EXPECT_THAT(Refusal(members + "\"7\":0}"), HasSubstr("names \"7\" twice"));
}

TEST(JsonTest, MemoryHasABound) {
  EXPECT_EQ(Refusal(List("0,", 1 << 20)), "file: holds more than 1048576 values");
}

TEST(JsonTest, MessagesAreShortAndPrintable) {
  const std::string escapes = "\\u001b[2J\\n";
  const auto is_tame = AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\n")));
  std::string name(1, '"');
  name.append(Repeated(escapes, 100'000)).append("\":1");
  std::string object(1, '{');
  object.append(name).append(",").append(name).append("}");
  const std::string twice = Refusal(object);
  EXPECT_THAT(twice, AllOf(HasSubstr("twice"), is_tame));
  EXPECT_LT(twice.size(), 500);
  const std::string broken = Refusal("[\"" + Repeated("long \xe2\x80\xae", 100'000));
  EXPECT_THAT(broken, AllOf(HasSubstr("not valid JSON"), is_tame, Not(HasSubstr("\u202e"))));
  EXPECT_LT(broken.size(), 500);
  const std::string shown = ShownJson(ParseJson("[\"" + Repeated(escapes, 1000) + "\"]", "file"));
  EXPECT_THAT(shown, is_tame);
  EXPECT_LT(shown.size(), 500);
}

}  // namespace
}  // namespace triptych::json_test
