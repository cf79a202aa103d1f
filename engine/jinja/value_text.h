// Values as text: Python's str() and repr().
#ifndef TRIPTYCH_ENGINE_JINJA_VALUE_TEXT_H_
#define TRIPTYCH_ENGINE_JINJA_VALUE_TEXT_H_

#include <string>

#include "engine/jinja/value.h"

namespace triptych::jinja {

// The shortest decimal text that reads as the same number, as Python writes it.
std::string FloatText(double value);

// str() of a value. Texts keep their sources; numbers and names such as None are the template's;
// what writes lists and dicts is data.
Text Str(Heap& heap, const Value& value);
// repr() of a value.
void AppendRepr(const Value& value, Heap& heap, TextBuilder& out);

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_VALUE_TEXT_H_
