// Fuzz target: the client's text for a status from an untrusted server.
#include <grpcpp/support/status.h>

#include <string>

#include "client/status_text.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzClientStatus(std::string_view bytes) {
  FuzzInput input(bytes);
  const auto code = static_cast<grpc::StatusCode>(1 + input.AtMost(17));
  const std::string message(input.Take(input.AtMost(255)));
  const std::string details(input.TakeAll());
  const std::string line =
      client::DescribeStatus(grpc::Status(code, message, details), "127.0.0.1:50051");
  Promise(!line.empty(), "a status says something");
  for (const unsigned char c : line) {
    Promise(c >= 0x20 && c != 0x7f, "a status is one line that a terminal shows: " + line);
  }
}

}  // namespace triptych
