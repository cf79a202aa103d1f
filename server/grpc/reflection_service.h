// grpc.reflection.v1alpha.ServerReflection: the services' messages, for clients that have no proto.
#ifndef TRIPTYCH_SERVER_GRPC_REFLECTION_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_REFLECTION_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/core/access/auth_gate.h"

namespace triptych::server {

// gRPC's own takes a thread for each stream; this one takes none. Whoever is let in at all may ask.
// Thread-safe.
class ReflectionService final
    : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  // `services` are full names of services that are linked in. The gate must outlive the service.
  ReflectionService(const AuthGate& gate, std::vector<std::string> services)
      : gate_(gate), services_(std::move(services)) {}

  grpc::ServerBidiReactor<grpc::reflection::v1alpha::ServerReflectionRequest,
                          grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const AuthGate& gate_;
  const std::vector<std::string> services_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_REFLECTION_SERVICE_H_
