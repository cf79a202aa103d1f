// grpc.reflection.v1alpha.ServerReflection: the services' schemas, for clients without the protos.
#ifndef TRIPTYCH_SERVER_GRPC_REFLECTION_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_REFLECTION_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/core/access/auth_gate.h"

namespace triptych::server {

// Replaces gRPC's own service, which takes a thread per stream; this one takes none. Every
// authenticated caller may use it. Thread-safe.
class ReflectionService final
    : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  // `services`: full names of linked services. The gate must outlive the service.
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
