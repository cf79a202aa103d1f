// Fuzz target: stop strings in text that arrives in pieces.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/text_stream.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

struct Match {
  size_t start;
  std::string stop;
};

// The first stop string; the shortest at that position.
std::optional<Match> FirstMatch(const std::string& text, const std::vector<std::string>& stops) {
  std::optional<Match> first;
  for (const std::string& stop : stops) {
    const size_t start = text.find(stop);
    if (start == text.npos) continue;
    if (!first || start < first->start ||
        (start == first->start && stop.size() < first->stop.size())) {
      first = {start, stop};
    }
  }
  return first;
}

}  // namespace

void FuzzStopStrings(std::string_view bytes) {
  FuzzInput input(bytes);
  std::vector<std::string> stops(input.AtMost(4));
  size_t longest = 0;
  for (std::string& stop : stops) {
    stop = input.Take(1 + input.AtMost(8));
    if (stop.empty()) stop = "stop";
    longest = std::max(longest, stop.size());
  }
  const size_t most = 1 + input.AtMost(8);

  StopStrings stream(stops);
  std::string all;
  std::vector<bool> hidden;  // by byte of `all`
  std::string shown;
  const auto visible = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) {
      if (!hidden[i]) text += all[i];
    }
    return text;
  };
  while (true) {
    const std::string_view piece = input.Take(input.AtMost(static_cast<uint8_t>(most)));
    if (piece.empty()) break;
    const bool over = stream.matched().has_value();
    const bool hides = piece.size() % 3 == 2;
    all += piece;
    hidden.resize(all.size(), hides);
    const std::string text = hides ? stream.PushHidden(piece) : stream.Push(piece);
    Promise(!over || text.empty(), "after a match there is no more text");
    shown += text;
    Promise(stream.matched() ||
                visible(all.size()).size() - shown.size() < std::max<size_t>(longest, 1),
            "less is held back than the longest stop string");
  }
  const bool over = stream.matched().has_value();
  const std::string rest = stream.Flush();
  Promise(!over || rest.empty(), "after a match nothing is held");
  shown += rest;
  Promise(stream.Flush().empty(), "a stream is flushed once");

  const std::optional<Match> match = FirstMatch(all, stops);
  Promise(match.has_value() == stream.matched().has_value(),
          "a stop string is found if it is there");
  Promise(shown == visible(match ? match->start : all.size()), "text ends where the match starts");
  Promise(!match || *stream.matched() == match->stop, "the first match is the one that is named");
}

}  // namespace triptych
