// Values as JSON.
#ifndef TRIPTYCH_ENGINE_JINJA_JSON_TEXT_H_
#define TRIPTYCH_ENGINE_JINJA_JSON_TEXT_H_

#include <optional>

#include "engine/jinja/value.h"

namespace triptych::jinja {

// Options of Python's json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<Text> indent = {};  // of one level
  Text item_separator = {};
  Text key_separator = {};
  bool sort_keys = false;
};

// The text of json.dumps. Texts keep their sources; the rest is data.
Value ToJson(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_JSON_TEXT_H_
