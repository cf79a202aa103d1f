// How the message of a gRPC call waits for its turn.
#ifndef TRIPTYCH_SERVER_GRPC_TURN_H_
#define TRIPTYCH_SERVER_GRPC_TURN_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include <cstdint>

#include "server/core/requests/request_service.h"

namespace triptych::server {

// gRPC keeps a call's context and message until the call is finished.
inline RequestService::Turn TurnOf(const grpc::CallbackServerContext* context,
                                   const google::protobuf::Message* message) {
  // The message as it lies in memory, where even empty strings take some.
  return {.held_bytes = [message] { return static_cast<int64_t>(message->SpaceUsedLong()); },
          .is_cancelled = [context] { return context->IsCancelled(); }};
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_TURN_H_
