// Unary calls: those that end at once, and those whose answers are large.
#ifndef TRIPTYCH_SERVER_GRPC_UNARY_H_
#define TRIPTYCH_SERVER_GRPC_UNARY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "server/grpc/alarmed_reactor.h"

namespace triptych::server {

inline grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                             const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

using AlarmedUnary = AlarmedReactor<grpc::ServerUnaryReactor>;

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_UNARY_H_
