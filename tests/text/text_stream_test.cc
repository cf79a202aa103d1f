#include "engine/text/text_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <unordered_set>

namespace triptych::text_stream_test {
namespace {

// Calls `check` with every way to cut `bytes` into non-empty pieces.
template <typename Check>
void ForEachSplit(std::string_view bytes, Check check) {
  const size_t cuts = bytes.empty() ? 0 : bytes.size() - 1;
  for (uint32_t mask = 0; mask < (1u << cuts); ++mask) {
    std::vector<std::string_view> pieces;
    size_t start = 0;
    for (size_t i = 1; i <= bytes.size(); ++i) {
      if (i == bytes.size() || (mask >> (i - 1) & 1)) {
        pieces.push_back(bytes.substr(start, i - start));
        start = i;
      }
    }
    check(pieces);
  }
}

std::string Utf8(uint32_t code_point) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  const auto tail = [&](int shift) { return byte(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) return {byte(code_point)};
  if (code_point < 0x800) return {byte(0xC0 | code_point >> 6), tail(0)};
  if (code_point < 0x10000) return {byte(0xE0 | code_point >> 12), tail(6), tail(0)};
  return {byte(0xF0 | code_point >> 18), tail(12), tail(6), tail(0)};
}

template <typename Visit>
void ForEachCharacter(Visit visit) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c < 0xD800 || c > 0xDFFF) visit(Utf8(c));
  }
}

// Reference of UTF-8: lists of all characters and of all their beginnings.
class Utf8Reference {
 public:
  Utf8Reference() {
    ForEachCharacter([&](const std::string& character) {
      characters_.insert(character);
      for (size_t n = 1; n < character.size(); ++n) beginnings_.insert(character.substr(0, n));
    });
  }

  // The valid form of `bytes`, without an unfinished character at its end.
  std::string Decided(std::string_view bytes, bool& unfinished) const {
    std::string text;
    while (!bytes.empty()) {
      size_t n = 0;
      while (n < bytes.size() && beginnings_.contains(std::string(bytes.substr(0, n + 1)))) ++n;
      if (n == bytes.size()) break;
      if (const std::string whole(bytes.substr(0, n + 1)); characters_.contains(whole)) {
        text += whole;
        ++n;
      } else {
        text += "\uFFFD";
        n = std::max<size_t>(n, 1);
      }
      bytes.remove_prefix(n);
    }
    unfinished = !bytes.empty();
    return text;
  }

 private:
  std::unordered_set<std::string> characters_;
  std::unordered_set<std::string> beginnings_;
};

TEST(Utf8Test, ReplacesMaximalSubparts) {
  // Unicode 15, table 3-8 and its neighbours: overlong, surrogate, beyond the last, truncated.
  EXPECT_EQ(ToValidUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(ToValidUtf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(ToValidUtf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A\uFFFD\uFFFD"
            "B");
  EXPECT_EQ(ToValidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

TEST(Utf8Test, KeepsEveryCharacter) {
  ForEachCharacter([](const std::string& character) {
    ASSERT_EQ(ToValidUtf8(character), character);
    Utf8Stream stream;
    for (size_t i = 0; i + 1 < character.size(); ++i) {
      ASSERT_EQ(stream.Push(character.substr(i, 1)), "");
    }
    ASSERT_EQ(stream.Push(character.substr(character.size() - 1)), character);
    ASSERT_EQ(stream.Flush(), "");
  });
}

TEST(Utf8Test, StreamsAsTheWholeForEverySplit) {
  // Both ends of every range that decides whether a sequence is well-formed.
  constexpr std::string_view kBytes =
      "\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5";
  const Utf8Reference reference;
  std::string bytes;
  const auto check_all = [&](auto& self, size_t length) -> void {
    if (length > 0) {
      for (const char byte : kBytes) {
        bytes.push_back(byte);
        self(self, length - 1);
        bytes.pop_back();
        if (testing::Test::HasFatalFailure()) return;
      }
      return;
    }
    bool unfinished = false;
    const std::string decided = reference.Decided(bytes, unfinished);
    const std::string whole = decided + (unfinished ? "\uFFFD" : "");
    ASSERT_EQ(ToValidUtf8(bytes), whole) << testing::PrintToString(bytes);
    ForEachSplit(bytes, [&](const std::vector<std::string_view>& pieces) {
      Utf8Stream stream;
      std::string streamed;
      for (const std::string_view piece : pieces) streamed += stream.Push(piece);
      // Only the beginning of a character is held back.
      ASSERT_EQ(streamed, decided) << testing::PrintToString(bytes);
      streamed += stream.Flush();
      ASSERT_EQ(streamed, whole) << testing::PrintToString(bytes);
    });
  };
  for (size_t length = 0; length <= 4; ++length) check_all(check_all, length);
}

TEST(Utf8Test, CanBeUsedAgainAfterFlush) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xE2\x82"), "a");
  EXPECT_EQ(stream.Flush(), "\uFFFD");
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(stream.Push("\xE2\x82\xAC"), "\u20AC");
}

TEST(StopStringsTest, WithoutStopsTextPassesThrough) {
  StopStrings stops({});
  EXPECT_EQ(stops.Push("abc"), "abc");
  EXPECT_EQ(stops.Flush(), "");
  EXPECT_FALSE(stops.matched());
}

TEST(StopStringsTest, EndsBeforeAStopAndStaysSilent) {
  StopStrings stops({"\n\n", "END"});
  EXPECT_EQ(stops.Push("one\n"), "one");
  EXPECT_EQ(stops.Push("two E"), "\ntwo ");
  EXPECT_EQ(stops.Push("NDthree"), "");
  EXPECT_EQ(stops.matched(), "END");
  EXPECT_EQ(stops.Push("four\n\n"), "");
  EXPECT_EQ(stops.Flush(), "");
  EXPECT_EQ(stops.matched(), "END");
}

TEST(StopStringsTest, FlushGivesAnUnfinishedStopAsText) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.Push("the EN"), "the ");
  EXPECT_EQ(stops.Push(""), "");
  EXPECT_EQ(stops.Flush(), "EN");
  EXPECT_FALSE(stops.matched());
}

TEST(StopStringsTest, TheFirstToStartWinsAndThenTheShortest) {
  StopStrings start({"bc", "abcd"});
  EXPECT_EQ(start.Push("xabc"), "x");
  EXPECT_FALSE(start.matched());  // abcd can still follow
  EXPECT_EQ(start.Push("d"), "");
  EXPECT_EQ(start.matched(), "abcd");

  StopStrings shortest({"abcd", "ab"});
  EXPECT_EQ(shortest.Push("xabcd"), "x");
  EXPECT_EQ(shortest.matched(), "ab");
}

TEST(StopStringsTest, AStopInsideALongerOneHoldsWhenThatDoesNotCome) {
  StopStrings other({"bc", "abcd"});
  EXPECT_EQ(other.Push("xabc"), "x");
  EXPECT_EQ(other.Push("e"), "a");
  EXPECT_EQ(other.matched(), "bc");

  StopStrings end({"bc", "abcd"});
  EXPECT_EQ(end.Push("xabc"), "x");
  EXPECT_EQ(end.Flush(), "a");
  EXPECT_EQ(end.matched(), "bc");
}

// The position of the first stop string in `text`, the shortest at that position; or npos.
size_t FirstMatch(const std::string& text, const std::vector<std::string>& stops,
                  std::string& matched) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) {
    const size_t start = text.find(stop);
    if (start < first || (start != std::string::npos && start == first && stop < matched)) {
      first = start;
      matched = stop;
    }
  }
  return first;
}

// The longest suffix of `text` that is a proper prefix of a stop string.
size_t PartialLength(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

TEST(StopStringsTest, HiddenTextMatchesAndIsNotShown) {
  StopStrings alone({"<|end|>"});
  EXPECT_EQ(alone.Push("a"), "a");
  EXPECT_EQ(alone.PushHidden("<|end|>"), "");
  EXPECT_EQ(alone.matched(), "<|end|>");
  StopStrings mixed({"<|end|>\n<|start|>user"});
  EXPECT_EQ(mixed.PushHidden("<|end|>"), "");
  EXPECT_EQ(mixed.Push("\n"), "");
  EXPECT_EQ(mixed.PushHidden("<|start|>"), "");
  EXPECT_EQ(mixed.Push("you"), "\nyou");
  EXPECT_EQ(mixed.PushHidden("<|end|>"), "");
  EXPECT_EQ(mixed.Push("\n"), "");
  EXPECT_EQ(mixed.PushHidden("<|start|>"), "");
  EXPECT_EQ(mixed.Push("users"), "");
  EXPECT_EQ(mixed.matched(), "<|end|>\n<|start|>user");
  StopStrings none({});
  EXPECT_EQ(none.PushHidden("<|end|>"), "");
  EXPECT_EQ(none.Push("a"), "a");
}

TEST(StopStringsTest, AStopThatIsCompleteWhileNotActiveIsText) {
  StopStrings stops({"aab", "cc"});
  stops.SetActive(false);
  std::string text = stops.Push("xaabcc");
  text += stops.Push("aa");
  stops.SetActive(true);
  text += stops.Push("b");  // complete only now, and begun before
  EXPECT_EQ(text, "xaabcc");
  EXPECT_EQ(stops.matched(), "aab");
  // The end of a stop string that was passed over may begin the next.
  StopStrings overlapping({"aba"});
  overlapping.SetActive(false);
  text = overlapping.Push("aba");
  overlapping.SetActive(true);
  text += overlapping.Push("ba");
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(overlapping.matched(), "aba");
}

TEST(StopStringsTest, AgreesWithSearchingTheWholeText) {
  std::mt19937 random(2);
  const auto random_string = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = random_string(1 + random() % 6);
    const std::string text = random_string(random() % 16);
    SCOPED_TRACE(testing::PrintToString(stops) + " in " + text);

    std::string matched;
    const size_t end = FirstMatch(text, stops, matched);
    StopStrings stream(stops);
    std::string streamed;
    std::vector<bool> hidden;
    const auto shown = [&](size_t bytes) {
      std::string all;
      for (size_t i = 0; i < std::min(bytes, text.size()); ++i) {
        if (!hidden[i]) all += text[i];
      }
      return all;
    };
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min<size_t>(1 + random() % 4, text.size() - at);
      const bool hides = random() % 4 == 0;
      const std::string piece = text.substr(at, length);
      streamed += hides ? stream.PushHidden(piece) : stream.Push(piece);
      at += length;
      hidden.resize(at, hides);
      if (stream.matched()) continue;
      // Only text that can become a stop string is held back.
      const std::string seen = text.substr(0, at);
      ASSERT_EQ(streamed, shown(seen.size() - PartialLength(seen, stops)));
    }
    streamed += stream.Flush();
    ASSERT_EQ(streamed, shown(end));
    ASSERT_EQ(stream.matched().has_value(), end != std::string::npos);
    if (stream.matched()) {
      ASSERT_EQ(*stream.matched(), matched);
    }
  }
}

}  // namespace
}  // namespace triptych::text_stream_test
