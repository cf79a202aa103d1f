// triptych.v1.InferenceService.
#ifndef TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_

#include "server/core/model_host.h"
#include "triptych/v1/inference.grpc.pb.h"

namespace triptych {

// Thread-safe. The host must outlive the service and its calls.
class InferenceService final : public v1::InferenceService::CallbackService {
 public:
  explicit InferenceService(ModelHost& host) : host_(host) {}

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
  ModelHost& host_;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_
