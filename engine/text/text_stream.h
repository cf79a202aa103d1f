// Turns the bytes of generated tokens into text that may be shown. Torch-free.
#ifndef TRIPTYCH_ENGINE_TEXT_TEXT_STREAM_H_
#define TRIPTYCH_ENGINE_TEXT_TEXT_STREAM_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

// Replaces every maximal ill-formed byte sequence by U+FFFD (Unicode 15, section 3.9).
std::string ToValidUtf8(std::string_view bytes);

// Holds back the bytes of an unfinished UTF-8 character, so that text never splits one. Bytes that
// cannot become a character come out as U+FFFD.
class Utf8Stream {
 public:
  // The text that `bytes` completes.
  std::string Push(std::string_view bytes);
  // What is still held, as U+FFFD if it is unfinished.
  std::string Flush();

 private:
  std::string pending_;  // a prefix of one character, at most 3 bytes
};

// Ends a text before the stop string that starts first in it (of those that start together, the
// shortest), holding back what may be the start of one. The same for any split of the text. A stop
// string inside a longer one that may still come is decided once the longer one is.
class StopStrings {
 public:
  // REQUIRES: none is empty.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that can no longer be part of a stop string. After a match, only empty text.
  std::string Push(std::string_view text);
  // What is still held, up to a match that was not decided yet. Empty after a match.
  std::string Flush();
  // The stop string that ended the text, if one did.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  // Follows one stop string through the text in amortised constant time (Knuth, Morris, Pratt).
  struct Automaton {
    void Advance(char c);

    std::string stop;
    std::vector<size_t> border;  // of stop's first n bytes: the longest prefix that is a suffix
    size_t length;               // the longest prefix of `stop` that the text ends with
  };
  struct Found {
    size_t start;  // in held_
    std::string stop;
  };

  std::vector<Automaton> automata_;
  std::string held_;
  std::optional<Found> found_;  // complete, while one that starts earlier is still possible
  std::optional<std::string> matched_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_TEXT_STREAM_H_
