// triptych.v1.AdminService: operations on the server.
#ifndef TRIPTYCH_SERVER_GRPC_ADMIN_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_ADMIN_SERVICE_H_

#include <utility>

#include "server/core/access/auth_gate.h"
#include "server/core/transport_options.h"
#include "triptych/v1/admin.grpc.pb.h"

namespace triptych::server {

// Thread-safe. The gate must outlive the service and its calls.
class AdminService final : public v1::AdminService::CallbackService {
 public:
  AdminService(const AuthGate& gate, RequestDrain request_drain)
      : gate_(gate), request_drain_(std::move(request_drain)) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* message,
                                  v1::DrainResponse* response) override;

 private:
  const AuthGate& gate_;
  const RequestDrain request_drain_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_ADMIN_SERVICE_H_
