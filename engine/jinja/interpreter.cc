#include "engine/jinja/interpreter.h"

#include <algorithm>

#include "engine/jinja/methods.h"
#include "engine/jinja/operators.h"
#include "engine/jinja/value_text.h"

namespace triptych::jinja {

struct Interpreter::MacroValue final : Callable {
  MacroValue(Interpreter& of, const Macro& definition, ScopePtr outer)
      : interpreter(of),
        macro(definition),
        scope(std::move(outer)),
        charge(of.heap_, kObjectBytes) {}
  std::string_view TypeName() const override { return "Macro"; }
  std::optional<Value> Attribute(Heap&, std::string_view name) override {
    if (name != "name") return std::nullopt;
    return Value::Of(macro.name, Source::kTemplate);
  }
  Value Call(Heap&, const Arguments& arguments) override {
    return interpreter.CallMacro(*this, arguments);
  }

  Interpreter& interpreter;
  const Macro& macro;
  const ScopePtr scope;
  const Heap::Charge charge;
};

class Interpreter::Nesting {
 public:
  Nesting(Interpreter& of, int line) : of_(of) {
    of.line_ = line;
    of.heap_.Step();
    if (of.depth_ == kMaxRenderDepth) {
      throw Failure("nested more than " + std::to_string(kMaxRenderDepth) + " levels deep",
                    RenderError::kLimit);
    }
    ++of.depth_;
  }
  ~Nesting() { --of_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Interpreter& of_;
};

Interpreter::Interpreter(const Variables& variables, const Limits& limits, std::time_t now)
    : limits_(limits), heap_(limits.max_steps, limits.max_bytes), globals_([&] {
        // Variables hide functions of the same name, and earlier variables later ones.
        std::map<std::string, Value, std::less<>> globals(variables.begin(), variables.end());
        for (auto& [name, function] : GlobalFunctions(now, namespaces_)) {
          globals.emplace(name, std::move(function));
        }
        return globals;
      }()) {}

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) space->members.clear();
  for (const ScopePtr& scope : captured_) scope->Clear();
}

Text Interpreter::Run(const Block& block) {
  try {
    const auto scope = std::make_shared<Scope>(heap_, nullptr);
    TextBuilder out(heap_);
    Execute(block, scope, out);
    return out.TakeText();
  } catch (const Failure& failure) {
    throw RenderError(failure.kind(), line_, failure.what());
  }
}

Interpreter::ScopePtr Interpreter::Inner(const ScopePtr& scope) {
  return std::make_shared<Scope>(heap_, scope);
}

Interpreter::Flow Interpreter::Execute(const Block& block, const ScopePtr& scope,
                                       TextBuilder& out) {
  for (const auto& statement : block) {
    const Flow flow = Execute(*statement, scope, out);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement, const ScopePtr& scope,
                                       TextBuilder& out) {
  const Nesting nesting(*this, statement.line);
  switch (statement.kind) {
    case Statement::kText:
      out.Add(*statement.text.text());
      break;
    case Statement::kOutput:
      out.Add(Str(heap_, Evaluate(*statement.expressions[0], scope)));
      break;
    case Statement::kIf:
      return ExecuteIf(statement, scope, out);
    case Statement::kFor:
      return Iterate(statement, Evaluate(*statement.expressions[0], scope), 0, scope, out);
    case Statement::kSet:
      Assign(statement.targets[0], Evaluate(*statement.expressions[0], scope), scope);
      break;
    case Statement::kSetBlock: {
      Value text;
      const Flow flow = Render(statement.bodies[0], Inner(scope), text);
      if (flow != Flow::kOn) return flow;  // as in Jinja, without the text so far
      Assign(statement.targets[0], Filtered(statement.expressions[0].get(), std::move(text), scope),
             scope);
      break;
    }
    case Statement::kMacro:
      scope->Set(statement.macro->name, MakeMacro(*statement.macro, scope));
      break;
    case Statement::kCall:
      ExecuteCall(statement, scope, out);
      break;
    case Statement::kFilter: {
      Value text;
      const Flow flow = Render(statement.bodies[0], Inner(scope), text);
      if (flow != Flow::kOn) return flow;
      out.Add(Str(heap_, Filtered(statement.expressions[0].get(), std::move(text), scope)));
      break;
    }
    case Statement::kWith:
      return ExecuteWith(statement, scope, out);
    case Statement::kScope:
      return Execute(statement.bodies[0], Inner(scope), out);
    case Statement::kBreak:
      return Flow::kBreak;
    case Statement::kContinue:
      return Flow::kContinue;
  }
  if (out.size() > limits_.max_output_bytes) {
    throw Failure("the output has more than " + std::to_string(limits_.max_output_bytes) + " bytes",
                  RenderError::kLimit);
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::ExecuteIf(const Statement& statement, const ScopePtr& scope,
                                         TextBuilder& out) {
  size_t branch = 0;
  while (branch < statement.expressions.size() && !IsTrue(*statement.expressions[branch], scope)) {
    ++branch;
  }
  return Execute(statement.bodies[branch], scope, out);
}

Interpreter::Flow Interpreter::Iterate(const Statement& statement, const Value& iterable, int level,
                                       const ScopePtr& scope, TextBuilder& out) {
  const Target& target = statement.targets[0];
  Loop::Keep keep;
  if (const Expression* const filter = statement.expressions[1].get()) {
    keep = [this, filter, &target, &scope](const Value& item) {
      const ScopePtr inner = Inner(scope);
      Assign(target, item, inner);
      return IsTrue(*filter, inner);
    };
  }
  Loop::Recurse recurse;
  if (statement.recursive) {
    recurse = [this, &statement, level, &scope](const Value& children) {
      const Nesting nesting(*this, statement.line);
      TextBuilder inner(heap_);
      Iterate(statement, children, level + 1, scope, inner);
      return inner.Take();
    };
  }
  const auto loop = std::make_shared<Loop>(heap_, ToList(heap_, iterable), std::move(keep),
                                           std::move(recurse), level);
  const Value variable{std::shared_ptr<Object>(loop)};
  bool any = false;
  while (loop->Next()) {
    any = true;
    heap_.Step();
    const ScopePtr inner = Inner(scope);
    inner->Set("loop", variable);
    Assign(target, loop->item(), inner);
    if (Execute(statement.bodies[0], inner, out) == Flow::kBreak) break;
  }
  loop->End();
  // The else body may end or continue a loop around this one.
  return any ? Flow::kOn : Execute(statement.bodies[1], Inner(scope), out);
}

void Interpreter::ExecuteCall(const Statement& statement, const ScopePtr& scope, TextBuilder& out) {
  const Value caller = MakeMacro(*statement.macro, scope);
  out.Add(Str(heap_, EvaluateCall(*statement.expressions[0], scope, &caller)));
}

Interpreter::Flow Interpreter::ExecuteWith(const Statement& statement, const ScopePtr& scope,
                                           TextBuilder& out) {
  const ScopePtr inner = Inner(scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    Assign(statement.targets[i], Evaluate(*statement.expressions[i], scope), inner);
  }
  return Execute(statement.bodies[0], inner, out);
}

void Interpreter::Assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (!target.parts.empty()) {
    const Value list = ToList(heap_, value);
    const std::vector<Value>& items = list.list()->items;
    if (items.size() != target.parts.size()) {
      throw Failure("a value of " + std::to_string(items.size()) + " items is assigned to " +
                    std::to_string(target.parts.size()) + " names");
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) return scope->Set(target.name, value);
  const Value* const object = scope->Find(heap_, target.name);
  auto* const space = object == nullptr ? nullptr : object->object<Namespace>();
  if (space == nullptr)
    throw Failure("cannot assign to an attribute of '" + target.name + "'; allowed: namespaces");
  space->members[target.attribute] = value;
}

Interpreter::Flow Interpreter::Render(const Block& body, const ScopePtr& scope, Value& text) {
  TextBuilder out(heap_);
  const Flow flow = Execute(body, scope, out);
  if (flow == Flow::kOn) text = out.Take();
  return flow;
}

Value Interpreter::Filtered(const Expression* filter, Value input, const ScopePtr& scope) {
  if (filter == nullptr) return input;
  return EvaluateFilter(*filter, Filtered(filter->operands[0].get(), std::move(input), scope),
                        scope);
}

Value Interpreter::MakeMacro(const Macro& macro, const ScopePtr& scope) {
  if (captured_.empty() || captured_.back() != scope) captured_.push_back(scope);
  return Value(std::shared_ptr<Object>(std::make_shared<MacroValue>(*this, macro, scope)));
}

Value Interpreter::CallMacro(const MacroValue& value, const Arguments& arguments) {
  const Macro& macro = value.macro;
  const std::vector<std::string>& parameters = macro.parameters;
  // Each parameter becomes a variable, and each name is looked for among them.
  heap_.Step(static_cast<int64_t>(parameters.size() * (8 + arguments.named.size() / 8)));
  const ScopePtr scope = Inner(value.scope);
  const auto fail = [&](const std::string& what) {
    throw Failure("the macro '" + macro.name + "' " + what);
  };
  if (arguments.positional.size() > parameters.size() && !macro.uses_varargs) {
    fail("has " + std::to_string(arguments.positional.size()) + " arguments; allowed: at most " +
         std::to_string(parameters.size()));
  }
  const size_t count = std::min(arguments.positional.size(), parameters.size());
  for (size_t i = 0; i < count; ++i) scope->Set(parameters[i], arguments.positional[i]);
  std::vector<Dict::Entry> others;
  std::vector<bool> is_set(parameters.size(), false);
  std::fill_n(is_set.begin(), count, true);
  Value caller = Value::Missing(heap_, "the macro '" + macro.name + "' is called without a body");
  for (const auto& [name, argument] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    const auto index = static_cast<size_t>(found - parameters.begin());
    if (found != parameters.end()) {
      if (is_set[index]) fail("has two values for '" + name.substr(0, 40) + "'");
      is_set[index] = true;
      scope->Set(*found, argument);
    } else if (name == "caller" && macro.uses_caller) {
      caller = argument;
    } else if (macro.uses_kwargs) {
      others.emplace_back(MakeText(heap_, name, Source::kData), argument);
    } else {
      fail("has no parameter '" + name.substr(0, 40) + "'");
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (is_set[i]) continue;
    const size_t required = parameters.size() - macro.defaults.size();
    scope->Set(parameters[i], i >= required
                                  ? Evaluate(*macro.defaults[i - required], scope)
                                  : Value::Missing(heap_, "the parameter '" + parameters[i] +
                                                              "' was not provided"));
  }
  if (macro.uses_caller) scope->Set("caller", std::move(caller));
  if (macro.uses_kwargs) scope->Set("kwargs", MakeDict(heap_, std::move(others)));
  if (macro.uses_varargs) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(count);
    scope->Set("varargs", MakeList(heap_, {rest, arguments.positional.end()}, List::kTuple));
  }
  Value text;
  Render(macro.body, scope, text);
  return text;
}

Value Interpreter::Evaluate(const Expression& expression, const ScopePtr& scope) {
  const Nesting nesting(*this, expression.line);
  const auto operand = [&](size_t i) { return Evaluate(*expression.operands[i], scope); };
  switch (expression.kind) {
    case Expression::kConstant:
      return expression.constant;
    case Expression::kName:
      return EvaluateName(expression, scope);
    case Expression::kList:
    case Expression::kTuple:
      return EvaluateList(expression, scope);
    case Expression::kDict:
      return EvaluateDict(expression, scope);
    case Expression::kAttribute:
      return GetAttribute(heap_, operand(0), expression.name);
    case Expression::kItem: {
      const Value container = operand(0);
      return GetItem(heap_, container, operand(1));
    }
    case Expression::kSlice:
      return EvaluateSlice(expression, scope);
    case Expression::kCall:
      return EvaluateCall(expression, scope);
    case Expression::kFilter:
      return EvaluateFilter(expression, operand(0), scope);
    case Expression::kTest:
      return EvaluateTest(expression, scope);
    case Expression::kNot:
      return Value::Of(!operand(0).Truth());
    case Expression::kUnary: {
      Value number = operand(0);
      if (expression.name == "-") return Negate(number);
      return RealNumber(number) ? number : Negate(number);  // which refuses it
    }
    case Expression::kBinary: {
      const Value left = operand(0);
      return Binary(heap_, expression.name, left, operand(1));
    }
    case Expression::kCompare:
      return EvaluateCompare(expression, scope);
    case Expression::kAnd:
    case Expression::kOr: {
      Value left = operand(0);
      if (left.Truth() == (expression.kind == Expression::kOr)) return left;
      return operand(1);
    }
    case Expression::kConcat:
      return EvaluateConcat(expression, scope);
    case Expression::kConditional:
      return EvaluateConditional(expression, scope);
  }
  return {};
}

Value Interpreter::EvaluateName(const Expression& expression, const ScopePtr& scope) {
  if (const Value* const value = scope->Find(heap_, expression.name)) return *value;
  const auto found = globals_.find(expression.name);
  if (found != globals_.end()) return found->second;
  return Value::Missing(heap_, "'" + expression.name + "' is undefined");
}

Value Interpreter::EvaluateList(const Expression& expression, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(expression.operands.size());
  for (const ExpressionPtr& operand : expression.operands) {
    items.push_back(Evaluate(*operand, scope));
  }
  return MakeList(heap_, std::move(items),
                  expression.kind == Expression::kTuple ? List::kTuple : List::kList);
}

Value Interpreter::EvaluateDict(const Expression& expression, const ScopePtr& scope) {
  std::vector<Dict::Entry> entries;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    Value key = Evaluate(*expression.operands[i], scope);
    entries.emplace_back(std::move(key), Evaluate(*expression.operands[i + 1], scope));
  }
  return MakeDict(heap_, std::move(entries));
}

Value Interpreter::EvaluateSlice(const Expression& expression, const ScopePtr& scope) {
  const Value container = Evaluate(*expression.operands[0], scope);
  std::vector<Value> bounds;
  for (size_t i = 1; i < 4; ++i) {
    const Expression* const bound = expression.operands[i].get();
    bounds.push_back(bound == nullptr ? Value::None() : Evaluate(*bound, scope));
  }
  return GetSlice(heap_, container, &bounds[0], &bounds[1], &bounds[2]);
}

Value Interpreter::EvaluateCall(const Expression& expression, const ScopePtr& scope,
                                const Value* caller) {
  const Expression& callee = *expression.operands[0];
  if (callee.kind == Expression::kAttribute && caller == nullptr) {
    const Value object = Evaluate(*callee.operands[0], scope);
    if (FindMethod(object, callee.name) == MethodKind::kSafe) {
      const Arguments arguments = EvaluateArguments(expression.arguments, scope);
      line_ = expression.line;
      return CallMethod(heap_, object, callee.name, arguments);
    }
    const Value member = GetAttribute(heap_, object, callee.name);
    const Arguments arguments = EvaluateArguments(expression.arguments, scope);
    line_ = expression.line;
    return CallValue(member, arguments);
  }
  const Value function = Evaluate(callee, scope);
  Arguments arguments = EvaluateArguments(expression.arguments, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expression.line;
  return CallValue(function, arguments);
}

Value Interpreter::CallValue(const Value& function, const Arguments& arguments) {
  RequireDefined(function);
  auto* const callable = function.object<Callable>();
  if (callable == nullptr) {
    throw Failure("a value of type " + std::string(function.TypeName()) + " cannot be called");
  }
  return callable->Call(heap_, arguments);
}

Value Interpreter::EvaluateFilter(const Expression& expression, Value input,
                                  const ScopePtr& scope) {
  const Arguments arguments = EvaluateArguments(expression.arguments, scope);
  line_ = expression.line;
  const Filter filter = FindFilter(expression.name);
  if (filter == nullptr) throw Failure("there is no filter '" + expression.name + "'");
  return filter(heap_, input, arguments);
}

Value Interpreter::EvaluateTest(const Expression& expression, const ScopePtr& scope) {
  const Value input = Evaluate(*expression.operands[0], scope);
  const Arguments arguments = EvaluateArguments(expression.arguments, scope);
  line_ = expression.line;
  const Test test = FindTest(expression.name);
  if (test == nullptr) throw Failure("there is no test '" + expression.name + "'");
  return Value::Of(test(heap_, input, arguments));
}

Value Interpreter::EvaluateCompare(const Expression& expression, const ScopePtr& scope) {
  Value left = Evaluate(*expression.operands[0], scope);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    const std::string& sign = expression.operators[i];
    Value right = Evaluate(*expression.operands[i + 1], scope);
    line_ = expression.line;
    bool holds = false;
    if (sign == "==" || sign == "!=") {
      holds = Equal(heap_, left, right) == (sign == "==");
    } else if (sign == "in" || sign == "not in") {
      holds = Contains(heap_, right, left) == (sign == "in");
    } else {
      const int order = Compare(heap_, sign, left, right);
      holds = sign == "<"    ? order < 0
              : sign == "<=" ? order <= 0
              : sign == ">"  ? order > 0
                             : order >= 0;
    }
    if (!holds) return Value::Of(false);
    left = std::move(right);
  }
  return Value::Of(true);
}

Value Interpreter::EvaluateConcat(const Expression& expression, const ScopePtr& scope) {
  TextBuilder out(heap_);
  for (const ExpressionPtr& operand : expression.operands) {
    out.Add(Str(heap_, Evaluate(*operand, scope)));
  }
  return out.Take();
}

Value Interpreter::EvaluateConditional(const Expression& expression, const ScopePtr& scope) {
  if (IsTrue(*expression.operands[0], scope)) return Evaluate(*expression.operands[1], scope);
  const Expression* const otherwise = expression.operands[2].get();
  if (otherwise != nullptr) return Evaluate(*otherwise, scope);
  return Value::Missing(heap_, "an inline if has no else");
}

Arguments Interpreter::EvaluateArguments(const std::vector<Argument>& arguments,
                                         const ScopePtr& scope) {
  Arguments values;
  size_t spread = 0;  // bytes of names that dicts have
  for (const Argument& argument : arguments) {
    Value value = Evaluate(*argument.value, scope);
    switch (argument.kind) {
      case Argument::kPositional:
        values.positional.push_back(std::move(value));
        break;
      case Argument::kNamed:
        values.named.emplace_back(argument.name, std::move(value));
        break;
      case Argument::kSpread: {
        const Value list = ToList(heap_, value);
        heap_.Step(static_cast<int64_t>(list.list()->items.size()));
        values.positional.insert(values.positional.end(), list.list()->items.begin(),
                                 list.list()->items.end());
        break;
      }
      case Argument::kSpreadNamed:
        if (value.dict() == nullptr) throw Failure("** needs a dict");
        for (const auto& [key, member] : value.dict()->entries) {
          if (key.text() == nullptr) throw Failure("** needs keys of type str");
          heap_.Work(key.text()->size());
          spread += key.text()->size() + sizeof(values.named.front());
          heap_.Require(spread);
          values.named.emplace_back(key.text()->bytes(), member);
        }
        break;
    }
  }
  return values;
}

}  // namespace triptych::jinja
