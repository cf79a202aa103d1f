// Arguments of a call in Python's syntax.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_PYTHON_ARGUMENTS_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_PYTHON_ARGUMENTS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace triptych::server {

// Finds the end of a call's arguments, byte by byte.
class PythonArgumentsScanner {
 public:
  enum class Result { kMore, kDone, kFailed };

  // Reads the next byte, from "(" on. kDone behind the matching ")".
  Result Push(char c);

 private:
  std::string open_;  // brackets
  char quote_ = 0;    // of the current string
  bool escaped_ = false;
};

// The JSON object of "(key=value, ...)". Values are literals: strings, numbers, True, False, None,
// lists, tuples and dicts, up to 64 levels. Absent if the text is something else.
std::optional<std::string> PythonArgumentsJson(std::string_view text);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_PYTHON_ARGUMENTS_H_
