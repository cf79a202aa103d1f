#include "server/core/tools/python_arguments.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/base/json.h"

namespace triptych::server {
namespace {

constexpr size_t kMaxPythonDepth = 64;
constexpr size_t kMaxPythonMembers = 1024;  // finding one takes time linear in their number

bool IsIdentifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// A recursive-descent parser. Each function returns false if the text does not fit.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  bool ReadArguments(OrderedJson& object) {
    object = OrderedJson::object();
    if (!Take('(')) return false;
    while (!Take(')')) {
      std::string key;
      OrderedJson value;
      if (!ReadName(key) || object.contains(key) || !Take('=') || !ReadValue(value, 1)) {
        return false;
      }
      if (object.size() == kMaxPythonMembers) return false;
      object[key] = std::move(value);
      if (!Take(',') && !Sees(')')) return false;
    }
    return at_ == text_.size();
  }

 private:
  void SkipBlanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool Sees(char c) {
    SkipBlanks();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool Take(char c) {
    if (!Sees(c)) return false;
    ++at_;
    return true;
  }
  bool ReadName(std::string& name) {
    SkipBlanks();
    while (at_ < text_.size() && IsIdentifier(text_[at_])) name += text_[at_++];
    return !name.empty();
  }

  bool ReadValue(OrderedJson& value, size_t depth) {
    if (depth == kMaxPythonDepth) return false;
    if (Sees('\'') || Sees('"')) {
      std::string string;
      if (!ReadString(string)) return false;
      value = std::move(string);
      return true;
    }
    if (Take('[')) return ReadItems(']', value, depth);
    if (Take('(')) return ReadItems(')', value, depth);
    if (Take('{')) return ReadMembers(value, depth);
    return ReadWord(value);
  }

  bool ReadItems(char close, OrderedJson& list, size_t depth) {
    list = OrderedJson::array();
    while (!Take(close)) {
      OrderedJson item;
      if (!ReadValue(item, depth + 1)) return false;
      list.push_back(std::move(item));
      if (!Take(',') && !Sees(close)) return false;
    }
    return true;
  }

  bool ReadMembers(OrderedJson& object, size_t depth) {
    object = OrderedJson::object();
    while (!Take('}')) {
      std::string key;
      OrderedJson value;
      if (!Sees('\'') && !Sees('"')) return false;
      if (!ReadString(key) || !Take(':') || !ReadValue(value, depth + 1)) return false;
      if (object.size() == kMaxPythonMembers) return false;
      object[key] = std::move(value);
      if (!Take(',') && !Sees('}')) return false;
    }
    return true;
  }

  // A number or a constant.
  bool ReadWord(OrderedJson& value) {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (IsIdentifier(text_[at_]) || std::string_view("+-.").find(text_[at_]) != text_.npos)) {
      ++at_;
    }
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "True") {
      value = true;
    } else if (word == "False") {
      value = false;
    } else if (word == "None") {
      value = nullptr;
    } else {
      value = OrderedJson::parse(word, nullptr, /*allow_exceptions=*/false);
      return !value.is_discarded();
    }
    return true;
  }

  bool ReadString(std::string& string) {
    const char quote = text_[at_++];
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == quote) return true;
      if (c == '\n') return false;
      if (c != '\\') {
        string += c;
      } else if (!ReadEscape(string)) {
        return false;
      }
    }
    return false;
  }

  bool ReadEscape(std::string& string) {
    if (at_ == text_.size()) return false;
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        string += '\n';
        return true;
      case 't':
        string += '\t';
        return true;
      case 'r':
        string += '\r';
        return true;
      case '\\':
      case '\'':
      case '"':
        string += c;
        return true;
      case 'u': {  // as JSON decodes it
        const OrderedJson character =
            OrderedJson::parse("\"\\u" + std::string(text_.substr(at_, 4)) + "\"", nullptr,
                               /*allow_exceptions=*/false);
        if (!character.is_string()) return false;
        at_ += 4;
        string += character.get<std::string>();
        return true;
      }
      default:  // Python keeps the backslash
        string += '\\';
        string += c;
        return true;
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

PythonArgumentsScanner::Result PythonArgumentsScanner::Push(char c) {
  if (quote_ != 0) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == quote_) {
      quote_ = 0;
    } else if (c == '\n') {
      return Result::kFailed;
    }
    return Result::kMore;
  }
  switch (c) {
    case '\'':
    case '"':
      quote_ = c;
      break;
    case '(':
    case '[':
    case '{':
      if (open_.size() == kMaxPythonDepth) return Result::kFailed;
      open_ += c;
      break;
    case ')':
    case ']':
    case '}':
      if (open_.empty() || open_.back() != (c == ')' ? '(' : c == ']' ? '[' : '{')) {
        return Result::kFailed;
      }
      open_.pop_back();
      if (open_.empty()) return Result::kDone;
      break;
    default:
      break;
  }
  return Result::kMore;
}

std::optional<std::string> PythonArgumentsJson(std::string_view text) {
  OrderedJson object;
  if (!PythonReader(text).ReadArguments(object)) return std::nullopt;
  return object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace triptych::server
