#include "client/output.h"

#include <google/protobuf/stubs/common.h>
#include <google/protobuf/util/json_util.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "client/session.h"

namespace triptych::client {
namespace {

bool at_line_start = true;

std::string Styled(std::string_view text, std::string_view code) {
  if (!StdoutIsTerminal()) return std::string(text);
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

}  // namespace

void Print(std::string_view text) {
  if (text.empty()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    at_line_start = true;  // nothing more can be printed
    throw Failure("cannot write to standard output: " + std::string(std::strerror(errno)));
  }
  at_line_start = text.back() == '\n';
}

void EndLine() {
  if (!at_line_start) Print("\n");
}

void PrintHeading(const std::string& heading) {
  std::string line = "── " + Bold(heading) + " ";
  for (size_t width = heading.size() + 4, end = LineWidth(); width < end; ++width) line += "─";
  Print(line + "\n");
}

void PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
#if GOOGLE_PROTOBUF_VERSION >= 5026000
  options.always_print_fields_with_no_presence = true;
#else
  options.always_print_primitive_fields = true;
#endif
  std::string line;
  const auto status = google::protobuf::util::MessageToJsonString(message, &line, options);
  if (!status.ok()) throw Failure("cannot write the answer as JSON: " + status.ToString());
  Print(line + "\n");
}

bool StdoutIsTerminal() {
  static const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  return is_terminal;
}

size_t LineWidth() {
  constexpr size_t kDefault = 100;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefault;
  return size.ws_col;
}

std::string Bold(std::string_view text) { return Styled(text, "1"); }

std::string Dim(std::string_view text) { return Styled(text, "2"); }

std::string Harmless(std::string_view text) {
  if (!StdoutIsTerminal()) return std::string(text);
  std::string harmless;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    // U+0080 to U+009F, which terminals also obey.
    const bool is_c1 =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) ++i;
    if (is_c0 || is_c1) {
      harmless += "\ufffd";
    } else {
      harmless += text[i];
    }
  }
  return harmless;
}

}  // namespace triptych::client
