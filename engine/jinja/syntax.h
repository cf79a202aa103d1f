// Syntax tree of a template.
#ifndef TRIPTYCH_ENGINE_JINJA_SYNTAX_H_
#define TRIPTYCH_ENGINE_JINJA_SYNTAX_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/jinja/value.h"

namespace triptych::jinja {

// Maximum depth of expressions in each other, and of statements in each other.
inline constexpr int kMaxSyntaxDepth = 100;

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<const Expression>;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Argument {
  enum Kind { kPositional, kNamed, kSpread, kSpreadNamed };  // a, name=a, *a, **a
  Kind kind;
  std::string name;  // of kNamed
  ExpressionPtr value;
};

struct Expression {
  enum Kind {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,       // operands: key, value, key, value...
    kAttribute,  // operand.name
    kItem,       // operands: container, index
    kSlice,      // operands: container, begin, end, step; null if absent
    kCall,       // operand: callee
    kFilter,     // operand: input; null in a filter block
    kTest,       // operand: input
    kNot,
    kUnary,
    kBinary,   // name: the operator
    kCompare,  // operands: one more than operators
    kAnd,
    kOr,
    kConcat,
    kConditional,  // operands: condition, then, else or null
  };

  Kind kind;
  int line;
  int depth = 1;
  std::string name = {};
  Value constant = {};
  std::vector<ExpressionPtr> operands = {};
  std::vector<std::string> operators = {};
  std::vector<Argument> arguments = {};
};

// The left side of an assignment: a name, the attribute of a namespace, or several of these.
struct Target {
  std::string name;
  std::string attribute = {};
  std::vector<Target> parts = {};
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Block body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Statement {
  enum Kind {
    kText,
    kOutput,    // expressions: one
    kIf,        // expressions: conditions; bodies: one for each, then the else body
    kFor,       // expressions: iterable, filter or null; bodies: the loop's, the else body
    kSet,       // expressions: one
    kSetBlock,  // expressions: a filter or null; bodies: one
    kMacro,
    kCall,    // expressions: the call
    kFilter,  // expressions: the filter; bodies: one
    kWith,    // expressions: one for each of targets; bodies: one
    kScope,   // bodies: one
    kBreak,
    kContinue,
  };

  Kind kind;
  int line;
  Value text = {};
  std::vector<ExpressionPtr> expressions = {};
  std::vector<Block> bodies = {};
  std::vector<Target> targets = {};
  bool recursive = false;
  std::unique_ptr<const Macro> macro = {};  // of kMacro; of kCall: the caller
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_SYNTAX_H_
