// Operators of templates, with the meaning of Python's. All throw Failure.
#ifndef TRIPTYCH_ENGINE_JINJA_OPERATORS_H_
#define TRIPTYCH_ENGINE_JINJA_OPERATORS_H_

#include <cstdint>
#include <string_view>

#include "engine/jinja/value.h"

namespace triptych::jinja {

bool Equal(Heap& heap, const Value& left, const Value& right);
// Negative, zero or positive; `sign` is the operator for messages.
int Compare(Heap& heap, std::string_view sign, const Value& left, const Value& right);
bool Contains(Heap& heap, const Value& container, const Value& item);

// +, -, *, /, //, %, **
Value Binary(Heap& heap, std::string_view sign, const Value& left, const Value& right);
Value Negate(const Value& operand);
// value.name and value[key], as Jinja's sandbox looks them up; undefined if there is none.
Value GetAttribute(Heap& heap, const Value& value, std::string_view name);
Value GetItem(Heap& heap, const Value& value, const Value& key);
// value[begin:end:step]; null if absent.
Value GetSlice(Heap& heap, const Value& value, const Value* begin, const Value* end,
               const Value* step);

// The items of an iteration over the value, as a value with a list.
Value ToList(Heap& heap, const Value& value);
// Python's len().
int64_t Length(const Value& value);
// Throws for an undefined value.
void RequireDefined(const Value& value);

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_OPERATORS_H_
