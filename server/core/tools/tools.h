// Functions that a reply may call.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_TOOLS_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_TOOLS_H_

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "server/core/error.h"

namespace triptych::server {

struct Tool {
  std::string name;
  std::optional<std::string> description = {};
  OrderedJson parameters = nullptr;  // a JSON Schema of an object; null: no parameters
  bool strict = false;               // calls fit the schema
  std::string field = {};            // of the parameters, in errors: "tools[0].function.parameters"
};

struct ToolOptions {
  enum class Choice {
    kNone,
    kAuto,      // calls, or an answer
    kRequired,  // at least one call
  };

  std::vector<Tool> tools;
  Choice choice = Choice::kAuto;
  std::string function = {};  // with kRequired: the only one that may be called, once
  // The names of the tools that may be called, of those that the template shows; empty: all.
  std::set<std::string> allowed = {};
  bool parallel = true;  // a reply may have several calls

  bool enabled() const { return choice != Choice::kNone && !tools.empty(); }
  bool MayCall(const std::string& name) const {
    return (function.empty() || name == function) && (allowed.empty() || allowed.contains(name));
  }
};

// A call in a conversation.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // the text of a JSON object, unless the client sent something else
};

// True for 1 to 128 letters, digits, '_', '-' and '.'.
bool IsToolName(std::string_view name);
bool IsToolNameCharacter(char c);

// The first error: too large tools, names that are no names or repeated, or a choice of an unknown
// function. `list`: the field with the tools.
std::optional<Error> CheckTools(const ToolOptions& options, const std::string& list);

// The tools as templates get them: a list of {"type": "function", "function": {...}}.
OrderedJson ToolsJson(const std::vector<Tool>& tools);

// The object of a call's arguments, with members in order. Absent if the text is no JSON object, is
// nested more than `max_depth` levels deep, or names a member twice.
std::optional<OrderedJson> ArgumentsObject(std::string_view arguments, size_t max_depth = 64);

// The id of a reply's call: 9 letters and digits, as Mistral's templates require. Depends on the
// arguments alone.
std::string ToolCallId(std::string_view request_id, size_t choice, size_t call);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_TOOLS_H_
