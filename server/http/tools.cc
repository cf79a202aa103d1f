#include "server/http/tools.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/request_limits.h"
#include "server/core/tools/call_grammar.h"
#include "server/core/tools/tool_messages.h"

namespace triptych::server {
namespace {

using ToolChoice = ToolOptions::Choice;

constexpr const char* kTools = "tools";
constexpr const char* kChoice = "tool_choice";

// Reads the name, description, parameters and strict. `ordered`: the function again, with members
// in order.
Tool ReadFunction(const Json& object, const OrderedJson& ordered, const std::string& path,
                  const char* parameters, Fields& fields) {
  Tool tool;
  tool.field = path + "." + parameters;
  Fields members(object, path + ".");
  members.Need("name", "the name of a function");
  tool.name = members.String("name").value_or("");
  if (const auto description = members.String("description")) tool.description = *description;
  tool.strict = members.Bool("strict").value_or(false);
  const Json* const schema = members.Any(parameters);
  if (schema != nullptr && !schema->is_object()) {
    members.Refuse(parameters, *schema, "a JSON Schema");
  } else if (schema != nullptr) {
    const auto type = schema->find("type");
    if (type != schema->end() && *type != "object") {
      members.Refuse(std::string(parameters) + ".type", *type, "\"object\"");
    }
    tool.parameters = ordered.at(parameters);
  }
  members.Ignore({"type", "cache_control", "input_examples"});
  if (auto error = members.Finish()) fields.Fail(std::move(*error));
  return tool;
}

// Reads {"type": "function", "function": {...}}.
Tool ReadNestedTool(const Json& object, const OrderedJson& ordered, const std::string& path,
                    Fields& fields) {
  constexpr const char* kFunction = "function";
  Fields members(object, path + ".");
  const Json* const type = members.Any("type");
  if (type != nullptr && *type != kFunction) members.Refuse("type", *type, "\"function\"");
  const Json* const function = members.Need(kFunction, "an object with a name");
  Tool tool;
  if (function != nullptr && !function->is_object()) {
    members.Refuse(kFunction, *function, "an object with a name");
  } else if (function != nullptr) {
    tool = ReadFunction(*function, ordered.at(kFunction), path + "." + kFunction, "parameters",
                        members);
  }
  if (auto error = members.Finish()) fields.Fail(std::move(*error));
  return tool;
}

// Reads {"type": "function", "name", ...} of Responses.
Tool ReadFlatTool(const Json& object, const OrderedJson& ordered, const std::string& path,
                  Fields& fields) {
  if (object.value("type", Json()) != "function") {
    fields.Refuse(path + ".type", object.value("type", Json()), "\"function\"");
  }
  return ReadFunction(object, ordered, path, "parameters", fields);
}

// Reads Anthropic's {"name", "description", "input_schema"}.
Tool ReadClientTool(const Json& object, const OrderedJson& ordered, const std::string& path,
                    Fields& fields) {
  const Json type = object.value("type", Json());
  if (!type.is_null() && type != "custom") fields.Refuse(path + ".type", type, "\"custom\"");
  return ReadFunction(object, ordered, path, "input_schema", fields);
}

template <typename ReadOne>
std::vector<Tool> ReadList(Fields& fields, std::string_view object, const ReadOne& read) {
  constexpr const char* kAllowed = "an array of functions";
  const Json* const list = fields.Any(kTools);
  if (list == nullptr) return {};
  if (!list->is_array()) {
    fields.Refuse(kTools, *list, kAllowed);
    return {};
  }
  if (list->size() > limits::kMaxTools) {
    fields.Fail(InvalidArgument(kTools, "has " + std::to_string(list->size()) +
                                            " tools; allowed: at most " +
                                            std::to_string(limits::kMaxTools)));
    return {};
  }
  const OrderedJson ordered =
      ParseOrderedJson(MemberText(object, kTools), kTools, kMaxJsonValues, kMaxBodyDepth);
  std::vector<Tool> tools;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = std::string(kTools) + "[" + std::to_string(i) + "]";
    if (!(*list)[i].is_object()) {
      fields.Refuse(path, (*list)[i], "an object");
      return {};
    }
    tools.push_back(read((*list)[i], ordered[i], path, fields));
  }
  return tools;
}

// The name in {"type": "function", ...}: in an object "function" if `nested`, as in chats. Absent
// if it is none.
std::optional<std::string> ChosenFunction(const Json& choice, bool nested) {
  if (!choice.is_object() || choice.value("type", Json()) != "function") return std::nullopt;
  const Json function = nested ? choice.value("function", Json()) : choice;
  const Json name = function.is_object() ? function.value("name", Json()) : Json();
  if (!name.is_string() || !IsToolName(name.get_ref<const std::string&>())) return std::nullopt;
  return name.get<std::string>();
}

// Reads the members "mode" and "tools" of an object at `path`. `nested`: as of ChosenFunction.
void ReadAllowedTools(const Json& object, const std::string& path, bool nested, Fields& fields,
                      ToolOptions& options) {
  constexpr const char* kModes = R"("auto", "required")";
  constexpr const char* kFunctions = "an array of functions by their names";
  Fields members(object, path + ".");
  const Json* const mode = members.Need("mode", kModes);
  if (mode != nullptr && *mode == "required") {
    options.choice = ToolChoice::kRequired;
  } else if (mode != nullptr && *mode != "auto") {
    members.Refuse("mode", *mode, kModes);
  }
  const Json* const list = members.Need(kTools, kFunctions);
  if (list != nullptr && (!list->is_array() || list->empty())) {
    members.Refuse(kTools, *list, kFunctions);
  } else if (list != nullptr) {
    for (size_t i = 0; i < list->size(); ++i) {
      if (auto name = ChosenFunction((*list)[i], nested)) {
        options.allowed.insert(*std::move(name));
      } else {
        members.Refuse(std::string(kTools) + "[" + std::to_string(i) + "]", (*list)[i],
                       "a function by its name");
      }
    }
  }
  members.Ignore({"type"});
  if (auto error = members.Finish()) fields.Fail(std::move(*error));
}

// Reads "none", "auto", "required", a function, or {"type": "allowed_tools", ...}, whose members
// are in an object "allowed_tools" if `nested`, as in chats.
void ReadChoice(Fields& fields, bool nested, ToolOptions& options) {
  constexpr const char* kAllowedTools = "allowed_tools";
  constexpr const char* kAllowed =
      R"("none", "auto", "required", a function by its name, or allowed_tools)";
  const Json* const choice = fields.Any(kChoice);
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    options.choice = ToolChoice::kNone;
  } else if (*choice == "required") {
    options.choice = ToolChoice::kRequired;
  } else if (choice->is_object() && choice->value("type", Json()) == kAllowedTools) {
    std::string path = kChoice;
    if (nested) path += std::string(".") + kAllowedTools;
    const Json object = nested ? choice->value(kAllowedTools, Json()) : *choice;
    if (!object.is_object()) return fields.Refuse(path, object, "an object with a mode and tools");
    ReadAllowedTools(object, path, nested, fields, options);
  } else if (auto name = ChosenFunction(*choice, nested)) {
    options.choice = ToolChoice::kRequired;
    options.function = *std::move(name);
  } else {
    fields.Refuse(kChoice, *choice, kAllowed);
  }
}

// Reads Anthropic's {"type": "none" | "auto" | "any" | "tool", "name", ...}.
void ReadTypedChoice(Fields& fields, ToolOptions& options) {
  constexpr const char* kTypes = R"("none", "auto", "any", "tool")";
  const Json* const choice = fields.Any(kChoice);
  if (choice == nullptr) return;
  if (!choice->is_object()) return fields.Refuse(kChoice, *choice, "an object with a type");
  Fields members(*choice, std::string(kChoice) + ".");
  const Json* const type = members.Need("type", kTypes);
  if (type == nullptr || *type == "auto") {
    // The default.
  } else if (*type == "none") {
    options.choice = ToolChoice::kNone;
  } else if (*type == "any" || *type == "tool") {
    options.choice = ToolChoice::kRequired;
  } else {
    members.Refuse("type", *type, kTypes);
  }
  if (type != nullptr && *type == "tool") {
    constexpr const char* kAllowed = "the name of a tool";
    const Json* const name = members.Need("name", kAllowed);
    options.function = members.String("name").value_or("");
    if (name != nullptr && !IsToolName(options.function)) members.Refuse("name", *name, kAllowed);
  }
  options.parallel = !members.Bool("disable_parallel_tool_use").value_or(false);
  if (auto error = members.Finish()) fields.Fail(std::move(*error));
}

void CheckOptions(const ToolOptions& options, Fields& fields) {
  if (auto error = CheckTools(options, kTools)) fields.Fail(std::move(*error));
}

// The text of the schema of a function's arguments, which are an object.
std::string SchemaOf(const Tool& tool) {
  OrderedJson schema = tool.parameters;
  if (schema.is_null())
    schema = {{"properties", OrderedJson::object()}, {"additionalProperties", false}};
  schema["type"] = "object";
  return schema.dump();
}

// The arguments that are strings by a schema.
std::set<std::string> TextsOf(const OrderedJson& schema) {
  std::set<std::string> texts;
  if (schema.is_null()) return texts;
  const OrderedJson properties = schema.value("properties", OrderedJson());
  for (const auto& [name, property] : properties.items()) {
    if (property.is_object() && property.value("type", OrderedJson()) == "string") {
      texts.insert(name);
    }
  }
  return texts;
}

CallForm CallFormOf(const ToolOptions& options, const ReplyTools& reply) {
  CallForm form = {.field = kTools, .format = reply.format};
  form.may_answer = options.choice == ToolChoice::kAuto;
  form.parallel = reply.parallel && options.function.empty();
  for (const Tool& tool : options.tools) {
    if (!options.MayCall(tool.name)) continue;
    CallForm::Function function;
    function.name = tool.name;
    if (!form.may_answer || tool.strict) function.schema = SchemaOf(tool);
    function.field = tool.field;
    form.functions.push_back(std::move(function));
  }
  return form;
}

// `nested`: tools and the choice are in a member "function", as in chats.
ToolOptions ReadOpenAiTools(Fields& fields, std::string_view object, bool nested) {
  ToolOptions options;
  options.tools =
      nested ? ReadList(fields, object, ReadNestedTool) : ReadList(fields, object, ReadFlatTool);
  ReadChoice(fields, nested, options);
  options.parallel = fields.Bool("parallel_tool_calls").value_or(true);
  CheckOptions(options, fields);
  return options;
}

}  // namespace

ToolOptions ReadChatTools(Fields& fields, std::string_view object) {
  return ReadOpenAiTools(fields, object, /*nested=*/true);
}

ToolOptions ReadOllamaTools(Fields& fields, std::string_view object) {
  ToolOptions options;
  options.tools = ReadList(fields, object, ReadNestedTool);
  CheckOptions(options, fields);
  return options;
}

ToolOptions ReadResponsesTools(Fields& fields, std::string_view object) {
  return ReadOpenAiTools(fields, object, /*nested=*/false);
}

ToolOptions ReadMessagesTools(Fields& fields, std::string_view object) {
  ToolOptions options;
  options.tools = ReadList(fields, object, ReadClientTool);
  ReadTypedChoice(fields, options);
  CheckOptions(options, fields);
  return options;
}

void UseTools(const ToolOptions& tools, const ToolSupport& support,
              std::vector<ChatMessage>& messages, ChatOptions& options,
              CompletionRequest& completion) {
  if (!messages.empty()) options.last_message = messages.size() - 1;
  const std::vector<Tool> shown = tools.enabled() ? tools.tools : std::vector<Tool>();
  messages = ForTemplate(std::move(messages), shown, support);
  if (!tools.enabled()) return;
  if (support.shows_tools) options.tools = ToolsJson(shown);
  ReplyTools reply;
  reply.format = support.format;
  reply.parallel = tools.parallel && !support.one_call;
  reply.by_grammar =
      tools.choice == ToolChoice::kRequired || !tools.allowed.empty() || completion.params.form ||
      std::any_of(shown.begin(), shown.end(), [](const Tool& tool) { return tool.strict; });
  if (reply.by_grammar) {
    completion.params.calls = std::make_shared<const CallForm>(CallFormOf(tools, reply));
  }
  for (const Tool& tool : shown) {
    if (tools.allowed.empty() || tools.allowed.contains(tool.name)) reply.names.insert(tool.name);
    reply.texts[tool.name] = TextsOf(tool.parameters);
  }
  completion.params.shown_tokens = support.marker_tokens;
  completion.reply.tools = std::make_shared<const ReplyTools>(std::move(reply));
}

void SetThoughts(ReasoningSplitter::Begin begin, CompletionRequest& completion) {
  completion.reply.thoughts = begin;
  if (completion.params.calls == nullptr) return;
  CallForm form = *completion.params.calls;
  form.thoughts = begin;
  completion.params.calls = std::make_shared<const CallForm>(std::move(form));
}

}  // namespace triptych::server
