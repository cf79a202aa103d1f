// Lexer of templates.
#ifndef TRIPTYCH_ENGINE_JINJA_LEXER_H_
#define TRIPTYCH_ENGINE_JINJA_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

namespace triptych::jinja {

struct Token {
  enum Kind {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // text: its value
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  int line;
  std::string text;
};

// The tokens of a template, with kEnd at the end: as Jinja with trim_blocks and lstrip_blocks.
// Throws SyntaxError.
std::vector<Token> Lex(std::string_view source);

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_LEXER_H_
