// Parser of templates.
#ifndef TRIPTYCH_ENGINE_JINJA_PARSER_H_
#define TRIPTYCH_ENGINE_JINJA_PARSER_H_

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja/lexer.h"
#include "engine/jinja/syntax.h"

namespace triptych::jinja {

// Recursive descent over Jinja's grammar, without tags that read other templates.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Throws SyntaxError.
  Block Parse();

 private:
  class Depth;
  using Names = std::initializer_list<std::string_view>;

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool Is(Token::Kind kind) const { return current().kind == kind; }
  static bool Is(const Token& token, std::string_view text);
  bool Is(std::string_view text) const { return Is(current(), text); }
  bool IsOneOf(Names texts) const;
  bool Skip(std::string_view text);
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  void Expect(std::string_view text);
  std::string ExpectName();
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void FailAtToken(const std::string& expected) const;

  // Statements.
  Block ParseBlock(Names ends);  // up to one of the tags, whose name is the current token
  Block ParseBody(Names ends);   // the same after the tag that begins it
  Block ParseBodyAndEnd(std::string_view end);
  void EndTag();
  std::unique_ptr<Statement> ParseStatement();
  std::unique_ptr<Statement> ParseIf(int line);
  std::unique_ptr<Statement> ParseFor(int line);
  std::unique_ptr<Statement> ParseSet(int line);
  std::unique_ptr<Statement> ParseMacro(int line);
  std::unique_ptr<Statement> ParseCall(int line);
  std::unique_ptr<Statement> ParseFilterBlock(int line);
  std::unique_ptr<Statement> ParseWith(int line);
  std::unique_ptr<Statement> ParseLoopControl(Statement::Kind kind, int line);
  void ParseSignature(Macro& macro);
  void ParseMacroBody(Macro& macro, std::string_view end);
  Target ParseTarget(bool with_attribute, bool with_tuple);

  // Expressions.
  ExpressionPtr ParseExpression(bool with_condition = true);
  ExpressionPtr ParseTuple(bool with_condition, bool in_parentheses, Names ends = {});
  bool IsTupleEnd(Names ends) const;
  ExpressionPtr ParseCondition();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters = true);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseNumber();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr operand);
  ExpressionPtr ParseSubscript(ExpressionPtr operand);
  ExpressionPtr ParseIndex(ExpressionPtr operand);
  ExpressionPtr ParseFilters(ExpressionPtr operand);
  ExpressionPtr ParseFilter(ExpressionPtr operand);  // after the '|'; null in a filter block
  ExpressionPtr ParseTest(ExpressionPtr operand);    // after 'is'
  ExpressionPtr ParseCallOf(ExpressionPtr operand);
  std::vector<Argument> ParseArguments();
  // A node with its depth. Throws beyond kMaxSyntaxDepth.
  ExpressionPtr Node(Expression expression) const;
  ExpressionPtr Node(Expression::Kind kind, int line, std::string name, ExpressionPtr first,
                     ExpressionPtr second = nullptr) const;

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int conditions_ = 0;  // if statements, in which an unknown filter or test fails once it is used
  int loops_ = 0;       // in the current macro
  std::vector<std::set<std::string>> names_ = {{}};  // read in each open macro
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_PARSER_H_
