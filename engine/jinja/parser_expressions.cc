#include <charconv>
#include <cstdint>

#include "engine/jinja/builtins.h"
#include "engine/jinja/error.h"
#include "engine/jinja/parser.h"

namespace triptych::jinja {

ExpressionPtr Parser::Node(Expression expression) const {
  for (const ExpressionPtr& operand : expression.operands) {
    if (operand != nullptr) expression.depth = std::max(expression.depth, operand->depth + 1);
  }
  for (const Argument& argument : expression.arguments) {
    expression.depth = std::max(expression.depth, argument.value->depth + 1);
  }
  if (expression.depth > kMaxSyntaxDepth) {
    throw SyntaxError(expression.line, "an expression is nested more than " +
                                           std::to_string(kMaxSyntaxDepth) + " levels deep");
  }
  return std::make_unique<const Expression>(std::move(expression));
}

ExpressionPtr Parser::Node(Expression::Kind kind, int line, std::string name, ExpressionPtr first,
                           ExpressionPtr second) const {
  Expression expression{.kind = kind, .line = line, .name = std::move(name)};
  expression.operands.push_back(std::move(first));
  if (second != nullptr) expression.operands.push_back(std::move(second));
  return Node(std::move(expression));
}

ExpressionPtr Parser::ParseExpression(bool with_condition) {
  if (++depth_ > kMaxSyntaxDepth) {
    Fail("nested more than " + std::to_string(kMaxSyntaxDepth) + " levels deep");
  }
  ExpressionPtr expression = with_condition ? ParseCondition() : ParseOr();
  --depth_;  // an exception ends the parser
  return expression;
}

bool Parser::IsTupleEnd(Names ends) const {
  return Is(Token::kVariableEnd) || Is(Token::kBlockEnd) || Is(")") || IsOneOf(ends);
}

ExpressionPtr Parser::ParseTuple(bool with_condition, bool in_parentheses, Names ends) {
  Expression tuple{.kind = Expression::kTuple, .line = current().line};
  bool is_tuple = false;
  while (!IsTupleEnd(ends)) {
    tuple.operands.push_back(ParseExpression(with_condition));
    if (!Skip(",")) break;
    is_tuple = true;
  }
  if (tuple.operands.empty() && !in_parentheses) FailAtToken("an expression");
  if (!is_tuple && tuple.operands.size() == 1) return std::move(tuple.operands.front());
  return Node(std::move(tuple));
}

ExpressionPtr Parser::ParseCondition() {
  ExpressionPtr then = ParseOr();
  while (Is("if")) {
    const int line = Take().line;
    Expression node{.kind = Expression::kConditional, .line = line};
    node.operands.push_back(ParseOr());
    node.operands.push_back(std::move(then));
    node.operands.push_back(Skip("else") ? ParseExpression() : nullptr);
    then = Node(std::move(node));
  }
  return then;
}

ExpressionPtr Parser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (Is("or")) {
    const int line = Take().line;
    left = Node(Expression::kOr, line, "", std::move(left), ParseAnd());
  }
  return left;
}

ExpressionPtr Parser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (Is("and")) {
    const int line = Take().line;
    left = Node(Expression::kAnd, line, "", std::move(left), ParseNot());
  }
  return left;
}

ExpressionPtr Parser::ParseNot() {
  std::vector<int> lines;
  while (Is("not")) lines.push_back(Take().line);
  ExpressionPtr operand = ParseCompare();
  for (; !lines.empty(); lines.pop_back()) {
    operand = Node(Expression::kNot, lines.back(), "", std::move(operand));
  }
  return operand;
}

ExpressionPtr Parser::ParseCompare() {
  Expression node{.kind = Expression::kCompare, .line = current().line};
  node.operands.push_back(ParseSum());
  while (true) {
    if (IsOneOf({"==", "!=", ">", ">=", "<", "<=", "in"})) {
      node.operators.push_back(Take().text);
    } else if (Is("not") && Is(ahead(), "in")) {
      Take();
      Take();
      node.operators.emplace_back("not in");
    } else {
      break;
    }
    node.operands.push_back(ParseSum());
  }
  if (node.operators.empty()) return std::move(node.operands.front());
  return Node(std::move(node));
}

ExpressionPtr Parser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  while (IsOneOf({"+", "-"})) {
    const Token token = Take();
    left = Node(Expression::kBinary, token.line, token.text, std::move(left), ParseConcat());
  }
  return left;
}

ExpressionPtr Parser::ParseConcat() {
  Expression node{.kind = Expression::kConcat, .line = current().line};
  node.operands.push_back(ParseProduct());
  while (Skip("~")) node.operands.push_back(ParseProduct());
  if (node.operands.size() == 1) return std::move(node.operands.front());
  return Node(std::move(node));
}

ExpressionPtr Parser::ParseProduct() {
  ExpressionPtr left = ParsePower();
  while (IsOneOf({"*", "/", "//", "%"})) {
    const Token token = Take();
    left = Node(Expression::kBinary, token.line, token.text, std::move(left), ParsePower());
  }
  return left;
}

ExpressionPtr Parser::ParsePower() {
  ExpressionPtr left = ParseUnary();
  while (Is("**")) {
    const Token token = Take();
    left = Node(Expression::kBinary, token.line, token.text, std::move(left), ParseUnary());
  }
  return left;
}

ExpressionPtr Parser::ParseUnary(bool with_filters) {
  ExpressionPtr operand;
  if (IsOneOf({"-", "+"})) {
    const Token token = Take();
    if (++depth_ > kMaxSyntaxDepth) {
      Fail("nested more than " + std::to_string(kMaxSyntaxDepth) + " levels deep");
    }
    operand = Node(Expression::kUnary, token.line, token.text, ParseUnary(/*with_filters=*/false));
    --depth_;
  } else {
    operand = ParsePrimary();
  }
  operand = ParsePostfix(std::move(operand));
  return with_filters ? ParseFilters(std::move(operand)) : std::move(operand);
}

ExpressionPtr Parser::ParsePrimary() {
  const Token& token = current();
  Expression node{.kind = Expression::kConstant, .line = token.line};
  switch (token.kind) {
    case Token::kName: {
      const std::string name = Take().text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        node.constant = Value::Of(name == "true" || name == "True");
      } else if (name == "none" || name == "None") {
        node.constant = Value::None();
      } else {
        node.kind = Expression::kName;
        node.name = name;
        names_.back().insert(name);
      }
      return Node(std::move(node));
    }
    case Token::kString: {
      std::string text;
      while (Is(Token::kString)) text += Take().text;
      node.constant = Value::Of(text, Source::kTemplate);
      return Node(std::move(node));
    }
    case Token::kInteger:
    case Token::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (Skip("(")) {
    ExpressionPtr inner = ParseTuple(/*with_condition=*/true, /*in_parentheses=*/true);
    Expect(")");
    return inner;
  }
  if (Is("[")) return ParseList();
  if (Is("{")) return ParseDict();
  FailAtToken("an expression");
}

ExpressionPtr Parser::ParseNumber() {
  const Token token = Take();
  Expression node{.kind = Expression::kConstant, .line = token.line};
  std::string_view text = token.text;
  std::from_chars_result read{};
  if (token.kind == Token::kFloat) {
    double value = 0;
    read = std::from_chars(text.data(), text.data() + text.size(), value);
    node.constant = Value::Of(value);
  } else {
    int base = 10;
    if (text.size() > 1 && text[0] == '0') {
      const char letter = static_cast<char>(text[1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (base != 10) text.remove_prefix(2);
    }
    int64_t value = 0;
    read = std::from_chars(text.data(), text.data() + text.size(), value, base);
    node.constant = Value::Of(value);
  }
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    throw SyntaxError(token.line, "the number " + token.text.substr(0, 40) +
                                      " is not supported; allowed: numbers of 64 bits");
  }
  return Node(std::move(node));
}

ExpressionPtr Parser::ParseList() {
  Expression node{.kind = Expression::kList, .line = Take().line};
  while (!Is("]")) {
    if (!node.operands.empty()) {
      Expect(",");
      if (Is("]")) break;
    }
    node.operands.push_back(ParseExpression());
  }
  Expect("]");
  return Node(std::move(node));
}

ExpressionPtr Parser::ParseDict() {
  Expression node{.kind = Expression::kDict, .line = Take().line};
  while (!Is("}")) {
    if (!node.operands.empty()) {
      Expect(",");
      if (Is("}")) break;
    }
    node.operands.push_back(ParseExpression());
    Expect(":");
    node.operands.push_back(ParseExpression());
  }
  Expect("}");
  return Node(std::move(node));
}

ExpressionPtr Parser::ParsePostfix(ExpressionPtr operand) {
  while (true) {
    if (IsOneOf({".", "["})) {
      operand = ParseSubscript(std::move(operand));
    } else if (Is("(")) {
      operand = ParseCallOf(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr Parser::ParseSubscript(ExpressionPtr operand) {
  const int line = current().line;
  if (Skip("[")) return ParseIndex(std::move(operand));
  Expect(".");
  if (Is(Token::kInteger)) {
    return Node(Expression::kItem, line, "", std::move(operand), ParseNumber());
  }
  return Node(Expression::kAttribute, line, ExpectName(), std::move(operand));
}

ExpressionPtr Parser::ParseIndex(ExpressionPtr operand) {
  Expression node{.kind = Expression::kItem, .line = current().line};
  node.operands.push_back(std::move(operand));
  node.operands.push_back(Is(":") ? nullptr : ParseExpression());
  if (Is(":")) {
    node.kind = Expression::kSlice;
    while (Skip(":") && node.operands.size() < 4) {
      node.operands.push_back(IsOneOf({":", "]"}) ? nullptr : ParseExpression());
    }
    node.operands.resize(4);
  } else if (Is(",")) {
    Fail("an index of several values is not supported");
  }
  Expect("]");
  return Node(std::move(node));
}

ExpressionPtr Parser::ParseFilters(ExpressionPtr operand) {
  while (true) {
    if (Skip("|")) {
      operand = ParseFilter(std::move(operand));
    } else if (Skip("is")) {
      operand = ParseTest(std::move(operand));
    } else if (Is("(")) {
      operand = ParseCallOf(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr Parser::ParseFilter(ExpressionPtr operand) {
  Expression node{.kind = Expression::kFilter, .line = current().line, .name = ExpectName()};
  if (FindFilter(node.name) == nullptr && conditions_ == 0) {
    throw SyntaxError(node.line, "there is no filter '" + node.name.substr(0, 40) + "'");
  }
  node.operands.push_back(std::move(operand));
  if (Is("(")) node.arguments = ParseArguments();
  return Node(std::move(node));
}

ExpressionPtr Parser::ParseTest(ExpressionPtr operand) {
  const int line = current().line;
  const bool negated = Skip("not");
  Expression node{.kind = Expression::kTest, .line = line, .name = ExpectName()};
  if (FindTest(node.name) == nullptr && conditions_ == 0) {
    throw SyntaxError(line, "there is no test '" + node.name.substr(0, 40) + "'");
  }
  node.operands.push_back(std::move(operand));
  const bool begins_value = Is(Token::kName) || Is(Token::kString) || Is(Token::kInteger) ||
                            Is(Token::kFloat) || IsOneOf({"[", "{"});
  if (Is("(")) {
    node.arguments = ParseArguments();
  } else if (begins_value && !IsOneOf({"else", "or", "and", "if", "in", "not", "recursive"})) {
    if (Is("is")) Fail("tests cannot be chained");
    node.arguments.push_back({Argument::kPositional, "", ParsePostfix(ParsePrimary())});
  }
  ExpressionPtr test = Node(std::move(node));
  return negated ? Node(Expression::kNot, line, "", std::move(test)) : std::move(test);
}

ExpressionPtr Parser::ParseCallOf(ExpressionPtr operand) {
  Expression node{.kind = Expression::kCall, .line = current().line};
  node.operands.push_back(std::move(operand));
  node.arguments = ParseArguments();
  return Node(std::move(node));
}

std::vector<Argument> Parser::ParseArguments() {
  std::vector<Argument> arguments;
  Expect("(");
  while (!Is(")")) {
    if (!arguments.empty()) {
      Expect(",");
      if (Is(")")) break;
    }
    Argument argument{Argument::kPositional, "", nullptr};
    if (Skip("*")) {
      argument.kind = Argument::kSpread;
    } else if (Skip("**")) {
      argument.kind = Argument::kSpreadNamed;
    } else if (Is(Token::kName) && Is(ahead(), "=")) {
      argument.kind = Argument::kNamed;
      argument.name = Take().text;
      Take();
    }
    argument.value = ParseExpression();
    arguments.push_back(std::move(argument));
  }
  Expect(")");
  return arguments;
}

}  // namespace triptych::jinja
