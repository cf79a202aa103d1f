// Formats in which models write calls of functions.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_CALL_FORMAT_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_CALL_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/tools/tools.h"

namespace triptych::server {

struct CallFormat {
  enum class Kind {
    kTagged,      // Hermes, Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call> each
    kList,        // Mistral, Granite and others: a marker, a list of such objects, perhaps an end
    kCommand,     // Command: a list of {"tool_name": ..., "parameters": {...}} in markers
    kNamed,       // Mistral since 2025: [TOOL_CALLS]NAME[ARGS]{...} each
    kDeepSeekV3,  // markers around "function", the name, and a code block of JSON
    kDeepSeek,    // since V3.1: markers around the name and the JSON
    // Llama: a reply that begins with {"name": ..., "parameters": {...}}, or with a list of such
    // objects or of Python's calls, [NAME(KEY=VALUE)]
    kLlama,
  };
  Kind kind = Kind::kTagged;
  std::string marker = {}, end = {};  // kList: before the list and behind it

  bool operator==(const CallFormat&) const = default;
};

// The format whose marks a template's text has; absent if it has none.
std::optional<CallFormat> FormatOf(std::string_view template_text);

// The texts of the format that may be special tokens.
std::vector<std::string> MarkersOf(const CallFormat& format);

// Calls as a reply has them: how the template of a model writes them.
std::string CallsText(const CallFormat& format, const std::vector<ToolCall>& calls);

// Parts of the text of calls. A call is `before`, its arguments as JSON, and `after`.
struct CallFrame {
  std::string begin, end;  // of all calls together
  std::string separator;   // between two calls
  std::string before, after;
};
CallFrame FrameOf(const CallFormat& format, std::string_view name);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_CALL_FORMAT_H_
