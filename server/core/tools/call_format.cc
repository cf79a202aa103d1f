#include "server/core/tools/call_format.h"

#include "server/core/tools/markers.h"

namespace triptych::server {

std::optional<CallFormat> FormatOf(std::string_view template_text) {
  using Kind = CallFormat::Kind;
  const auto shows = [&](std::string_view text) { return template_text.find(text) != text.npos; };
  if (shows(kDeepSeekCalls)) {
    return CallFormat{shows("```json") ? Kind::kDeepSeekV3 : Kind::kDeepSeek};
  }
  if (shows(kMistralCalls) && shows(kMistralArguments)) return CallFormat{Kind::kNamed};
  if (shows(kCommandCalls)) return CallFormat{Kind::kCommand};
  struct List {
    std::string_view shown, marker, end;
  };
  for (const auto& [shown, marker, end] : {List{kMistralCalls, kMistralCalls, ""},
                                           {kGraniteCalls, kGraniteCalls, ""},
                                           {kPhiToolsEnd, kGraniteCalls, kPhiCallsEnd},
                                           {kNemotronCalls, kNemotronCalls, kNemotronCallsEnd},
                                           {kFunctoolsCalls, kFunctoolsCalls, ""}}) {
    if (shows(shown)) return CallFormat{Kind::kList, std::string(marker), std::string(end)};
  }
  if (shows(kTaggedCall)) return CallFormat{Kind::kTagged};
  if (shows(kPythonTag) || shows(kPythonStart) || shows("\"parameters\"")) {
    return CallFormat{Kind::kLlama};
  }
  return std::nullopt;
}

std::vector<std::string> MarkersOf(const CallFormat& format) {
  switch (format.kind) {
    case CallFormat::Kind::kTagged:
      return {std::string(kTaggedCall), std::string(kTaggedCallEnd), std::string(kPairKey),
              std::string(kPairKeyEnd), std::string(kPairValue),     std::string(kPairValueEnd)};
    case CallFormat::Kind::kList:
      if (format.end.empty()) return {format.marker};
      return {format.marker, format.end};
    case CallFormat::Kind::kCommand:
      return {std::string(kCommandCalls), std::string(kCommandCallsEnd)};
    case CallFormat::Kind::kNamed:
      return {std::string(kMistralCalls), std::string(kMistralCallId),
              std::string(kMistralArguments)};
    case CallFormat::Kind::kDeepSeekV3:
    case CallFormat::Kind::kDeepSeek:
      return {std::string(kDeepSeekCalls), std::string(kDeepSeekCall),
              std::string(kDeepSeekSeparator), std::string(kDeepSeekCallEnd),
              std::string(kDeepSeekCallsEnd)};
    case CallFormat::Kind::kLlama:
      return {std::string(kPythonTag), std::string(kPythonStart), std::string(kPythonEnd)};
  }
  return {};
}

CallFrame FrameOf(const CallFormat& format, std::string_view name) {
  const auto object = [&](std::string_view arguments) {
    return R"({"name": ")" + std::string(name) + R"(", ")" + std::string(arguments) + R"(": )";
  };
  CallFrame frame;
  switch (format.kind) {
    case CallFormat::Kind::kTagged:
      frame.separator = "\n";
      frame.before = std::string(kTaggedCall) + "\n" + object("arguments");
      frame.after = "}\n" + std::string(kTaggedCallEnd);
      break;
    case CallFormat::Kind::kList:
      frame.begin = format.marker + "[";
      frame.end = "]" + format.end;
      frame.separator = ", ";
      frame.before = object("arguments");
      frame.after = "}";
      break;
    case CallFormat::Kind::kCommand:
      frame.begin = std::string(kCommandCalls) + "[";
      frame.end = "]" + std::string(kCommandCallsEnd);
      frame.separator = ", ";
      frame.before = R"({"tool_name": ")" + std::string(name) + R"(", "parameters": )";
      frame.after = "}";
      break;
    case CallFormat::Kind::kNamed:
      frame.before =
          std::string(kMistralCalls) + std::string(name) + std::string(kMistralArguments);
      break;
    case CallFormat::Kind::kDeepSeekV3:
    case CallFormat::Kind::kDeepSeek: {
      const bool old = format.kind == CallFormat::Kind::kDeepSeekV3;
      frame.begin = kDeepSeekCalls;
      frame.end = kDeepSeekCallsEnd;
      frame.separator = old ? "\n" : "";
      frame.before = kDeepSeekCall;
      if (old) frame.before += "function" + std::string(kDeepSeekSeparator);
      frame.before += name;
      frame.before += old ? "\n```json\n" : kDeepSeekSeparator;
      frame.after = (old ? "\n```" : "") + std::string(kDeepSeekCallEnd);
      break;
    }
    case CallFormat::Kind::kLlama:
      frame.separator = "; ";
      frame.before = object("parameters");
      frame.after = "}";
      break;
  }
  return frame;
}

std::string CallsText(const CallFormat& format, const std::vector<ToolCall>& calls) {
  if (calls.empty()) return "";
  std::string text = FrameOf(format, "").begin;
  for (const ToolCall& call : calls) {
    const CallFrame frame = FrameOf(format, call.name);
    if (&call != &calls.front()) text += frame.separator;
    text += frame.before + call.arguments + frame.after;
  }
  return text + FrameOf(format, "").end;
}

}  // namespace triptych::server
