#include "server/grpc/kv_cache_service.h"

#include "server/grpc/credentials.h"
#include "server/grpc/refused_stream.h"
#include "server/grpc/status.h"
#include "server/grpc/unary.h"
#include "server/grpc/wire.h"

namespace triptych::server {
namespace {

// Ends a unary call with the answer.
template <typename Answer, typename Response>
void Finish(const Result<Answer>& answer, grpc::CallbackServerContext& context, Response* response,
            AlarmedUnary* reactor) {
  if (answer.ok()) *response = ToProto(answer.value());
  reactor->End(answer.ok() ? grpc::Status::OK : ToStatus(answer.error(), context));
}

}  // namespace

grpc::ServerUnaryReactor* KvCacheService::GetKvCacheStats(grpc::CallbackServerContext* context,
                                                          const v1::GetKvCacheStatsRequest* message,
                                                          v1::GetKvCacheStatsResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kStatistics);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  auto* const reactor = MakeReactor<AlarmedUnary>(*context, entry.value().stall_timeout);
  entry.value().core.stats.Collect(
      FromProto(*message), entry.value().caller,
      [=](const Result<RegistryStats>& stats) { Finish(stats, *context, response, reactor); });
  return reactor;
}

grpc::ServerUnaryReactor* KvCacheService::ListSequences(grpc::CallbackServerContext* context,
                                                        const v1::ListSequencesRequest* message,
                                                        v1::ListSequencesResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  auto* const reactor = MakeReactor<AlarmedUnary>(*context, entry.value().stall_timeout);
  entry.value().core.stats.ListSequences(
      FromProto(*message), entry.value().caller,
      [=](const Result<SequencePage>& page) { Finish(page, *context, response, reactor); });
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchKvCacheStatsResponse>* KvCacheService::WatchKvCacheStats(
    grpc::CallbackServerContext* context, const v1::WatchKvCacheStatsRequest* message) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kStatistics);
  if (!entry.ok()) {
    return new RefusedStream<v1::WatchKvCacheStatsResponse>(ToStatus(entry.error(), *context));
  }
  const Result<StatsWatch> watch = entry.value().core.stats.Watch(FromProto(*message));
  if (!watch.ok()) {
    return new RefusedStream<v1::WatchKvCacheStatsResponse>(ToStatus(watch.error(), *context));
  }
  return new WatchReactor(entry.value().core.stats, watch.value(), watches_, *context,
                          entry.value().stall_timeout);
}

}  // namespace triptych::server
