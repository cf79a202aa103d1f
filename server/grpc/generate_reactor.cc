#include "server/grpc/generate_reactor.h"

#include <utility>
#include <variant>

#include "server/grpc/load_report.h"
#include "server/grpc/status.h"
#include "server/grpc/wire.h"

namespace triptych {

GenerateReactor* GenerateReactor::Start(std::shared_ptr<Generation> generation,
                                        grpc::CallbackServerContext& context,
                                        std::chrono::milliseconds stall_timeout) {
  std::shared_ptr<GenerateReactor> reactor(
      new GenerateReactor(std::move(generation), context, stall_timeout));
  reactor->self_ = reactor;
  reactor->generation_->Start(reactor);
  return reactor.get();
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
    stall_alarm_->Begin();
    StartWrite(&message_);
  } else if (const auto* end = std::get_if<GenerationEnd>(&event)) {
    if (const auto load = generation_->load()) AddLoadReport(*load, context_);
    stall_alarm_->Begin();
    Finish(end->error ? ToStatus(*end->error, context_) : grpc::Status::OK);
  }
}

}  // namespace triptych
