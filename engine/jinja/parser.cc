#include "engine/jinja/parser.h"

#include <algorithm>

#include "engine/jinja/error.h"

namespace triptych::jinja {
namespace {

std::string Shown(const Token& token) {
  switch (token.kind) {
    case Token::kData:
      return "text";
    case Token::kVariableBegin:
      return "'{{'";
    case Token::kVariableEnd:
      return "'}}'";
    case Token::kBlockBegin:
      return "'{%'";
    case Token::kBlockEnd:
      return "'%}'";
    case Token::kString:
      return "a string";
    case Token::kEnd:
      return "the end of the template";
    case Token::kName:
    case Token::kInteger:
    case Token::kFloat:
    case Token::kOperator:
      return "'" + token.text.substr(0, 40) + "'";
  }
  return "";
}

std::unique_ptr<Statement> NewStatement(Statement::Kind kind, int line) {
  return std::make_unique<Statement>(Statement{.kind = kind, .line = line});
}

bool IsConstantName(std::string_view name) {
  for (const std::string_view one : {"true", "false", "none", "True", "False", "None"}) {
    if (name == one) return true;
  }
  return false;
}

}  // namespace

// Levels of syntax in each other.
class Parser::Depth {
 public:
  explicit Depth(Parser& parser) : parser_(parser) {
    if (++parser.depth_ > kMaxSyntaxDepth) {
      parser.Fail("nested more than " + std::to_string(kMaxSyntaxDepth) + " levels deep");
    }
  }
  ~Depth() { --parser_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Parser& parser_;
};

void Parser::Fail(const std::string& what) const { throw SyntaxError(current().line, what); }

void Parser::FailAtToken(const std::string& expected) const {
  Fail("unexpected " + Shown(current()) + "; expected: " + expected);
}

bool Parser::Is(const Token& token, std::string_view text) {
  return (token.kind == Token::kName || token.kind == Token::kOperator) && token.text == text;
}

bool Parser::IsOneOf(Names texts) const {
  return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) { return Is(text); });
}

bool Parser::Skip(std::string_view text) {
  if (!Is(text)) return false;
  Take();
  return true;
}

void Parser::Expect(std::string_view text) {
  if (!Skip(text)) FailAtToken("'" + std::string(text) + "'");
}

std::string Parser::ExpectName() {
  if (!Is(Token::kName)) FailAtToken("a name");
  return Take().text;
}

Block Parser::Parse() {
  Block block = ParseBlock({});
  if (!Is(Token::kEnd)) FailAtToken("no such tag here");
  return block;
}

Block Parser::ParseBlock(Names ends) {
  const Depth depth(*this);
  Block block;
  while (!Is(Token::kEnd)) {
    const int line = current().line;
    if (Is(Token::kData)) {
      auto text = NewStatement(Statement::kText, line);
      text->text = Value::Of(Take().text, Source::kTemplate);
      block.push_back(std::move(text));
    } else if (Is(Token::kVariableBegin)) {
      Take();
      auto output = NewStatement(Statement::kOutput, line);
      output->expressions.push_back(ParseTuple(/*with_condition=*/true, /*in_parentheses=*/false));
      if (!Is(Token::kVariableEnd)) FailAtToken("'}}'");
      Take();
      block.push_back(std::move(output));
    } else {
      Take();  // {%
      if (IsOneOf(ends)) return block;
      block.push_back(ParseStatement());
      EndTag();
    }
  }
  if (ends.size() > 0) FailAtToken("{% " + std::string(*(ends.end() - 1)) + " %}");
  return block;
}

Block Parser::ParseBody(Names ends) {
  Skip(":");
  EndTag();
  return ParseBlock(ends);
}

Block Parser::ParseBodyAndEnd(std::string_view end) {
  Block body = ParseBody({end});
  Expect(end);
  return body;
}

void Parser::EndTag() {
  if (!Is(Token::kBlockEnd)) FailAtToken("'%}'");
  Take();
}

std::unique_ptr<Statement> Parser::ParseStatement() {
  const int line = current().line;
  const std::string tag = ExpectName();
  if (tag == "if") return ParseIf(line);
  if (tag == "for") return ParseFor(line);
  if (tag == "set") return ParseSet(line);
  if (tag == "macro") return ParseMacro(line);
  if (tag == "call") return ParseCall(line);
  if (tag == "filter") return ParseFilterBlock(line);
  if (tag == "with") return ParseWith(line);
  if (tag == "break") return ParseLoopControl(Statement::kBreak, line);
  if (tag == "continue") return ParseLoopControl(Statement::kContinue, line);
  if (tag == "generation") {
    auto scope = NewStatement(Statement::kScope, line);
    scope->bodies.push_back(ParseBodyAndEnd("endgeneration"));
    return scope;
  }
  throw SyntaxError(line, "the tag '" + tag.substr(0, 40) +
                              "' is not supported; allowed: if, for, set, macro, call, filter, "
                              "with, break, continue, generation, raw");
}

std::unique_ptr<Statement> Parser::ParseIf(int line) {
  auto statement = NewStatement(Statement::kIf, line);
  ++conditions_;
  while (true) {
    statement->expressions.push_back(
        ParseTuple(/*with_condition=*/false, /*in_parentheses=*/false));
    statement->bodies.push_back(ParseBody({"elif", "else", "endif"}));
    if (!Skip("elif")) break;
  }
  statement->bodies.push_back(Skip("else") ? ParseBody({"endif"}) : Block());
  Expect("endif");
  --conditions_;
  return statement;
}

std::unique_ptr<Statement> Parser::ParseFor(int line) {
  auto statement = NewStatement(Statement::kFor, line);
  statement->targets.push_back(ParseTarget(/*with_attribute=*/false, /*with_tuple=*/true));
  Expect("in");
  statement->expressions.push_back(
      ParseTuple(/*with_condition=*/false, /*in_parentheses=*/false, {"if", "recursive"}));
  statement->expressions.push_back(Skip("if") ? ParseExpression() : nullptr);
  statement->recursive = Skip("recursive");
  ++loops_;
  statement->bodies.push_back(ParseBody({"else", "endfor"}));
  --loops_;
  // The else body of a recursive loop is called, so that it is in no loop.
  const int loops = loops_;
  if (statement->recursive) loops_ = 0;
  statement->bodies.push_back(Skip("else") ? ParseBody({"endfor"}) : Block());
  loops_ = loops;
  Expect("endfor");
  return statement;
}

std::unique_ptr<Statement> Parser::ParseSet(int line) {
  auto statement = NewStatement(Statement::kSet, line);
  statement->targets.push_back(ParseTarget(/*with_attribute=*/true, /*with_tuple=*/true));
  if (Skip("=")) {
    statement->expressions.push_back(ParseTuple(/*with_condition=*/true, /*in_parentheses=*/false));
    return statement;
  }
  statement->kind = Statement::kSetBlock;
  ExpressionPtr filter;
  while (Skip("|")) filter = ParseFilter(std::move(filter));
  statement->expressions.push_back(std::move(filter));
  statement->bodies.push_back(ParseBodyAndEnd("endset"));
  return statement;
}

void Parser::ParseSignature(Macro& macro) {
  Expect("(");
  while (!Is(")")) {
    if (!macro.parameters.empty()) Expect(",");
    macro.parameters.push_back(ParseTarget(/*with_attribute=*/false, /*with_tuple=*/false).name);
    if (Skip("=")) {
      macro.defaults.push_back(ParseExpression());
    } else if (!macro.defaults.empty()) {
      Fail("a parameter without a default follows one with a default");
    }
  }
  Expect(")");
}

void Parser::ParseMacroBody(Macro& macro, std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  names_.emplace_back();
  macro.body = ParseBodyAndEnd(end);
  const std::set<std::string> names = std::move(names_.back());
  names_.pop_back();
  names_.back().insert(names.begin(), names.end());
  loops_ = loops;
  macro.uses_caller = names.contains("caller");
  macro.uses_varargs = names.contains("varargs");
  macro.uses_kwargs = names.contains("kwargs");
}

std::unique_ptr<Statement> Parser::ParseMacro(int line) {
  auto statement = NewStatement(Statement::kMacro, line);
  auto macro = std::make_unique<Macro>();
  macro->name = ParseTarget(/*with_attribute=*/false, /*with_tuple=*/false).name;
  ParseSignature(*macro);
  ParseMacroBody(*macro, "endmacro");
  statement->macro = std::move(macro);
  return statement;
}

std::unique_ptr<Statement> Parser::ParseCall(int line) {
  auto statement = NewStatement(Statement::kCall, line);
  auto macro = std::make_unique<Macro>();
  macro->name = "caller";
  if (Is("(")) ParseSignature(*macro);
  statement->expressions.push_back(ParseExpression());
  if (statement->expressions.front()->kind != Expression::kCall) Fail("expected: a call");
  ParseMacroBody(*macro, "endcall");
  statement->macro = std::move(macro);
  return statement;
}

std::unique_ptr<Statement> Parser::ParseFilterBlock(int line) {
  auto statement = NewStatement(Statement::kFilter, line);
  ExpressionPtr filter = ParseFilter(nullptr);
  while (Skip("|")) filter = ParseFilter(std::move(filter));
  statement->expressions.push_back(std::move(filter));
  statement->bodies.push_back(ParseBodyAndEnd("endfilter"));
  return statement;
}

std::unique_ptr<Statement> Parser::ParseWith(int line) {
  auto statement = NewStatement(Statement::kWith, line);
  while (!Is(Token::kBlockEnd)) {
    if (!statement->targets.empty()) Expect(",");
    statement->targets.push_back(ParseTarget(/*with_attribute=*/false, /*with_tuple=*/false));
    Expect("=");
    statement->expressions.push_back(ParseExpression());
  }
  statement->bodies.push_back(ParseBodyAndEnd("endwith"));
  return statement;
}

std::unique_ptr<Statement> Parser::ParseLoopControl(Statement::Kind kind, int line) {
  if (loops_ == 0) Fail("break and continue are allowed in a loop only");
  return NewStatement(kind, line);
}

Target Parser::ParseTarget(bool with_attribute, bool with_tuple) {
  const Depth depth(*this);
  Target target;
  if (with_tuple && Skip("(")) {
    target = ParseTarget(with_attribute, with_tuple);
    Expect(")");
  } else {
    target.name = ExpectName();
    if (IsConstantName(target.name)) Fail("cannot assign to '" + target.name + "'");
    if (with_attribute && Skip(".")) target.attribute = ExpectName();
  }
  if (!with_tuple || !Is(",")) return target;
  Target all;
  all.parts.push_back(std::move(target));
  while (Skip(",")) {
    if (IsOneOf({"in", "=", ")"})) break;
    if (Is("(")) {
      Take();
      all.parts.push_back(ParseTarget(with_attribute, with_tuple));
      Expect(")");
    } else {
      all.parts.push_back(ParseTarget(with_attribute, /*with_tuple=*/false));
    }
  }
  return all;
}

}  // namespace triptych::jinja
