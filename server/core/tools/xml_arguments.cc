#include "server/core/tools/xml_arguments.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "server/core/tools/markers.h"

namespace triptych::server {
namespace {

constexpr size_t kMaxXmlArguments = 1024;  // finding one takes time linear in their number
constexpr size_t kMaxXmlDepth = 64;

// Takes the text before `end`, and `end`. Absent if it does not come.
std::optional<std::string_view> TakeUntil(std::string_view end, std::string_view& text) {
  const size_t at = text.find(end);
  if (at == text.npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return before;
}

bool Take(std::string_view begin, std::string_view& text) {
  if (!text.starts_with(begin)) return false;
  text.remove_prefix(begin.size());
  return true;
}

// Takes an element, or a pair of them: the key and the value. Absent if there is none.
std::optional<std::pair<std::string_view, std::string_view>> TakeArgument(std::string_view& text) {
  std::optional<std::string_view> key, value;
  if (Take(kPairKey, text)) {
    key = TakeUntil(kPairKeyEnd, text);
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (key && Take(kPairValue, text)) value = TakeUntil(kPairValueEnd, text);
  } else if (Take(kXmlArgument, text)) {
    key = TakeUntil(">", text);
    if (key) value = TakeUntil(kXmlArgumentEnd, text);
  }
  if (!value) return std::nullopt;
  return std::pair(*key, *value);
}

OrderedJson ValueOf(std::string_view text, bool is_text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (!is_text) {
    try {
      return ParseOrderedJson(text, "value", kMaxJsonValues, kMaxXmlDepth);
    } catch (const LoadError&) {
      // Text.
    }
  }
  return std::string(text);
}

}  // namespace

std::optional<std::string> XmlArgumentsJson(std::string_view text,
                                            const std::set<std::string>& texts) {
  OrderedJson object = OrderedJson::object();
  while (true) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == text.npos) break;
    text.remove_prefix(begin);
    const auto argument = TakeArgument(text);
    if (!argument || argument->first.empty()) return std::nullopt;
    const auto& [key, value] = *argument;
    std::string name(key);
    if (object.size() == kMaxXmlArguments || object.contains(name)) return std::nullopt;
    object[name] = ValueOf(value, texts.contains(name));
  }
  return object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace triptych::server
