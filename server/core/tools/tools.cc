#include "server/core/tools/tools.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/base/request_limits.h"

namespace triptych::server {
namespace {

// The name of a tool's field, from that of its parameters: "tools[0].function.name".
std::string NameField(const Tool& tool) {
  return tool.field.substr(0, tool.field.rfind('.') + 1) + "name";
}

}  // namespace

bool IsToolNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

bool IsToolName(std::string_view name) {
  return limits::kToolNameBytes.Contains(name.size()) &&
         std::all_of(name.begin(), name.end(), IsToolNameCharacter);
}

std::optional<Error> CheckTools(const ToolOptions& options, const std::string& list) {
  std::set<std::string_view> names;
  size_t bytes = 0;
  for (const Tool& tool : options.tools) {
    if (!IsToolName(tool.name)) {
      return InvalidArgument(NameField(tool), "is " + Quoted(tool.name) +
                                                  "; allowed: 1 to 128 letters, digits, '_', "
                                                  "'-' and '.'");
    }
    if (!names.insert(tool.name).second) {
      return InvalidArgument(NameField(tool),
                             "is " + Quoted(tool.name) + ", which is repeated; allowed: once");
    }
    bytes += tool.description.value_or("").size();
    if (!tool.parameters.is_null()) bytes += tool.parameters.dump().size();
  }
  if (bytes > limits::kMaxGrammarBytes) {
    return InvalidArgument(list, "has " + std::to_string(bytes) +
                                     " bytes of descriptions and schemas; allowed: at most " +
                                     std::to_string(limits::kMaxGrammarBytes));
  }
  if (options.choice == ToolOptions::Choice::kRequired && options.tools.empty()) {
    return InvalidArgument(
        "tool_choice", "requires a call, but " + list + " has none; allowed: \"none\", \"auto\"");
  }
  if (!options.function.empty() && !names.contains(options.function)) {
    return InvalidArgument("tool_choice", "is " + Quoted(options.function) + ", which is not in " +
                                              list + "; allowed: the name of a tool");
  }
  for (const std::string& name : options.allowed) {
    if (names.contains(name)) continue;
    return InvalidArgument("tool_choice", "allows " + Quoted(name) + ", which is not in " + list +
                                              "; allowed: the names of tools");
  }
  return std::nullopt;
}

OrderedJson ToolsJson(const std::vector<Tool>& tools) {
  OrderedJson list = OrderedJson::array();
  for (const Tool& tool : tools) {
    OrderedJson function = {{"name", tool.name}};
    if (tool.description) function["description"] = *tool.description;
    function["parameters"] = tool.parameters;
    if (tool.parameters.is_null()) {  // many templates need them
      function["parameters"] = {{"type", "object"}, {"properties", OrderedJson::object()}};
    }
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return list;
}

std::optional<OrderedJson> ArgumentsObject(std::string_view arguments, size_t max_depth) {
  try {
    OrderedJson object = ParseOrderedJson(arguments, "arguments", kMaxJsonValues, max_depth);
    if (object.is_object()) return object;
  } catch (const LoadError&) {
    // Something else.
  }
  return std::nullopt;
}

std::string ToolCallId(std::string_view request_id, size_t choice, size_t call) {
  constexpr std::string_view kIdCharacters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr int kIdLength = 9;
  const std::string text =
      std::string(request_id) + ':' + std::to_string(choice) + ':' + std::to_string(call);
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const unsigned char byte : text) hash = (hash ^ byte) * 1099511628211U;
  hash ^= hash >> 32;
  std::string id;
  for (int i = 0; i < kIdLength; ++i) {
    id += kIdCharacters[hash % kIdCharacters.size()];
    hash /= kIdCharacters.size();
  }
  return id;
}

}  // namespace triptych::server
