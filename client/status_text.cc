#include "client/status_text.h"

#include <google/protobuf/util/time_util.h>

#include <map>
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

// Appends what `details` adds to `text`, which says the status's message already.
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

}  // namespace

std::string DescribeStatus(const grpc::Status& status, const std::string& address) {
  std::string text = status.error_message();
  // These words are those of the client's own gRPC: a server may answer UNAVAILABLE too.
  const bool refused = text.starts_with("failed to connect to all addresses");
  const bool unreached = refused || text.starts_with("DNS resolution failed");
  if (refused) {  // gRPC tells each layer's part; the last says why
    const size_t colon = text.rfind(": ");
    if (colon != text.npos) text.erase(0, colon + 2);
  }
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) AppendDetails(details, text);

  // gRPC words a passed deadline by its code's name alone.
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && text == "Deadline Exceeded") {
    text = "no complete answer in time";
  }
  std::string line(CodeName(status.error_code()));
  if (!text.empty()) line += ": " + text;
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && unreached) {
    line += " (is triptych-server running at " + address + "?)";
  }
  return OneLine(std::move(line));
}

}  // namespace triptych::client
