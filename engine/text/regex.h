// Regular expressions that a file holds, over text that anybody may have written. Torch-free.
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

// Bytes of a text, from begin to before end.
struct TextRange {
  size_t begin;
  size_t end;
};

// A pattern in the syntax of tokenizer files, of which PCRE2 understands all but what is refused.
// Thread-safe.
class Regex {
 public:
  enum class Syntax { kPattern, kLiteral };

  // `field` names the pattern in messages. Throws LoadError.
  Regex(std::string_view pattern, Syntax syntax, const std::string& field);

  // All matches from left to right, none inside another; empty ones where nothing else matched.
  // REQUIRES: `text` is UTF-8. Throws EncodeError if that takes too much, or until after
  // `deadline`.
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
