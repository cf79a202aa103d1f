// Errors as they go on the wire: a code, one line, and google.rpc details for programs.
#ifndef TRIPTYCH_SERVER_GRPC_STATUS_H_
#define TRIPTYCH_SERVER_GRPC_STATUS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "server/core/error.h"

namespace triptych::server {

// The details are an ErrorInfo, and with it a BadRequest for a field and a RetryInfo for a delay; a
// delay also becomes gRPC's own retry push-back in the call's trailers. Called before the call is
// finished.
grpc::Status ToStatus(const Error& error, grpc::CallbackServerContext& context);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_STATUS_H_
