// Fuzz target: grammars of clients, and masks of tokens by them.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/expressions.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/token_grammar.h"
#include "engine/grammar/vocabulary.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

constexpr int kMostTokens = 16;

// The tokens: every byte, and some texts of JSON.
const std::vector<std::string>& Texts() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all;
    for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
    for (const char* const text : {"{\"", "\": ", "},", "ab", "12", "\xc3\xa9", "\xa9\"", "true"}) {
      all.emplace_back(text);
    }
    return all;
  }();
  return texts;
}

grammar::Expression Parse(char kind, std::string_view text, grammar::Expressions& expressions) {
  switch (kind) {
    case 'j':
      return grammar::ParseJsonSchema(expressions, text);
    case 'r':
      return grammar::ParseRegex(expressions, text);
    default:
      return grammar::ParseGbnf(expressions, text);
  }
}

// Null if the text is refused.
std::shared_ptr<const grammar::TokenGrammar> MakeGrammar(char kind, std::string_view text) {
  static const auto vocabulary = std::make_shared<const grammar::Vocabulary>(Texts());
  grammar::Expressions expressions;
  try {
    const grammar::Expression start = Parse(kind, text, expressions);
    return std::make_shared<const grammar::TokenGrammar>(
        std::make_shared<const grammar::Grammar>(grammar::Compile(expressions, start)), vocabulary);
  } catch (const grammar::GrammarError& error) {
    PromiseClearLine(error.path() + " " + error.what(), 2000);
    return nullptr;
  }
}

}  // namespace

// `bytes`: the kind of text, the text up to a NUL, and choices of tokens.
void FuzzGrammar(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t end = std::min(bytes.find('\0'), bytes.size());
  const auto made = MakeGrammar(bytes[0], bytes.substr(1, end - std::min<size_t>(end, 1)));
  if (made == nullptr) return;
  grammar::Matcher matcher = made->Start();
  for (const char choice : bytes.substr(end).substr(0, kMostTokens)) {
    const auto mask = made->MaskOf(matcher);
    if (mask == nullptr) return;
    std::vector<size_t> allowed;
    for (size_t token = 0; token < Texts().size(); ++token) {
      const bool in_mask = ((*mask)[token / 64] >> (token % 64) & 1) != 0;
      grammar::Matcher ahead = matcher;
      Promise(in_mask == ahead.Advance(Texts()[token]), "a mask has the tokens that go on");
      if (in_mask) allowed.push_back(token);
    }
    Promise(!allowed.empty() || matcher.MayEnd(), "a text goes on or may end");
    Promise(!matcher.complete() || allowed.empty(), "nothing follows a complete text");
    if (allowed.empty()) return;
    matcher.Advance(Texts()[allowed[static_cast<unsigned char>(choice) % allowed.size()]]);
  }
}

}  // namespace triptych
