// Conversion of errors to gRPC statuses: a code, one line, and google.rpc details.
#ifndef TRIPTYCH_SERVER_GRPC_STATUS_H_
#define TRIPTYCH_SERVER_GRPC_STATUS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "server/core/error.h"

namespace triptych::server {

// The details are an ErrorInfo, a BadRequest if a field is invalid, and a RetryInfo if there is a
// retry delay. The delay is also added to the call's trailers as gRPC's retry push-back. Call it
// before the call is finished.
grpc::Status ToStatus(const Error& error, grpc::CallbackServerContext& context);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_STATUS_H_
