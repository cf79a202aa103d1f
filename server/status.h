// Errors as they go on the wire: a code, one line, and google.rpc details for programs.
#ifndef TRIPTYCH_SERVER_STATUS_H_
#define TRIPTYCH_SERVER_STATUS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

namespace triptych {

// INVALID_ARGUMENT with a BadRequest. `description` follows the field's name in the message.
grpc::Status InvalidArgument(const std::string& field, const std::string& description);

// What a client sent, between quotation marks, as it may stand in a message: cut to a length that
// fits in the trailers with everything else.
std::string Quote(const std::string& text);

// NOT_FOUND with an ErrorInfo.
grpc::Status ModelNotFound(const std::string& name, const std::string& loaded);

// RESOURCE_EXHAUSTED with an ErrorInfo and a RetryInfo; also adds gRPC's own retry push-back to
// the call's trailers.
grpc::Status QueueFull(grpc::CallbackServerContext& context);

// RESOURCE_EXHAUSTED with an ErrorInfo: the client does not read its stream.
grpc::Status SlowReader(size_t pending_bytes);

// UNAVAILABLE: the server is draining.
grpc::Status ShuttingDown();

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_STATUS_H_
