#include "server/status.h"

#include <google/protobuf/message.h>

#include <initializer_list>

#include "engine/text/text_stream.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace triptych {
namespace {

// How long a client should wait for room in the queue.
constexpr int kRetryDelayMs = 500;

grpc::Status WithDetails(grpc::StatusCode code, const std::string& message,
                         std::initializer_list<const google::protobuf::Message*> details) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  for (const auto* detail : details) status.add_details()->PackFrom(*detail);
  return grpc::Status(code, message, status.SerializeAsString());
}

std::string Shorten(const std::string& text) {
  constexpr size_t kMaxBytes = 64;
  return text.size() <= kMaxBytes ? text : ToValidUtf8(text.substr(0, kMaxBytes)) + "...";
}

google::rpc::ErrorInfo MakeErrorInfo(const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("triptych");
  return info;
}

}  // namespace

std::string Quote(const std::string& text) { return '"' + Shorten(text) + '"'; }

grpc::Status InvalidArgument(const std::string& field, const std::string& description) {
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field(field);
  violation->set_description(description);
  return WithDetails(grpc::StatusCode::INVALID_ARGUMENT, field + " " + description, {&bad_request});
}

grpc::Status ModelNotFound(const std::string& name, const std::string& loaded) {
  auto info = MakeErrorInfo("MODEL_NOT_FOUND");
  (*info.mutable_metadata())["model"] = Shorten(name);
  return WithDetails(grpc::StatusCode::NOT_FOUND,
                     "model " + Quote(name) + " is not loaded; loaded: " + loaded, {&info});
}

grpc::Status QueueFull(grpc::CallbackServerContext& context) {
  context.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(kRetryDelayMs));
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(kRetryDelayMs * 1'000'000);
  const auto info = MakeErrorInfo("QUEUE_FULL");
  return WithDetails(grpc::StatusCode::RESOURCE_EXHAUSTED, "the model's queue is full",
                     {&info, &retry});
}

grpc::Status SlowReader(size_t pending_bytes) {
  const auto info = MakeErrorInfo("SLOW_READER");
  return WithDetails(grpc::StatusCode::RESOURCE_EXHAUSTED,
                     "the client does not read its stream: " + std::to_string(pending_bytes) +
                         " bytes are waiting",
                     {&info});
}

grpc::Status ShuttingDown() {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down");
}

}  // namespace triptych
