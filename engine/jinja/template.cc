#include "engine/jinja/template.h"

#include <algorithm>

#include "engine/base/utf8.h"
#include "engine/jinja/interpreter.h"
#include "engine/jinja/lexer.h"
#include "engine/jinja/parser.h"

namespace triptych::jinja {
namespace {

Block Parse(std::string_view text) {
  if (const auto invalid = FindInvalidUtf8(text)) {
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*invalid), '\n');
    throw SyntaxError(static_cast<int>(line), "the template is not UTF-8");
  }
  return Parser(Lex(text)).Parse();
}

}  // namespace

Template::Template(std::string_view text) : block_(Parse(text)) {}

Text Template::Render(const Variables& variables, const Limits& limits, std::time_t now) const {
  return Interpreter(variables, limits, now).Run(block_);
}

}  // namespace triptych::jinja
