// triptych.v1.InferenceService.
#ifndef TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_

#include <google/protobuf/message.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "server/core/access/auth_gate.h"
#include "server/core/error.h"
#include "server/core/requests/tokenization_queue.h"
#include "server/core/transport_options.h"
#include "triptych/v1/inference.grpc.pb.h"

namespace triptych::server {

// Thread-safe. The gate must outlive the service and its calls.
class InferenceService final : public v1::InferenceService::CallbackService {
 public:
  InferenceService(const AuthGate& gate, const TransportLimits& limits)
      : gate_(gate), texts_(kMostSpacePerByte * limits.max_message_bytes) {}

  // From now on a connection may be closed as soon as the last of its streams has ended. Calls
  // whose texts still wait to be encoded are refused.
  void StartDrain() {
    *draining_ = true;
    texts_.StartDrain();
  }

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
  // What a message within its limits takes in memory for each byte that came: a token id of one
  // byte takes four, in a list that doubles as it grows.
  static constexpr int64_t kMostSpacePerByte = 8;

  // Has the call of a message, with texts of so many bytes, handled now or in its turn. gRPC keeps
  // the call, its messages and its context until it is finished.
  void InTurn(const AuthorizedCall& entry, const grpc::CallbackServerContext* context,
              const google::protobuf::Message& message, int64_t text_bytes,
              std::function<void(const std::optional<Error>&)> handle);

  const AuthGate& gate_;
  const std::shared_ptr<std::atomic<bool>> draining_ = std::make_shared<std::atomic<bool>>(false);
  TokenizationQueue texts_;  // gRPC has few threads, which bring and take all messages
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_INFERENCE_SERVICE_H_
