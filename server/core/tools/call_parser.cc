#include "server/core/tools/call_parser.h"

#include <algorithm>
#include <utility>

#include "engine/base/json.h"
#include "server/core/tools/call_syntax.h"
#include "server/core/tools/markers.h"
#include "server/core/tools/tools.h"
#include "server/core/tools/xml_arguments.h"

namespace triptych::server {
namespace {

bool IsReplyBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The object in a JSON string; empty if the string has none.
std::string ObjectInString(std::string_view json) {
  const Json decoded = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!decoded.is_string()) return "";
  std::string text = decoded.get<std::string>();
  JsonScanner scanner({.keeps_members = false});
  for (const char& c : text) {
    const JsonScanner::Result result = scanner.Push(c);
    if (result == JsonScanner::Result::kMore) continue;
    return result == JsonScanner::Result::kDone && &c == &text.back() ? text : "";
  }
  return "";
}

}  // namespace

void AddPiece(ReplyPiece::Kind kind, std::string_view text, ReplyPieces& pieces) {
  const bool is_call = kind == ReplyPiece::Kind::kCall;
  if (text.empty() && !is_call) return;
  if (!is_call && !pieces.empty() && pieces.back().kind == kind) {
    pieces.back().text += text;
  } else {
    pieces.push_back({kind, std::string(text)});
  }
}

CallParser::CallParser(std::shared_ptr<const ReplyTools> tools)
    : tools_(std::move(tools)),
      syntax_(std::make_shared<const CallSyntax>(SyntaxOf(tools_->format))),
      eager_(tools_->by_grammar),
      mode_(syntax_->at_start ? Mode::kBetween : Mode::kText) {}

void CallParser::Push(std::string_view text, bool last, ReplyPieces& pieces) {
  for (const char c : text) PushByte(c, pieces);
  if (last) Finish(pieces);
}

void CallParser::PushByte(char c, ReplyPieces& pieces) {
  held_ += c;
  if (mode_ == Mode::kText) return PushText(c, pieces);
  const bool is_bounded = mode_ == Mode::kPart && !tools_->by_grammar;
  const bool is_small =
      held_.size() <= kMaxCallBytes && (!is_bounded || value_.size() < kMaxCallBytes);
  if (is_small && PushCalls(c, pieces)) return;
  // A literal that does not fit may be the begin of a marker.
  const std::string again = is_small && mode_ == Mode::kLiteral ? literal_ : std::string(1, c);
  held_.resize(held_.size() - again.size());
  Fail(pieces);
  for (const char byte : again) PushByte(byte, pieces);
}

void CallParser::Fail(ReplyPieces& pieces) {
  Release(0, pieces);
  mode_ = Mode::kText;
  literal_.clear();
  pending_.clear();
  begun_ = cut_ = false;
}

void CallParser::PushText(char c, ReplyPieces& pieces) {
  // A grammar of calls that begin the reply allows none after other text.
  if (tools_->by_grammar && syntax_->at_start) return Release(0, pieces);
  const bool was_partial = !literal_.empty();
  literal_ += c;
  for (const auto& [marker, state] : syntax_->markers) {
    if (!marker.starts_with(literal_)) continue;
    if (marker.size() > literal_.size()) return;
    literal_.clear();
    mode_ = Mode::kBetween;
    state_ = state;
    return;
  }
  literal_.clear();
  // The first byte of a marker does not come again in it.
  for (const auto& [marker, state] : syntax_->markers) {
    if (marker.front() == c) literal_ = c;
  }
  const bool is_blank = IsReplyBlank(c);
  if (is_blank && !was_partial) return;  // all that is held are blanks
  Release(is_blank || !literal_.empty() ? 1 : 0, pieces);
}

bool CallParser::PushCalls(char c, ReplyPieces& pieces) {
  switch (mode_) {
    case Mode::kBetween:
      return IsReplyBlank(c) || BeginEdge(c, pieces);
    case Mode::kLiteral:
      return PushLiteral(c, pieces);
    default:
      return PushPart(c, pieces);
  }
}

bool CallParser::BeginEdge(char c, ReplyPieces& pieces) {
  using Kind = CallEdge::Kind;
  const auto fits = [c](Kind kind) {
    switch (kind) {
      case Kind::kLiteral:
        return false;
      case Kind::kName:
      case Kind::kId:
        return IsToolNameCharacter(c);
      case Kind::kObject:
      case Kind::kArguments:
        return c == '{';
      case Kind::kPython:
        return c == '(';
      case Kind::kXml:
        return c == '<';
    }
    return false;
  };
  for (const CallEdge& edge : syntax_->states[state_]) {
    if (!fits(edge.kind)) continue;
    if (edge.kind == Kind::kName) name_.clear();
    const bool is_named =
        edge.kind == Kind::kArguments || edge.kind == Kind::kPython || edge.kind == Kind::kXml;
    if (is_named && !MayCall(name_)) return false;
    mode_ = Mode::kPart;
    part_ = &edge;
    value_.clear();
    passed_on_ = 0;
    begun_ = false;
    json_ = JsonScanner({.max_depth = tools_->by_grammar ? kMaxGrammarDepth : kMaxCallDepth,
                         .keeps_members = edge.kind == Kind::kObject});
    python_ = PythonArgumentsScanner();
    return PushPart(c, pieces);
  }
  mode_ = Mode::kLiteral;
  literal_.clear();
  return PushLiteral(c, pieces);
}

bool CallParser::PushLiteral(char c, ReplyPieces& pieces) {
  literal_ += c;
  for (const CallEdge& edge : syntax_->states[state_]) {
    if (!edge.literal.starts_with(literal_)) continue;
    if (edge.literal.size() == literal_.size()) Take(edge, pieces);
    return true;
  }
  return false;
}

bool CallParser::PushPart(char c, ReplyPieces& pieces) {
  switch (part_->kind) {
    case CallEdge::Kind::kName:
    case CallEdge::Kind::kId:
      if (IsToolNameCharacter(c)) {
        if (part_->kind == CallEdge::Kind::kName) name_ += c;
        return true;
      }
      Take(*part_, pieces);
      return PushCalls(c, pieces);
    case CallEdge::Kind::kPython: {
      value_ += c;
      const PythonArgumentsScanner::Result result = python_.Push(c);
      if (result != PythonArgumentsScanner::Result::kDone) {
        return result == PythonArgumentsScanner::Result::kMore;
      }
      std::optional<std::string> arguments = PythonArgumentsJson(value_);
      if (!arguments || !EndCall(name_, *std::move(arguments), pieces)) return false;
      Take(*part_, pieces);
      return true;
    }
    case CallEdge::Kind::kXml:
      return PushXml(c, pieces);
    default:
      return PushJson(c, pieces);
  }
}

bool CallParser::PushJson(char c, ReplyPieces& pieces) {
  value_ += c;
  const JsonScanner::Result result = json_.Push(c);
  if (result == JsonScanner::Result::kFailed) return false;
  if (eager_) PassOn(pieces);
  if (result == JsonScanner::Result::kMore) return true;
  const bool fits =
      part_->kind == CallEdge::Kind::kObject ? EndObject(pieces) : EndCall(name_, value_, pieces);
  if (fits) Take(*part_, pieces);
  return fits;
}

bool CallParser::PushXml(char c, ReplyPieces& pieces) {
  value_ += c;
  const std::string& end = part_->literal;
  if (!value_.ends_with(end)) return true;
  const auto texts = tools_->texts.find(name_);
  std::optional<std::string> arguments =
      XmlArgumentsJson(std::string_view(value_).substr(0, value_.size() - end.size()),
                       texts == tools_->texts.end() ? std::set<std::string>() : texts->second);
  if (!arguments || !EndCall(name_, *std::move(arguments), pieces)) return false;
  Take(*part_, pieces);
  return true;
}

void CallParser::Take(const CallEdge& edge, ReplyPieces& pieces) {
  literal_.clear();
  state_ = edge.next;
  mode_ = state_ == CallSyntax::kText ? Mode::kText : Mode::kBetween;
  if (edge.ends_calls) EndCalls(pieces);
  if (mode_ == Mode::kText) held_.clear();  // the end of calls
}

CallParser::ObjectCall CallParser::FindObjectCall() const {
  ObjectCall call;
  for (const JsonScanner::Member& member : json_.members()) {
    const std::string_view key =
        std::string_view(value_).substr(member.key_begin, member.key_end - member.key_begin);
    const bool is_name = key == "name" || key == "tool_name";
    if (!is_name && key != "arguments" && key != "parameters") continue;
    const JsonScanner::Member*& found = is_name ? call.name : call.arguments;
    if (found != nullptr) call.is_ambiguous = true;
    found = &member;
  }
  return call;
}

std::string_view CallParser::NameOf(const ObjectCall& call) const {
  if (call.name == nullptr || call.name->end == 0 || value_[call.name->begin] != '"') return "";
  return std::string_view(value_).substr(call.name->begin + 1,
                                         call.name->end - call.name->begin - 2);
}

void CallParser::PassOn(ReplyPieces& pieces) {
  size_t begin = 0, end = value_.size();
  std::string_view name = name_;
  if (part_->kind == CallEdge::Kind::kObject) {
    const ObjectCall call = FindObjectCall();
    name = NameOf(call);
    if (call.is_ambiguous || call.arguments == nullptr || call.arguments->begin == 0 ||
        value_[call.arguments->begin] != '{') {
      return;
    }
    begin = call.arguments->begin;
    if (call.arguments->end != 0) end = call.arguments->end;
  }
  if (!begun_) {
    if (!MayCall(name) || calls_ == kMaxCalls) return;
    BeginCall(name, pieces);
    begun_ = cut_ = true;
    passed_on_ = begin;
  }
  AddArguments(std::string_view(value_).substr(passed_on_, end - passed_on_), pieces);
  passed_on_ = end;
  held_.clear();
}

bool CallParser::EndObject(ReplyPieces& pieces) {
  const ObjectCall call = FindObjectCall();
  const std::string name(NameOf(call));
  if (begun_) return EndCall(name, "", pieces);
  if (call.is_ambiguous || !MayCall(name)) return false;
  std::string arguments = "{}";
  if (call.arguments != nullptr) {
    arguments = value_.substr(call.arguments->begin, call.arguments->end - call.arguments->begin);
    if (arguments.front() == '"') arguments = ObjectInString(arguments);
    if (!arguments.starts_with('{')) return false;
  } else if (syntax_->needs_arguments) {
    return false;
  }
  return EndCall(name, std::move(arguments), pieces);
}

bool CallParser::EndCall(std::string_view name, std::string arguments, ReplyPieces& pieces) {
  if (std::exchange(begun_, false)) return true;
  if (calls_ + std::ssize(pending_) >= kMaxCalls) return false;
  if (!tools_->by_grammar && !ArgumentsObject(arguments, kMaxCallDepth)) return false;
  if (eager_) {
    BeginCall(name, pieces);
    AddArguments(arguments, pieces);
    cut_ = true;
    held_.clear();
  } else {
    pending_.push_back({std::string(name), std::move(arguments)});
  }
  return true;
}

void CallParser::BeginCall(std::string_view name, ReplyPieces& pieces) {
  ++calls_;
  if (calls_ == 1 || tools_->parallel) AddPiece(ReplyPiece::Kind::kCall, name, pieces);
}

void CallParser::AddArguments(std::string_view text, ReplyPieces& pieces) const {
  if (calls_ == 1 || tools_->parallel) AddPiece(ReplyPiece::Kind::kArguments, text, pieces);
}

void CallParser::EndCalls(ReplyPieces& pieces) {
  for (const Call& call : std::exchange(pending_, {})) {
    BeginCall(call.name, pieces);
    AddArguments(call.arguments, pieces);
  }
  held_.clear();
  cut_ = false;
  after_call_ = true;
}

void CallParser::Release(size_t kept, ReplyPieces& pieces) {
  const size_t released = held_.size() - kept;
  if (released == 0) return;
  AddPiece(ReplyPiece::Kind::kContent, std::string_view(held_).substr(0, released), pieces);
  held_.erase(0, released);
  after_call_ = false;
}

bool CallParser::HoldsBlanks() const {
  return std::all_of(held_.begin(), held_.end(), IsReplyBlank);
}

void CallParser::Finish(ReplyPieces& pieces) {
  // A call that a list's end cuts off before it is one stays content, except by a grammar.
  const bool is_cut = cut_ && (tools_->by_grammar || begun_ || mode_ != Mode::kPart);
  if (is_cut || (after_call_ && HoldsBlanks())) held_.clear();
  Release(0, pieces);
}

}  // namespace triptych::server
