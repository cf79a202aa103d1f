// Interpreter of a template's syntax tree.
#ifndef TRIPTYCH_ENGINE_JINJA_INTERPRETER_H_
#define TRIPTYCH_ENGINE_JINJA_INTERPRETER_H_

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/jinja/arguments.h"
#include "engine/jinja/builtins.h"
#include "engine/jinja/limits.h"
#include "engine/jinja/scope.h"
#include "engine/jinja/syntax.h"

namespace triptych::jinja {

// Renders one template once.
class Interpreter {
 public:
  // The arguments must outlive the interpreter.
  Interpreter(const Variables& variables, const Limits& limits, std::time_t now);
  // Clears what may refer to itself.
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws RenderError.
  Text Run(const Block& block);

 private:
  using ScopePtr = std::shared_ptr<Scope>;
  enum class Flow { kOn, kBreak, kContinue };
  struct MacroValue;
  class Nesting;

  Flow Execute(const Block& block, const ScopePtr& scope, TextBuilder& out);
  Flow Execute(const Statement& statement, const ScopePtr& scope, TextBuilder& out);
  Flow ExecuteIf(const Statement& statement, const ScopePtr& scope, TextBuilder& out);
  Flow Iterate(const Statement& statement, const Value& iterable, int level, const ScopePtr& scope,
               TextBuilder& out);
  void ExecuteCall(const Statement& statement, const ScopePtr& scope, TextBuilder& out);
  Flow ExecuteWith(const Statement& statement, const ScopePtr& scope, TextBuilder& out);
  void Assign(const Target& target, const Value& value, const ScopePtr& scope);
  ScopePtr Inner(const ScopePtr& scope);
  // Sets the text of the body, unless it is left before its end.
  Flow Render(const Block& body, const ScopePtr& scope, Value& text);
  // The text through a filter block's filters; null if there are none.
  Value Filtered(const Expression* filter, Value input, const ScopePtr& scope);
  Value MakeMacro(const Macro& macro, const ScopePtr& scope);
  Value CallMacro(const MacroValue& macro, const Arguments& arguments);

  Value Evaluate(const Expression& expression, const ScopePtr& scope);
  Value EvaluateName(const Expression& expression, const ScopePtr& scope);
  Value EvaluateList(const Expression& expression, const ScopePtr& scope);
  Value EvaluateDict(const Expression& expression, const ScopePtr& scope);
  Value EvaluateSlice(const Expression& expression, const ScopePtr& scope);
  Value EvaluateCall(const Expression& expression, const ScopePtr& scope,
                     const Value* caller = nullptr);
  Value CallValue(const Value& function, const Arguments& arguments);
  Value EvaluateFilter(const Expression& expression, Value input, const ScopePtr& scope);
  Value EvaluateTest(const Expression& expression, const ScopePtr& scope);
  Value EvaluateCompare(const Expression& expression, const ScopePtr& scope);
  Value EvaluateConcat(const Expression& expression, const ScopePtr& scope);
  Value EvaluateConditional(const Expression& expression, const ScopePtr& scope);
  bool IsTrue(const Expression& expression, const ScopePtr& scope) {
    return Evaluate(expression, scope).Truth();
  }
  Arguments EvaluateArguments(const std::vector<Argument>& arguments, const ScopePtr& scope);

  const Limits& limits_;
  Heap heap_;  // before all that holds values
  Namespaces namespaces_;
  std::vector<ScopePtr> captured_;  // by macros, which these scopes hold
  const std::map<std::string, Value, std::less<>> globals_;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_INTERPRETER_H_
