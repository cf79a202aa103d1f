// Separation of calls of functions from the text of a reply.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_CALL_PARSER_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_CALL_PARSER_H_

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/tools/call_format.h"
#include "server/core/tools/json_scanner.h"
#include "server/core/tools/python_arguments.h"

namespace triptych::server {

// A part of a reply, in order. A call is a piece with its name, and then its arguments in any
// number of pieces.
struct ReplyPiece {
  enum class Kind { kThoughts, kContent, kCall, kArguments };
  Kind kind;
  std::string text;
};
using ReplyPieces = std::vector<ReplyPiece>;

// Appends a piece, to the last one if it is of the same kind. Ignores empty text, except of a call.
void AddPiece(ReplyPiece::Kind kind, std::string_view text, ReplyPieces& pieces);

struct CallEdge;
struct CallSyntax;

// Facts that all choices of a reply share.
struct ReplyTools {
  CallFormat format;
  std::set<std::string, std::less<>> names;  // that may be called
  // By function: the arguments that are strings by its schema. Only arguments as elements need it.
  std::map<std::string, std::set<std::string>> texts;
  // The reply has a grammar, by which a call that begins is one.
  bool by_grammar = false;
  bool parallel = true;  // otherwise calls after the first are left out
};

// Follows a reply's content. The pieces are the same for any split of the text, joined. A text that
// is no complete call of one of the functions stays content; by a grammar, or after
// StreamArguments, a call may be cut off. Blanks before a call are dropped, and those after the
// last one. Takes time linear in the text. Not thread-safe.
class CallParser {
 public:
  static constexpr size_t kMaxCallBytes = size_t{1} << 20;  // of one call; of calls in one list
  static constexpr int kMaxCalls = 128;                     // of a reply; a list with more is text
  // Of nested values in a call. By a grammar, a reply has at most grammar::kMaxStackDepth.
  static constexpr size_t kMaxCallDepth = 64, kMaxGrammarDepth = 1024;

  explicit CallParser(std::shared_ptr<const ReplyTools> tools);

  // Passes arguments in JSON on as they come, which a parser with a grammar always does, and other
  // calls as soon as they are complete. The text after a call's last valid byte is content.
  // REQUIRES: no text was pushed.
  void StreamArguments() { eager_ = true; }

  // Adds the pieces that `text` decides. With `last`, all of the rest.
  void Push(std::string_view text, bool last, ReplyPieces& pieces);

 private:
  struct Call {
    std::string name, arguments;
  };
  enum class Mode {
    kText,     // searches for the begin of calls
    kBetween,  // in calls: before the next edge
    kLiteral,  // in a literal
    kPart,     // in another edge
  };

  void PushByte(char c, ReplyPieces& pieces);
  void PushText(char c, ReplyPieces& pieces);
  // Reads a byte of calls. False if it does not fit.
  bool PushCalls(char c, ReplyPieces& pieces);
  bool BeginEdge(char c, ReplyPieces& pieces);
  bool PushLiteral(char c, ReplyPieces& pieces);
  bool PushPart(char c, ReplyPieces& pieces);
  bool PushJson(char c, ReplyPieces& pieces);
  bool PushXml(char c, ReplyPieces& pieces);
  void Take(const CallEdge& edge, ReplyPieces& pieces);
  // The text from held_ on is no call.
  void Fail(ReplyPieces& pieces);

  // The members of the current object that make it a call; null if there are none.
  struct ObjectCall {
    const JsonScanner::Member* name = nullptr;
    const JsonScanner::Member* arguments = nullptr;
    bool is_ambiguous = false;
  };
  ObjectCall FindObjectCall() const;
  std::string_view NameOf(const ObjectCall& call) const;
  bool EndObject(ReplyPieces& pieces);
  bool EndCall(std::string_view name, std::string arguments, ReplyPieces& pieces);
  // Passes on what has come of the current call's arguments.
  void PassOn(ReplyPieces& pieces);
  void BeginCall(std::string_view name, ReplyPieces& pieces);
  void AddArguments(std::string_view text, ReplyPieces& pieces) const;
  // Passes on the calls that are complete.
  void EndCalls(ReplyPieces& pieces);
  // Makes the held text content, except for its last bytes.
  void Release(size_t kept, ReplyPieces& pieces);
  void Finish(ReplyPieces& pieces);
  bool MayCall(std::string_view name) const { return tools_->names.contains(name); }
  bool HoldsBlanks() const;

  const std::shared_ptr<const ReplyTools> tools_;
  const std::shared_ptr<const CallSyntax> syntax_;
  bool eager_;  // arguments are passed on as they come
  Mode mode_;
  int state_ = 0;                   // of the syntax, in calls
  const CallEdge* part_ = nullptr;  // kPart: the edge
  std::string held_;                // not passed on
  std::string literal_;             // the beginning of a marker or a literal
  std::string name_;
  std::string value_;  // of the part
  JsonScanner json_{JsonScanner::Options()};
  PythonArgumentsScanner python_;
  std::vector<Call> pending_;  // complete, but not passed on
  size_t passed_on_ = 0;       // eager: bytes of value_
  bool begun_ = false;         // eager: the call of value_ was begun
  bool cut_ = false;           // eager: calls have begun whose end has not come
  bool after_call_ = false;    // nothing but blanks came after a call
  int calls_ = 0;              // begun
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_CALL_PARSER_H_
