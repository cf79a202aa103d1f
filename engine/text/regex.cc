#include "engine/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/base/utf8.h"
#include "engine/text/tokenizer.h"

namespace triptych {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// Maximum backtracking steps of one search: a constant plus a number per byte of the text.
// Published patterns take at most a few steps per byte, on a text of spaces.
constexpr size_t kMatchLimit = 4096;
constexpr size_t kMatchLimitPerByte = 32;
// Start offsets tried between checks of the deadline.
constexpr size_t kPlacesPerSearch = 16;
constexpr uint32_t kHeapLimitKiB = 64 << 10;
// Longer texts get a matching stack of kJitStackBytes. For others, the 32 KiB that PCRE2 takes of
// the thread's stack suffice.
constexpr size_t kLongTextBytes = 4096;
constexpr size_t kJitStackBytes = 1 << 20;

struct FreeContexts {
  void operator()(pcre2_compile_context* it) const { pcre2_compile_context_free(it); }
  void operator()(pcre2_match_context* it) const { pcre2_match_context_free(it); }
  void operator()(pcre2_match_data* it) const { pcre2_match_data_free(it); }
  void operator()(pcre2_jit_stack* it) const { pcre2_jit_stack_free(it); }
};
template <typename T>
using Owned = std::unique_ptr<T, FreeContexts>;

[[noreturn]] void Refuse(const std::string& field, std::string_view pattern,
                         const std::string& why) {
  throw LoadError(field + " is " + Quoted(pattern) + "; " + why);
}

// Scripts that published tokenizers name. In PCRE2 from 10.40 on, \p{Han} also means the common
// characters that texts of the script use; in other engines it does not.
constexpr std::string_view kScripts[] = {
    "Arabic", "Armenian", "Bengali", "Bopomofo", "Cyrillic", "Devanagari", "Georgian",
    "Greek",  "Han",      "Hangul",  "Hebrew",   "Hiragana", "Katakana",   "Khmer",
    "Lao",    "Latin",    "Myanmar", "Tamil",    "Telugu",   "Thai"};
constexpr std::string_view kScriptAlone = PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40 ? "sc:" : "";

// Translates the pattern for PCRE2, whose \s also matches U+180E, which is not white space in
// Unicode. Refuses constructs that mean something else in PCRE2, or that let a pattern do more than
// match.
std::string ToPcre2(std::string_view pattern, const std::string& field) {
  std::string translated;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.substr(i).starts_with("(*") || pattern.substr(i).starts_with("(?C")) {
      Refuse(field, pattern, "verbs and callouts are not supported");
    }
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      translated += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      translated += "\\p{White_Space}";
    } else if (escaped == 'S') {
      translated += "\\P{White_Space}";
    } else if (std::string_view("hHKCgkQEG").find(escaped) != std::string_view::npos) {
      Refuse(field, pattern, std::string("\\") + escaped + " is not supported");
    } else {
      translated += '\\';
      translated += escaped;
      for (const std::string_view script : kScripts) {
        const std::string name = std::string(script) + "}";
        if ((escaped != 'p' && escaped != 'P') || !pattern.substr(i + 1).starts_with("{" + name)) {
          continue;
        }
        translated.append("{").append(kScriptAlone).append(name);
        i += 1 + name.size();
        break;
      }
    }
  }
  return translated;
}

std::string ErrorText(int code) {
  PCRE2_UCHAR text[160];
  if (pcre2_get_error_message(code, text, sizeof(text)) < 0) return std::to_string(code);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Regex::Regex(std::string_view pattern, Syntax syntax, const std::string& field) : field_(field) {
  if (pattern.size() > kMaxPatternBytes) {
    Refuse(field, pattern, "allowed: at most " + std::to_string(kMaxPatternBytes) + " bytes");
  }
  if (FindInvalidUtf8(pattern)) Refuse(field, pattern, "allowed: UTF-8");
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const bool literal = syntax == Syntax::kLiteral;
  const std::string translated = literal ? std::string(pattern) : ToPcre2(pattern, field);
  // ^ and $ match at the ends of each line, as in Oniguruma, for which the files are written.
  const uint32_t options = literal
                               ? PCRE2_UTF | PCRE2_LITERAL
                               : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  const uint32_t searches = options | PCRE2_USE_OFFSET_LIMIT;
  int error = 0;
  size_t offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                            searches, &error, &offset, context.get()));
  if (!code_) Refuse(field, pattern, "not a supported regular expression: " + ErrorText(error));
  // A pattern that cannot be compiled to machine code is interpreted.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

std::vector<TextRange> Regex::FindAll(std::string_view text,
                                      std::chrono::steady_clock::time_point deadline) const {
  const Owned<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  const Owned<pcre2_match_data> data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  if (!context || !data) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min<size_t>(
                                           kMatchLimit + kMatchLimitPerByte * text.size(),
                                           std::numeric_limits<uint32_t>::max())));
  pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
  Owned<pcre2_jit_stack> stack;
  if (text.size() > kLongTextBytes) {
    stack.reset(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr));
    if (!stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }

  std::vector<TextRange> matches;
  const size_t* const found = pcre2_get_ovector_pointer(data.get());
  size_t end = 0;  // of the last match
  for (size_t at = 0; at <= text.size();) {
    const size_t last = std::min(at + kPlacesPerSearch, text.size());
    pcre2_set_offset_limit(context.get(), last);
    const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    const bool late = std::chrono::steady_clock::now() > deadline;
    if (late || (result < 0 && result != PCRE2_ERROR_NOMATCH)) {
      throw EncodeError("the pattern of the tokenizer's " + field_ +
                        " takes too long on this text" + (late ? "" : ": " + ErrorText(result)));
    }
    if (result == PCRE2_ERROR_NOMATCH) {
      if (last == text.size()) break;
      at = last + 1;
      while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;  // to the next character
      continue;
    }
    const TextRange match{found[0], found[1]};
    if (match.end > match.begin) {
      matches.push_back(match);
      at = end = match.end;
      continue;
    }
    if (matches.empty() || match.begin > end) matches.push_back(match);
    end = match.begin;
    if (match.begin == text.size()) break;
    at = match.begin + FirstUtf8Piece(text.substr(match.begin)).length;
  }
  return matches;
}

}  // namespace triptych
