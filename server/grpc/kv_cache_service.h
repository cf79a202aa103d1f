// triptych.v1.KvCacheService: cache statistics and live sequences.
#ifndef TRIPTYCH_SERVER_GRPC_KV_CACHE_SERVICE_H_
#define TRIPTYCH_SERVER_GRPC_KV_CACHE_SERVICE_H_

#include "server/core/access/auth_gate.h"
#include "server/grpc/watch_reactor.h"
#include "triptych/v1/kv_cache.grpc.pb.h"

namespace triptych::server {

// Thread-safe. The gate must outlive the service and its calls.
class KvCacheService final : public v1::KvCacheService::CallbackService {
 public:
  explicit KvCacheService(const AuthGate& gate) : gate_(gate) {}

  grpc::ServerUnaryReactor* GetKvCacheStats(grpc::CallbackServerContext* context,
                                            const v1::GetKvCacheStatsRequest* message,
                                            v1::GetKvCacheStatsResponse* response) override;
  grpc::ServerUnaryReactor* ListSequences(grpc::CallbackServerContext* context,
                                          const v1::ListSequencesRequest* message,
                                          v1::ListSequencesResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchKvCacheStatsResponse>* WatchKvCacheStats(
      grpc::CallbackServerContext* context, const v1::WatchKvCacheStatsRequest* message) override;

  // Ends the streams of statistics with UNAVAILABLE.
  void EndWatches() { watches_.End(); }

 private:
  const AuthGate& gate_;
  OpenWatches watches_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_KV_CACHE_SERVICE_H_
