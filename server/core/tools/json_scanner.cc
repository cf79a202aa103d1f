#include "server/core/tools/json_scanner.h"

namespace triptych::server {
namespace {

bool IsJsonBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::Result JsonScanner::Push(char c) {
  const bool fits = Step(c);
  ++at_;
  if (!fits) return Result::kFailed;
  return state_ == State::kEnd ? Result::kDone : Result::kMore;
}

bool JsonScanner::Open(bool is_object) {
  if (nesting_.size() == options_.max_depth) return false;
  nesting_.push_back(is_object);
  state_ = is_object ? State::kFirstKey : State::kFirstItem;
  return true;
}

bool JsonScanner::Close(char c) {
  if (nesting_.back() != (c == '}')) return false;
  nesting_.pop_back();
  EndValue(at_ + 1);
  if (nesting_.empty()) state_ = State::kEnd;
  return true;
}

void JsonScanner::EndValue(size_t end) {
  state_ = State::kAfterValue;
  if (KeepsMember()) members_.back().end = end;
}

bool JsonScanner::BeginValue(char c) {
  if (KeepsMember()) members_.back().begin = at_;
  switch (c) {
    case '{':
    case '[':
      return Open(c == '{');
    case '"':
      is_key_ = false;
      state_ = State::kString;
      return true;
    case 't':
      word_ = "rue";
      break;
    case 'f':
      word_ = "alse";
      break;
    case 'n':
      word_ = "ull";
      break;
    default:
      state_ = c == '-' ? State::kMinus : c == '0' ? State::kZero : State::kInteger;
      return c == '-' || IsDigit(c);
  }
  state_ = State::kWord;
  return true;
}

bool JsonScanner::StepString(char c) {
  if (c == '\\') {
    state_ = State::kEscape;
  } else if (c == '"' && is_key_) {
    if (KeepsMember()) members_.back().key_end = at_;
    state_ = State::kColon;
  } else if (c == '"') {
    EndValue(at_ + 1);
  }
  return static_cast<unsigned char>(c) >= 0x20;
}

// A number ends before the byte that follows it.
bool JsonScanner::StepNumber(char c) {
  const bool may_end = state_ == State::kZero || state_ == State::kInteger ||
                       state_ == State::kFraction || state_ == State::kExponentDigits;
  if (IsDigit(c)) {
    switch (state_) {
      case State::kMinus:
        state_ = c == '0' ? State::kZero : State::kInteger;
        return true;
      case State::kZero:
        return false;
      case State::kPoint:
        state_ = State::kFraction;
        return true;
      case State::kExponent:
      case State::kExponentSign:
        state_ = State::kExponentDigits;
        return true;
      default:
        return true;
    }
  }
  if (c == '.' && (state_ == State::kZero || state_ == State::kInteger)) {
    state_ = State::kPoint;
    return true;
  }
  if ((c == 'e' || c == 'E') && may_end && state_ != State::kExponentDigits) {
    state_ = State::kExponent;
    return true;
  }
  if ((c == '+' || c == '-') && state_ == State::kExponent) {
    state_ = State::kExponentSign;
    return true;
  }
  if (!may_end) return false;
  EndValue(at_);
  return Step(c);
}

bool JsonScanner::Step(char c) {
  switch (state_) {
    case State::kString:
      return StepString(c);
    case State::kEscape:
      state_ = c == 'u' ? State::kHex : State::kString;
      hex_digits_ = 4;
      return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
    case State::kHex:
      if (--hex_digits_ == 0) state_ = State::kString;
      return IsHexDigit(c);
    case State::kWord: {
      const bool fits = c == word_.front();
      word_.remove_prefix(1);
      if (word_.empty()) EndValue(at_ + 1);
      return fits;
    }
    case State::kMinus:
    case State::kZero:
    case State::kInteger:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kExponentSign:
    case State::kExponentDigits:
      return StepNumber(c);
    default:
      break;
  }
  if (state_ == State::kStart) return c == '{' && Open(/*is_object=*/true);
  if (IsJsonBlank(c)) return true;
  switch (state_) {
    case State::kFirstKey:
      if (c == '}') return Close(c);
      [[fallthrough]];
    case State::kKey:
      if (KeepsMember()) {
        if (members_.size() == kMaxMembers) return false;
        members_.push_back({.key_begin = at_ + 1});
      }
      is_key_ = true;
      state_ = State::kString;
      return c == '"';
    case State::kColon:
      state_ = State::kValue;
      return c == ':';
    case State::kFirstItem:
      if (c == ']') return Close(c);
      [[fallthrough]];
    case State::kValue:
      return BeginValue(c);
    default:
      break;
  }
  // After a value.
  if (c == '}' || c == ']') return Close(c);
  state_ = nesting_.back() ? State::kKey : State::kValue;
  return c == ',';
}

}  // namespace triptych::server
