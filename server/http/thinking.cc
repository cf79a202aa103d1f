#include "server/http/thinking.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace triptych::server {

Thinking ReadEffort(Fields& fields, const std::string& name, const std::string& path) {
  constexpr std::string_view kNone = "none";
  constexpr std::array<std::string_view, 6> kLevels = {kNone,    "minimal", "low",
                                                       "medium", "high",    "xhigh"};
  const auto level = fields.String(name);
  if (!level) return {};
  if (std::find(kLevels.begin(), kLevels.end(), *level) == kLevels.end()) {
    fields.Refuse(name, *level, R"("none", "minimal", "low", "medium", "high", "xhigh")");
  }
  return {.enabled = *level != kNone, .effort = std::string(*level), .field = path + name};
}

Thinking ReadReasoning(Fields& fields) {
  const Json* const reasoning = fields.Any("reasoning");
  if (reasoning == nullptr) return {};
  if (!reasoning->is_object()) {
    fields.Refuse("reasoning", *reasoning, "an object");
    return {};
  }
  Fields members(*reasoning, "reasoning.");
  Thinking thinking = ReadEffort(members, "effort", "reasoning.");
  for (const char* const name : {"summary", "generate_summary"}) members.Lack(name, "auto");
  if (const auto error = members.Finish()) fields.Fail(*error);
  return thinking;
}

bool CanThink(const ModelInfo& model) {
  return model.chat_template != nullptr && model.chat_template->reasons();
}

std::optional<Error> SetThinking(const Thinking& thinking, const ModelInfo& model,
                                 ChatOptions& options) {
  if (!thinking.enabled) return std::nullopt;
  const bool enabled = *thinking.enabled;
  if (enabled && !CanThink(model)) {
    return InvalidArgument(thinking.field, "asks for thoughts, but the model " + model.name +
                                               " does not support thinking; allowed: models "
                                               "whose chat template has <think>");
  }
  if (options.variables.is_null()) options.variables = Json::object();
  options.variables.emplace("enable_thinking", enabled);
  options.variables.emplace("thinking", enabled);
  if (enabled && thinking.effort) {
    options.variables.emplace("reasoning_effort", *thinking.effort);
  }
  return std::nullopt;
}

}  // namespace triptych::server
