// Regular expressions of tokenizer files, applied to untrusted text.
#ifndef TRIPTYCH_ENGINE_TEXT_REGEX_H_
#define TRIPTYCH_ENGINE_TEXT_REGEX_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace triptych {

// The bytes [begin, end) of a text.
struct TextRange {
  size_t begin;
  size_t end;
};

// A pattern in the syntax of tokenizer files. Refuses the constructs that PCRE2 does not understand
// the same way. Thread-safe.
class Regex {
 public:
  enum class Syntax { kPattern, kLiteral };

  // `field` names the pattern in messages. Throws LoadError.
  Regex(std::string_view pattern, Syntax syntax, const std::string& field);

  // All matches from left to right, without overlaps; empty ones only where nothing else matches.
  // REQUIRES: `text` is UTF-8. Throws EncodeError if matching takes too many steps or too much
  // memory, or passes `deadline`.
  std::vector<TextRange> FindAll(std::string_view text,
                                 std::chrono::steady_clock::time_point deadline) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };

  std::string field_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_REGEX_H_
