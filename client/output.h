#ifndef TRIPTYCH_CLIENT_OUTPUT_H_
#define TRIPTYCH_CLIENT_OUTPUT_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace triptych::client {

// What the commands write to standard output. Not thread-safe: from one thread only.

// Writes and flushes `text`. Throws Failure (session.h) if that fails.
void Print(std::string_view text);
// Ends the line that Print has left open, if it has.
void EndLine();
// A line across the whole width, with `heading` in it.
void PrintHeading(const std::string& heading);
// `message` in protobuf's JSON mapping, zeros included, on a line of its own.
void PrintJson(const google::protobuf::Message& message);

bool StdoutIsTerminal();
// Characters that a line may have: as many as the terminal has columns now, 100 elsewhere.
size_t LineWidth();

// The following change nothing unless standard output is a terminal.
std::string Bold(std::string_view text);
std::string Dim(std::string_view text);
// Control characters other than newline and tab become U+FFFD: a model's bytes must not drive the
// terminal.
std::string Harmless(std::string_view text);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_OUTPUT_H_
