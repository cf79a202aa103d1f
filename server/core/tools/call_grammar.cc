#include "server/core/tools/call_grammar.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/json.h"
#include "engine/grammar/error.h"
#include "engine/grammar/json_schema.h"
#include "server/core/tools/call_parser.h"
#include "server/core/tools/call_syntax.h"

namespace triptych::server {
namespace {

using grammar::CharacterRanges;
using grammar::Expression;
using grammar::Expressions;

Expression Blanks(Expressions& e) {
  constexpr int32_t kMostBlanks = 4;
  return e.Repeat(e.Characters({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}}), 0, kMostBlanks);
}

CharacterRanges AllExcept(std::u32string_view characters) {
  CharacterRanges ranges;
  for (const char32_t c : characters) ranges.emplace_back(c, c);
  return grammar::Complement(grammar::Normalized(std::move(ranges)));
}

// Text up to the first `marker`, and then `rest`. With `may_end`, also text without the marker.
// REQUIRES: the marker's first character does not come again in it.
Expression TextUntil(Expressions& e, std::string_view marker, Expression rest, bool may_end) {
  std::u32string characters;
  for (size_t at = 0; at < marker.size();) {
    characters += grammar::TakeCharacter(marker, at);
  }
  // states[n]: n characters of the marker have come.
  std::vector<Expression> states;
  for (size_t n = 0; n < characters.size(); ++n) states.push_back(e.Rule("text"));
  const char32_t first = characters.front();
  for (size_t n = 0; n < characters.size(); ++n) {
    const char32_t next = characters[n];
    const auto one = [&](char32_t c) { return e.Characters({{c, c}}); };
    std::vector<Expression> ways = {
        e.Sequence(
            {e.Characters(AllExcept(n == 0 ? std::u32string{first} : std::u32string{first, next})),
             states[0]}),
        e.Sequence({one(next), n + 1 < characters.size() ? states[n + 1] : rest})};
    if (n > 0) ways.push_back(e.Sequence({one(first), states[1]}));
    if (may_end) ways.push_back(e.Sequence({}));
    e.Define(states[n], e.Choice(std::move(ways)));
  }
  return states[0];
}

// Text that is no call of the format: it does not begin like one.
Expression TextUnlike(Expressions& e, std::u32string_view first) {
  const Expression any = e.Star(e.Characters(AllExcept(U"")));
  return e.Optional(e.Sequence({e.Characters(AllExcept(first)), any}));
}

Expression ArgumentsOf(Expressions& e, const CallForm::Function& function) {
  if (function.schema.empty()) return grammar::AnyJsonObject(e);
  try {
    return grammar::ParseJsonSchema(e, function.schema);
  } catch (const grammar::GrammarError& error) {
    throw grammar::GrammarError(error.what(), function.field + error.path());
  }
}

// The calls, of which the first `done` bytes have come.
Expression Calls(Expressions& e, const CallForm& form, size_t done) {
  const CallFrame shared = FrameOf(form.format, "");
  std::vector<Expression> first, more;
  for (const CallForm::Function& function : form.functions) {
    const CallFrame frame = FrameOf(form.format, function.name);
    const Expression arguments = ArgumentsOf(e, function);
    const Expression after = e.Literal(frame.after);
    const std::string begin = shared.begin + frame.before;
    first.push_back(e.Sequence({e.Literal(begin.substr(done)), arguments, after}));
    more.push_back(e.Sequence({e.Literal(frame.before), arguments, after}));
  }
  std::vector<Expression> parts = {e.Choice(std::move(first))};
  if (form.parallel) {
    parts.push_back(e.Repeat(e.Sequence({e.Literal(shared.separator), e.Choice(std::move(more))}),
                             0, CallParser::kMaxCalls - 1));
  }
  parts.push_back(e.Literal(shared.end));
  return e.Sequence(std::move(parts));
}

Expression AnswerOrCalls(Expressions& e, const CallForm& form,
                         const std::optional<Expression>& answer) {
  if (answer) return e.Choice({Calls(e, form, 0), *answer});
  const CallSyntax syntax = SyntaxOf(form.format);
  if (syntax.at_start) return e.Choice({Calls(e, form, 0), TextUnlike(e, U"{[< \t\r\n")});
  const std::string& marker = syntax.markers.front().first;
  return TextUntil(e, marker, Calls(e, form, marker.size()), /*may_end=*/true);
}

}  // namespace

std::string CallForm::Key() const {
  Json key = {static_cast<int>(format.kind), format.marker, format.end, may_answer, parallel,
              static_cast<int>(thoughts)};
  for (const Function& function : functions) key.push_back({function.name, function.schema});
  return key.dump();
}

grammar::Expression ParseCallForm(Expressions& expressions, const CallForm& form,
                                  const std::optional<Expression>& answer) {
  Expressions& e = expressions;
  const Expression reply = form.may_answer ? AnswerOrCalls(e, form, answer) : Calls(e, form, 0);
  if (form.thoughts == ReasoningSplitter::Begin::kContent) return reply;
  const Expression behind = e.Sequence({Blanks(e), reply});
  const Expression thoughts = TextUntil(e, ReasoningSplitter::kClose, behind, /*may_end=*/false);
  if (form.thoughts == ReasoningSplitter::Begin::kThoughts) return thoughts;
  return e.Choice({reply, e.Sequence({Blanks(e), e.Literal(ReasoningSplitter::kOpen), thoughts})});
}

}  // namespace triptych::server
