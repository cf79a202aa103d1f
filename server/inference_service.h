// triptych.v1.InferenceService.
#ifndef TRIPTYCH_SERVER_INFERENCE_SERVICE_H_
#define TRIPTYCH_SERVER_INFERENCE_SERVICE_H_

#include <atomic>
#include <string>

#include "server/model_registry.h"
#include "triptych/v1/inference.grpc.pb.h"

namespace triptych {

// Thread-safe. The registry must outlive the service and its calls.
class InferenceService final : public v1::InferenceService::CallbackService {
 public:
  explicit InferenceService(ModelRegistry& registry) : registry_(registry) {}

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
  std::string NextRequestId();

  ModelRegistry& registry_;
  std::atomic<uint64_t> requests_ = 0;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_INFERENCE_SERVICE_H_
