#include "server/grpc/generate_reactor.h"

#include <utility>
#include <variant>

#include "server/grpc/load_report.h"
#include "server/grpc/wire.h"

namespace triptych::server {
namespace {

// A server that drains closes a connection with its last stream. A proxy that acknowledges the last
// message just then writes to a connection that is closed, and may drop with it the stream's end,
// though that has come (HAProxy 2.6 does). So it is given this time before the end. What has one
// message alone, as a score, needs none: it is the second such write that fails.
constexpr std::chrono::milliseconds kAcknowledgeTime{200};

}  // namespace

GenerateReactor* GenerateReactor::Make(grpc::CallbackServerContext& context,
                                       std::chrono::milliseconds stall_timeout,
                                       std::shared_ptr<const std::atomic<bool>> draining) {
  std::shared_ptr<GenerateReactor> reactor(
      new GenerateReactor(context, stall_timeout, std::move(draining)));
  reactor->self_ = reactor;
  return reactor.get();
}

void GenerateReactor::Begin(std::shared_ptr<Generation> generation) {
  const std::shared_ptr<GenerateReactor> self = self_;  // the call may end meanwhile
  generation_ = std::move(generation);
  generation_->Start(self);  // nothing after it may throw: what throws is refused
  if (begun_or_cancelled_.exchange(true)) generation_->Cancel();
}

void GenerateReactor::OnWriteDone(bool ok) {
  stall_alarm_->End();
  generation_->ChunkDone(ok);
  Advance();
}

void GenerateReactor::Advance() {
  Generation::Event event = generation_->Take();
  if (std::holds_alternative<RequestAccepted>(event)) {
    // Not before: a call that sent initial metadata is not tried again by gRPC.
    context_.AddInitialMetadata(kRequestIdMetadata, generation_->id());
    StartSendInitialMetadata();
    event = generation_->Take();
  }
  if (const auto* chunk = std::get_if<StreamChunk>(&event)) {
    message_ = ToProto(*chunk, generation_->id());
    wrote_ = true;
    stall_alarm_->Begin();
    StartWrite(&message_);
  } else if (const auto* end = std::get_if<GenerationEnd>(&event)) {
    if (!*draining_ || !wrote_ || context_.IsCancelled()) return End(end->error);
    end_alarm_.Set(std::chrono::system_clock::now() + kAcknowledgeTime,
                   [self = self_, error = end->error](bool) mutable {
                     std::exchange(self, nullptr)->End(error);
                   });
  }
}

void GenerateReactor::End(const std::optional<Error>& error) {
  if (const auto load = generation_->load()) AddLoadReport(*load, context_);
  stall_alarm_->Begin();
  Finish(error ? ToStatus(*error, context_) : grpc::Status::OK);
}

}  // namespace triptych::server
