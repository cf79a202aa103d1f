#include "server/grpc/vllm_service.h"

#include <spdlog/fmt/chrono.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/base/version.h"
#include "server/grpc/credentials.h"
#include "server/grpc/kv_event_reactor.h"
#include "server/grpc/refused_stream.h"
#include "server/grpc/status.h"
#include "server/grpc/turn.h"
#include "server/grpc/unary.h"

namespace triptych::server {
namespace {

// The model that the call names, which may be none.
std::string ModelNameOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kModelMetadata);
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

Result<size_t> FindModel(const ServerCore& core, const grpc::CallbackServerContext& context) {
  Result<size_t> model = core.models.FindIndex(ModelNameOf(context));
  if (!model.ok()) return InVllmTerms(model.error());
  return model;
}

std::optional<Error> CheckRank(bool given, int32_t rank) {
  if (!given || rank == 0) return std::nullopt;
  return InvalidArgument("dp_rank", fmt::format("is {}; allowed: 0", rank));
}

// Writes an archive in pieces.
class BundleReactor final
    : public AlarmedReactor<grpc::ServerWriteReactor<smg_wire::GetTokenizerChunk>> {
 public:
  using AlarmedReactor::AlarmedReactor;

  // Called once, or again after it threw.
  void Begin(Result<std::shared_ptr<const TokenizerBundle>> bundle) {
    if (!bundle.ok()) return End(ToStatus(InVllmTerms(bundle.error()), context()));
    bundle_ = std::move(bundle).value();
    WriteNext();
  }
  void OnWriteDone(bool ok) override {
    stall_alarm().End();
    if (!ok) return End(grpc::Status::CANCELLED);
    if (sent_ == bundle_->zip.size()) return End(grpc::Status::OK);
    WriteNext();
  }

 private:
  void WriteNext() {
    constexpr size_t kChunkSize = size_t{64} << 10;
    const size_t size = std::min(kChunkSize, bundle_->zip.size() - sent_);
    message_.set_data(bundle_->zip.data() + sent_, size);
    sent_ += size;
    if (sent_ == bundle_->zip.size()) message_.set_sha256(bundle_->sha256);
    stall_alarm().Begin();
    StartWrite(&message_);
  }

  std::shared_ptr<const TokenizerBundle> bundle_;  // once it begins
  size_t sent_ = 0;
  smg_wire::GetTokenizerChunk message_;
};

}  // namespace

grpc::ServerWriteReactor<vllm_wire::GenerateResponse>* VllmService::Generate(
    grpc::CallbackServerContext* context, const vllm_wire::GenerateRequest* message) {
  using Refused = RefusedStream<vllm_wire::GenerateResponse>;
  const Result<AuthorizedCall> entry = gate_.EnterToCompute(CredentialsOf(*context));
  if (!entry.ok()) return new Refused(ToStatus(entry.error(), *context));
  const AuthorizedCall& call = entry.value();
  if (const auto error = CheckServed(*message)) return new Refused(ToStatus(*error, *context));
  const RequestKey key{call.caller.client, message->request_id()};
  const bool named = !message->request_id().empty();
  if (named) {
    const MutexLock lock(live_->mutex);
    if (!live_->reactors.try_emplace(key).second) {
      return new Refused(ToStatus(RequestIdTaken(message->request_id()), *context));
    }
  }
  const auto forget = [live = live_, key, named] {
    if (!named) return;
    const MutexLock lock(live->mutex);
    live->reactors.erase(key);
  };
  auto* const reactor =
      MakeReactor<VllmGenerateReactor>(*context, call.stall_timeout, draining_, *message, forget);
  if (named) {
    const MutexLock lock(live_->mutex);
    live_->reactors[key] =
        std::static_pointer_cast<VllmGenerateReactor>(reactor->shared_from_this());
  }
  call.core.requests.Generate(FromProto(*message, ModelNameOf(*context)), call.caller,
                              TurnOf(context, message),
                              [reactor](auto made) { reactor->Begin(std::move(made)); });
  return reactor;
}

grpc::ServerUnaryReactor* VllmService::Embed(grpc::CallbackServerContext* context,
                                             const vllm_wire::EmbedRequest* /*message*/,
                                             vllm_wire::EmbedResponse* /*response*/) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  return FinishUnary(
      context, {grpc::StatusCode::UNIMPLEMENTED, "the models generate text; Embed is not served"});
}

grpc::ServerUnaryReactor* VllmService::HealthCheck(grpc::CallbackServerContext* context,
                                                   const vllm_wire::HealthCheckRequest* /*message*/,
                                                   vllm_wire::HealthCheckResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  response->set_healthy(!*draining_);
  response->set_message(*draining_ ? "the server drains" : "serving");
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* VllmService::Abort(grpc::CallbackServerContext* context,
                                             const vllm_wire::AbortRequest* message,
                                             vllm_wire::AbortResponse* /*response*/) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  for (const std::string& id : message->request_ids()) {
    std::shared_ptr<VllmGenerateReactor> reactor;
    {
      const MutexLock lock(live_->mutex);
      const auto found = live_->reactors.find({entry.value().caller.client, id});
      if (found != live_->reactors.end()) reactor = found->second.lock();
    }
    if (reactor != nullptr) reactor->Abort();
  }
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* VllmService::GetModelInfo(
    grpc::CallbackServerContext* context, const vllm_wire::GetModelInfoRequest* /*message*/,
    vllm_wire::GetModelInfoResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  const ServerCore& core = entry.value().core;
  const Result<size_t> model = FindModel(core, *context);
  if (!model.ok()) return FinishUnary(context, ToStatus(model.error(), *context));
  *response = ToVllm(core.models.models()[model.value()]);
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* VllmService::GetServerInfo(
    grpc::CallbackServerContext* context, const vllm_wire::GetServerInfoRequest* /*message*/,
    vllm_wire::GetServerInfoResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kInference);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  response->set_active_requests(static_cast<uint32_t>(entry.value().core.requests.live_requests()));
  response->set_uptime_seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - made_).count());
  response->set_server_type("triptych");
  response->set_data_parallel_size(1);
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* VllmService::GetLoads(grpc::CallbackServerContext* context,
                                                const vllm_wire::GetLoadsRequest* message,
                                                vllm_wire::GetLoadsResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kStatistics);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  if (const auto error = CheckRank(message->has_dp_rank(), message->dp_rank())) {
    return FinishUnary(context, ToStatus(*error, *context));
  }
  const ServerCore& core = entry.value().core;
  const Result<size_t> model = FindModel(core, *context);
  if (!model.ok()) return FinishUnary(context, ToStatus(model.error(), *context));
  response->set_timestamp(fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()))));
  response->set_version(std::string(Version()));
  response->set_dp_rank_count(1);
  *response->add_loads() =
      ToVllm(core.engines.Published(model.value()), core.models.models()[model.value()]);
  return FinishUnary(context, grpc::Status::OK);
}

grpc::ServerWriteReactor<smg_wire::GetTokenizerChunk>* VllmService::GetTokenizer(
    grpc::CallbackServerContext* context, const smg_wire::GetTokenizerRequest* message) {
  using Refused = RefusedStream<smg_wire::GetTokenizerChunk>;
  const Result<AuthorizedCall> entry = gate_.EnterToCompute(CredentialsOf(*context));
  if (!entry.ok()) return new Refused(ToStatus(entry.error(), *context));
  const AuthorizedCall& call = entry.value();
  auto* const reactor = MakeReactor<BundleReactor>(*context, call.stall_timeout);
  call.core.requests.BundleTokenizer(ModelNameOf(*context), call.caller, TurnOf(context, message),
                                     [reactor](auto bundle) { reactor->Begin(std::move(bundle)); });
  return reactor;
}

grpc::ServerWriteReactor<smg_wire::KvEventBatch>* VllmService::SubscribeKvEvents(
    grpc::CallbackServerContext* context, const smg_wire::SubscribeKvEventsRequest* message) {
  using Refused = RefusedStream<smg_wire::KvEventBatch>;
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kAdmin);
  if (!entry.ok()) return new Refused(ToStatus(entry.error(), *context));
  const ServerCore& core = entry.value().core;
  KvEventStreams& streams = entry.value().core.kv_events;
  const Result<size_t> model = FindModel(core, *context);
  if (!model.ok()) return new Refused(ToStatus(model.error(), *context));
  const KvEventLog* const log = streams.log(model.value());
  if (log == nullptr) {
    return new Refused({grpc::StatusCode::UNIMPLEMENTED,
                        "the server has no events of its prefix cache; start it with --kv-events"});
  }
  const uint64_t start = message->start_sequence_number();
  const KvEventLog::Kept kept = log->kept();
  if (start != 0 && (start < kept.first || start > kept.next)) {
    return new Refused({grpc::StatusCode::OUT_OF_RANGE,
                        fmt::format("start_sequence_number is {}; allowed: 0, or {} to {}", start,
                                    kept.first, kept.next)});
  }
  std::shared_ptr<void> place = streams.TakePlace();
  if (place == nullptr) {
    return new Refused(ToStatus(
        StatisticsLimit("streams of cache events", KvEventStreams::kMaxStreams), *context));
  }
  auto* const reactor = MakeReactor<KvEventReactor>(
      streams,
      KvEventReactor::Start{.model = model.value(), .next = start, .place = std::move(place)},
      *context, entry.value().stall_timeout);
  reactor->Begin();
  return reactor;
}

}  // namespace triptych::server
