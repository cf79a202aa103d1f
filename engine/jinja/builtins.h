// Filters, tests, methods and functions of templates.
#ifndef TRIPTYCH_ENGINE_JINJA_BUILTINS_H_
#define TRIPTYCH_ENGINE_JINJA_BUILTINS_H_

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "engine/jinja/arguments.h"
#include "engine/jinja/value.h"

namespace triptych::jinja {

using Filter = Value (*)(Heap& heap, const Value& input, const Arguments& arguments);
using Test = bool (*)(Heap& heap, const Value& input, const Arguments& arguments);

// Null if there is none.
Filter FindFilter(std::string_view name);
Filter FindListFilter(std::string_view name);  // of those, the filters of sequences
Test FindTest(std::string_view name);

// The global functions by name: range, dict, namespace, raise_exception, strftime_now. Namespaces
// are added to `namespaces`: they may hold each other, and their owner clears them.
using Namespaces = std::vector<std::shared_ptr<Namespace>>;
std::vector<std::pair<std::string, Value>> GlobalFunctions(std::time_t now, Namespaces& namespaces);

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_BUILTINS_H_
