// Texts that mark calls of functions in replies. Their first byte does not come again in them.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_MARKERS_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_MARKERS_H_

#include <string_view>

namespace triptych::server {

inline constexpr std::string_view kTaggedCall = "<tool_call>";
inline constexpr std::string_view kTaggedCallEnd = "</tool_call>";
inline constexpr std::string_view kPairKey = "<arg_key>";
inline constexpr std::string_view kPairKeyEnd = "</arg_key>";
inline constexpr std::string_view kPairValue = "<arg_value>";
inline constexpr std::string_view kPairValueEnd = "</arg_value>";
inline constexpr std::string_view kXmlCall = "<function=";
inline constexpr std::string_view kXmlCallEnd = "</function>";
inline constexpr std::string_view kXmlArgument = "<parameter=";
inline constexpr std::string_view kXmlArgumentEnd = "</parameter>";
inline constexpr std::string_view kMistralCalls = "[TOOL_CALLS]";
inline constexpr std::string_view kMistralCallId = "[CALL_ID]";
inline constexpr std::string_view kMistralArguments = "[ARGS]";
inline constexpr std::string_view kGraniteCalls = "<|tool_call|>";
inline constexpr std::string_view kPhiCallsEnd = "<|/tool_call|>";
inline constexpr std::string_view kPhiToolsEnd = "<|/tool|>";
inline constexpr std::string_view kFunctoolsCalls = "functools";
inline constexpr std::string_view kNemotronCalls = "<TOOLCALL>";
inline constexpr std::string_view kNemotronCallsEnd = "</TOOLCALL>";
inline constexpr std::string_view kCommandCalls = "<|START_ACTION|>";
inline constexpr std::string_view kCommandCallsEnd = "<|END_ACTION|>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
inline constexpr std::string_view kPythonStart = "<|python_start|>";
inline constexpr std::string_view kPythonEnd = "<|python_end|>";
inline constexpr std::string_view kDeepSeekCalls = "<｜tool▁calls▁begin｜>";
inline constexpr std::string_view kDeepSeekCall = "<｜tool▁call▁begin｜>";
inline constexpr std::string_view kDeepSeekSeparator = "<｜tool▁sep｜>";
inline constexpr std::string_view kDeepSeekCallEnd = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_MARKERS_H_
