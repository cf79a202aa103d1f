// Grammars of replies that call functions.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_CALL_GRAMMAR_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_CALL_GRAMMAR_H_

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/expressions.h"
#include "server/core/chat/reasoning.h"
#include "server/core/tools/call_format.h"

namespace triptych::server {

// Replies with calls of functions by their schemas.
struct CallForm {
  struct Function {
    std::string name;
    std::string schema;  // of the arguments; empty: any object
    std::string field;   // of the schema, in errors
  };
  std::string field = {};  // of the functions, in errors
  CallFormat format = {};
  std::vector<Function> functions = {};  // at least one
  bool may_answer = false;               // instead of calls; any text may also come before them
  bool parallel = false;                 // more than one call
  ReasoningSplitter::Begin thoughts = ReasoningSplitter::Begin::kContent;  // before the calls

  // A text that is the same for equal forms alone.
  std::string Key() const;
};

// `answer`: the form of an answer; any text if absent. Throws GrammarError, with the field and the
// path of a schema that cannot be kept.
grammar::Expression ParseCallForm(grammar::Expressions& expressions, const CallForm& form,
                                  const std::optional<grammar::Expression>& answer);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_CALL_GRAMMAR_H_
