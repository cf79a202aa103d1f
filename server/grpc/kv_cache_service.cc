#include "server/grpc/kv_cache_service.h"

#include "server/grpc/refused_stream.h"
#include "server/grpc/status.h"
#include "server/grpc/watch_reactor.h"
#include "server/grpc/wire.h"

namespace triptych {
namespace {

// Ends a unary call with what the host answers.
template <typename Answer, typename Response>
void Finish(const Result<Answer>& answer, grpc::CallbackServerContext& context, Response* response,
            grpc::ServerUnaryReactor* reactor) {
  if (answer.ok()) *response = ToProto(answer.value());
  reactor->Finish(answer.ok() ? grpc::Status::OK : ToStatus(answer.error(), context));
}

}  // namespace

grpc::ServerUnaryReactor* KvCacheService::GetKvCacheStats(grpc::CallbackServerContext* context,
                                                          const v1::GetKvCacheStatsRequest* message,
                                                          v1::GetKvCacheStatsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  host_.CollectStats(message->model(), [=](const Result<HostStats>& stats) {
    Finish(stats, *context, response, reactor);
  });
  return reactor;
}

grpc::ServerUnaryReactor* KvCacheService::ListSequences(grpc::CallbackServerContext* context,
                                                        const v1::ListSequencesRequest* message,
                                                        v1::ListSequencesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  host_.ListSequences(FromProto(*message), [=](const Result<SequencePage>& page) {
    Finish(page, *context, response, reactor);
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchKvCacheStatsResponse>* KvCacheService::WatchKvCacheStats(
    grpc::CallbackServerContext* context, const v1::WatchKvCacheStatsRequest* message) {
  const Result<StatsWatch> watch = host_.Watch(FromProto(*message));
  if (!watch.ok()) {
    return new RefusedStream<v1::WatchKvCacheStatsResponse>(ToStatus(watch.error(), *context));
  }
  return new WatchReactor(host_, watch.value());
}

}  // namespace triptych
