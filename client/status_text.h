// Text of a failed call's status.
#ifndef TRIPTYCH_CLIENT_STATUS_TEXT_H_
#define TRIPTYCH_CLIENT_STATUS_TEXT_H_

#include <grpcpp/support/status.h>

#include <string>

namespace triptych::client {

// Describes in one line, without a newline, why a call to the server at `address` failed: the code,
// the message, and the details of its google.rpc.Status (field violations, reason, retry delay).
// Control characters become spaces. REQUIRES: !status.ok().
std::string DescribeStatus(const grpc::Status& status, const std::string& address);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_STATUS_TEXT_H_
