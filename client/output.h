// Standard output of the commands.
#ifndef TRIPTYCH_CLIENT_OUTPUT_H_
#define TRIPTYCH_CLIENT_OUTPUT_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace triptych::client {

// Not thread-safe: for one thread only.

// Writes and flushes `text`. Throws Failure (session.h) if that fails.
void Print(std::string_view text);
// Ends the line if Print has left one open.
void EndLine();
// Prints a line across the whole width, with `heading` in it.
void PrintHeading(const std::string& heading);
// Prints `message` as one line in protobuf's JSON mapping, zeros included.
void PrintJson(const google::protobuf::Message& message);

bool StdoutIsTerminal();
// Maximum characters of a line: the terminal's current columns, or 100 without a terminal.
size_t LineWidth();

// The following return `text` unchanged unless standard output is a terminal.
std::string Bold(std::string_view text);
std::string Dim(std::string_view text);
// Control characters other than newline and tab become U+FFFD: a model's bytes must not drive the
// terminal.
std::string Harmless(std::string_view text);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_OUTPUT_H_
