#include "server/http/message_calls.h"

#include <optional>
#include <utility>

namespace triptych::server {
namespace {

constexpr const char* kCalls = "tool_calls";
constexpr const char* kCalledName = "the name of a function";

// Reads {"name", "arguments"} of call `index`.
void ReadCalledFunction(const Json& object, const std::string& path, const MessagePlace& place,
                        size_t index, Fields& call, ToolCall& read) {
  constexpr const char* kArguments = "arguments";
  Fields function(object, path);
  function.Need("name", kCalledName);
  read.name = function.String("name").value_or("");
  const Json* const arguments = function.Any(kArguments);
  if (arguments == nullptr) {
    read.arguments = "{}";
  } else if (arguments->is_object()) {
    read.arguments = place.Ordered(kCalls).at(index).at("function").at(kArguments).dump();
  } else {
    read.arguments = function.String(kArguments).value_or("");
  }
  function.Ignore({"index"});
  if (auto error = function.Finish()) call.Fail(std::move(*error));
}

}  // namespace

const OrderedJson& OrderedMessages::MemberOf(size_t index, std::string_view name) {
  if (list_.is_null()) {
    list_ = ParseOrderedJson(MemberText(object_, name_), name_, kMaxJsonValues, kMaxBodyDepth);
  }
  if (member_ == nullptr || member_index_ != index || member_name_ != name) {
    member_index_ = index;
    member_name_ = name;
    member_ = &list_.at(index).at(member_name_);
  }
  return *member_;
}

std::vector<ToolCall> ReadToolCalls(Fields& message, const MessagePlace& place) {
  constexpr const char* kFunction = "function";
  constexpr const char* kAllowed = "an object with a name";
  const Json* const list = message.Any(kCalls);
  if (list == nullptr) return {};
  if (!list->is_array()) {
    message.Refuse(kCalls, *list, "an array of calls");
    return {};
  }
  std::vector<ToolCall> calls;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& object = (*list)[i];
    if (!object.is_object()) {
      message.Refuse(At(kCalls, i), object, "an object with a function");
      return {};
    }
    const std::string path = place.path + At(kCalls, i) + ".";
    Fields call(object, path);
    ToolCall& read = calls.emplace_back();
    read.id = call.String("id").value_or("");
    const Json* const type = call.Any("type");
    if (type != nullptr && *type != kFunction) call.Refuse("type", *type, "\"function\"");
    call.Ignore({"index"});
    const Json* const function = call.Need(kFunction, kAllowed);
    if (function != nullptr && !function->is_object()) {
      call.Refuse(kFunction, *function, kAllowed);
    } else if (function != nullptr) {
      ReadCalledFunction(*function, path + kFunction + ".", place, i, call, read);
    }
    if (auto error = call.Finish()) message.Fail(std::move(*error));
  }
  return calls;
}

ToolCall ReadToolUse(Fields& part, const MessagePlace& place, size_t index) {
  constexpr const char* kInput = "input";
  part.Ignore({"type", "cache_control", "caller"});
  part.Need("name", kCalledName);
  ToolCall call;
  call.id = part.String("id").value_or("");
  call.name = part.String("name").value_or("");
  const Json* const input = part.Any(kInput);
  if (input == nullptr) {
    call.arguments = "{}";
  } else if (!input->is_object()) {
    part.Refuse(kInput, *input, "an object");
  } else {
    call.arguments = place.Ordered("content").at(index).at(kInput).dump();
  }
  return call;
}

ToolCall ReadFunctionCall(Fields& item) {
  item.Ignore({"type", "id", "status"});
  item.Need("name", kCalledName);
  ToolCall call;
  call.id = item.String("call_id").value_or("");
  call.name = item.String("name").value_or("");
  call.arguments = item.String("arguments").value_or("{}");
  return call;
}

}  // namespace triptych::server
