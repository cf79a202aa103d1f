// vllm.grpc.engine.VllmEngine: the service that routers expect of an inference worker.
#ifndef TRIPTYCH_SERVER_GRPC_VLLM_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_VLLM_SERVICE_H_

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/mutex.h"
#include "server/core/access/auth_gate.h"
#include "server/grpc/vllm_generate_reactor.h"
#include "server/grpc/vllm_wire.h"
#include "vllm/grpc/engine/vllm_engine.grpc.pb.h"

namespace triptych::server {

// Thread-safe. The gate must outlive the service and its calls.
class VllmService final : public vllm_wire::VllmEngine::CallbackService {
 public:
  explicit VllmService(const AuthGate& gate) : gate_(gate) {}

  // As InferenceService's.
  void StartDrain() { *draining_ = true; }

  grpc::ServerWriteReactor<vllm_wire::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const vllm_wire::GenerateRequest* message) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const vllm_wire::EmbedRequest* message,
                                  vllm_wire::EmbedResponse* response) override;
  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context,
                                        const vllm_wire::HealthCheckRequest* message,
                                        vllm_wire::HealthCheckResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const vllm_wire::AbortRequest* message,
                                  vllm_wire::AbortResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const vllm_wire::GetModelInfoRequest* message,
                                         vllm_wire::GetModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const vllm_wire::GetServerInfoRequest* message,
                                          vllm_wire::GetServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetLoads(grpc::CallbackServerContext* context,
                                     const vllm_wire::GetLoadsRequest* message,
                                     vllm_wire::GetLoadsResponse* response) override;
  grpc::ServerWriteReactor<smg_wire::GetTokenizerChunk>* GetTokenizer(
      grpc::CallbackServerContext* context, const smg_wire::GetTokenizerRequest* message) override;
  grpc::ServerWriteReactor<smg_wire::KvEventBatch>* SubscribeKvEvents(
      grpc::CallbackServerContext* context,
      const smg_wire::SubscribeKvEventsRequest* message) override;

 private:
  using RequestKey = std::pair<std::string, std::string>;  // client, request_id
  // The live requests with an id. Outlives the service with its last call.
  struct LiveRequests {
    Mutex mutex;
    // Null while the reactor is made.
    std::map<RequestKey, std::weak_ptr<VllmGenerateReactor>> reactors TRIPTYCH_GUARDED_BY(mutex);
  };

  const AuthGate& gate_;
  const std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
  const std::shared_ptr<std::atomic<bool>> draining_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<LiveRequests> live_ = std::make_shared<LiveRequests>();
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_VLLM_SERVICE_H_
