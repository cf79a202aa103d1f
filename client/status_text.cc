#include "client/status_text.h"

#include <google/protobuf/util/time_util.h>

#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "client/format.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace triptych::client {
namespace {

std::string_view CodeName(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "ok";
    case grpc::StatusCode::CANCELLED:
      return "cancelled";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "invalid argument";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "deadline exceeded";
    case grpc::StatusCode::NOT_FOUND:
      return "not found";
    case grpc::StatusCode::ALREADY_EXISTS:
      return "already exists";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "permission denied";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "resource exhausted";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "failed precondition";
    case grpc::StatusCode::ABORTED:
      return "aborted";
    case grpc::StatusCode::OUT_OF_RANGE:
      return "out of range";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "unimplemented";
    case grpc::StatusCode::INTERNAL:
      return "internal error";
    case grpc::StatusCode::UNAVAILABLE:
      return "unavailable";
    case grpc::StatusCode::DATA_LOSS:
      return "data loss";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "unauthenticated";
    default:
      return "unknown error";
  }
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Appends the facts of `details` that `text`, the status's message, lacks.
void AppendDetails(const google::rpc::Status& details, std::string& text) {
  for (const google::protobuf::Any& any : details.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        if (Contains(text, violation.field()) && Contains(text, violation.description())) continue;
        text += text.empty() ? "" : "; ";
        text += violation.field() + ": " + violation.description();
      }
    } else if (any.UnpackTo(&info)) {
      text += (text.empty() ? "(" : " (") + info.reason();
      const std::map<std::string, std::string> metadata(info.metadata().begin(),
                                                        info.metadata().end());
      for (const auto& [key, value] : metadata) text += ", " + key + "=" + value;
      text += ")";
    } else if (any.UnpackTo(&retry)) {
      using google::protobuf::util::TimeUtil;
      std::ostringstream seconds;
      seconds << static_cast<double>(TimeUtil::DurationToMilliseconds(retry.retry_delay())) / 1000;
      text += (text.empty() ? "retry in " : "; retry in ") + seconds.str() + " s";
    }
  }
}

// If `text` is gRPC's message of a failed connection, the part of the last layer, which has the
// reason, and a hint. Absent otherwise: a server may answer UNAVAILABLE itself.
std::optional<std::string> WhyNotConnected(const std::string& text, const std::string& address) {
  if (text.starts_with("DNS resolution failed")) return text + " (is the name in --server right?)";
  if (!text.starts_with("failed to connect to all addresses") &&
      !text.starts_with("connections to all backends failing")) {
    return std::nullopt;
  }
  const size_t colon = text.rfind(": ");
  const std::string why = colon == text.npos ? text : text.substr(colon + 2);
  if (Contains(text, "is not in peer certificate")) {
    return why + " (--tls-name gives a name to check instead)";
  }
  if (Contains(text, "wrong version number") || Contains(text, "WRONG_VERSION_NUMBER")) {
    return address + " does not speak TLS (leave out --tls, --ca, --cert and --tls-name)";
  }
  if (Contains(text, "handshake failed")) {
    return "TLS with " + address + " failed: " + why +
           " (is its certificate signed by an authority in --ca, or without --ca one of the "
           "system's, and in date?)";
  }
  if (Contains(text, "Socket closed") || Contains(text, "Connection reset")) {
    return address +
           " closed the connection (does it require TLS: --tls or --ca, or a certificate: "
           "--cert and --key?)";
  }
  return why + " (is triptych-server running at " + address + "?)";
}

}  // namespace

std::string DescribeStatus(const grpc::Status& status, const std::string& address) {
  std::string text = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    if (const auto why = WhyNotConnected(text, address)) text = *why;
  }
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) AppendDetails(details, text);

  // gRPC's message of a passed deadline is only the name of the code.
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && text == "Deadline Exceeded") {
    text = "no complete answer in time";
  }
  std::string line(CodeName(status.error_code()));
  if (!text.empty()) line += ": " + text;
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    line += " (TRIPTYCH_TOKEN or --token-file gives a token)";
  }
  return OneLine(std::move(line));
}

}  // namespace triptych::client
