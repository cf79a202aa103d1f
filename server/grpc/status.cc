#include "server/grpc/status.h"

#include <google/protobuf/util/time_util.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace triptych::server {
namespace {

grpc::StatusCode ToCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::kAlreadyExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case ErrorCode::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case ErrorCode::kInternal:
      return grpc::StatusCode::INTERNAL;
    case ErrorCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case ErrorCode::kUnauthenticated:
      return grpc::StatusCode::UNAUTHENTICATED;
    case ErrorCode::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
  }
  return grpc::StatusCode::UNKNOWN;
}

google::rpc::BadRequest ToBadRequest(const Error& error) {
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field(error.field);
  violation->set_description(error.description);
  return bad_request;
}

google::rpc::ErrorInfo ToErrorInfo(const Error& error) {
  google::rpc::ErrorInfo info;
  info.set_reason(error.reason);
  info.set_domain("triptych.v1");
  info.mutable_metadata()->insert(error.metadata.begin(), error.metadata.end());
  return info;
}

google::rpc::RetryInfo ToRetryInfo(std::chrono::milliseconds delay) {
  google::rpc::RetryInfo retry;
  *retry.mutable_retry_delay() =
      google::protobuf::util::TimeUtil::MillisecondsToDuration(delay.count());
  return retry;
}

}  // namespace

grpc::Status ToStatus(const Error& error, grpc::CallbackServerContext& context) {
  const grpc::StatusCode code = ToCode(error.code);
  google::rpc::Status status;
  if (!error.field.empty()) status.add_details()->PackFrom(ToBadRequest(error));
  status.add_details()->PackFrom(ToErrorInfo(error));
  if (error.retry_delay) {
    status.add_details()->PackFrom(ToRetryInfo(*error.retry_delay));
    context.AddTrailingMetadata("grpc-retry-pushback-ms",
                                std::to_string(error.retry_delay->count()));
  }
  status.set_code(code);
  status.set_message(error.Message());
  return grpc::Status(code, error.Message(), status.SerializeAsString());
}

}  // namespace triptych::server
