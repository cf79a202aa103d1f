// triptych.v1.ModelService: the loaded models.
#ifndef TRIPTYCH_SERVER_GRPC_MODEL_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_MODEL_SERVICE_H_

#include "server/core/access/auth_gate.h"
#include "triptych/v1/model.grpc.pb.h"

namespace triptych::server {

// Thread-safe. The gate must outlive the service and its calls.
class ModelService final : public v1::ModelService::CallbackService {
 public:
  explicit ModelService(const AuthGate& gate) : gate_(gate) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* message,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* message,
                                     v1::GetModelResponse* response) override;

 private:
  const AuthGate& gate_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_MODEL_SERVICE_H_
