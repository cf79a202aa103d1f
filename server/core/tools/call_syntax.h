// Syntax of the formats of calls, as automata of parts.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_CALL_SYNTAX_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_CALL_SYNTAX_H_

#include <string>
#include <utility>
#include <vector>

#include "server/core/tools/call_format.h"

namespace triptych::server {

struct CallEdge {
  enum class Kind {
    kLiteral,
    kName,       // of the function; the last one counts
    kId,         // letters and digits, which are ignored
    kObject,     // JSON with name and arguments: a call
    kArguments,  // JSON of the function that was named: a call
    kPython,     // Python's arguments in parentheses: a call
    kXml,        // arguments as elements, up to the literal: a call
  };
  Kind kind = Kind::kLiteral;
  std::string literal = {};  // kLiteral, kXml
  int next = 0;
  bool ends_calls = false;  // the calls so far are complete
};

struct CallSyntax {
  static constexpr int kText = -1;  // the state after calls

  std::vector<std::pair<std::string, int>> markers;  // which begin calls in a text, and the state
  bool at_start = false;                             // state 0 is also tried at the reply's start
  bool needs_arguments = false;                      // an object without arguments is no call
  std::vector<std::vector<CallEdge>> states;         // blanks may be before each edge
};

CallSyntax SyntaxOf(const CallFormat& format);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_CALL_SYNTAX_H_
