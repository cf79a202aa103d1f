// triptych.v1.InferenceService.
#ifndef TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_

#include <atomic>
#include <memory>

#include "server/core/access/auth_gate.h"
#include "triptych/v1/inference.grpc.pb.h"

namespace triptych::server {

// Thread-safe. The gate must outlive the service and its calls.
class InferenceService final : public v1::InferenceService::CallbackService {
 public:
  explicit InferenceService(const AuthGate& gate) : gate_(gate) {}

  // From now on a connection may be closed as soon as the last of its streams has ended.
  void StartDrain() { *draining_ = true; }

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* message) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const v1::ScoreRequest* message,
                                  v1::ScoreResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* message,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* message,
                                       v1::DetokenizeResponse* response) override;

 private:
  const AuthGate& gate_;
  const std::shared_ptr<std::atomic<bool>> draining_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_
