// A unary call that ends at once.
#ifndef TRIPTYCH_SERVER_GRPC_UNARY_H_
#define TRIPTYCH_SERVER_GRPC_UNARY_H_

#include <grpcpp/support/server_callback.h>

namespace triptych {

inline grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                             const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_UNARY_H_
