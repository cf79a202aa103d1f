#include "server/grpc/generate_reactor.h"

#include <utility>
#include <variant>

#include "server/grpc/status.h"
#include "server/grpc/wire.h"

namespace triptych {

GenerateReactor* GenerateReactor::Start(std::shared_ptr<Generation> generation,
                                        grpc::CallbackServerContext& context) {
  std::shared_ptr<GenerateReactor> reactor(new GenerateReactor(std::move(generation), context));
  reactor->self_ = reactor;
  reactor->generation_->Start(reactor);
  return reactor.get();
}

void GenerateReactor::OnWriteDone(bool ok) {
  generation_->ChunkDone(ok);
  Advance();
}

void GenerateReactor::Advance() {
  const Generation::Event event = generation_->Take();
  if (const auto* chunk = std::get_if<StreamChunk>(&event)) {
    message_ = ToProto(*chunk, generation_->id(), generation_->seed());
    StartWrite(&message_);
  } else if (const auto* end = std::get_if<GenerationEnd>(&event)) {
    Finish(end->error ? ToStatus(*end->error, context_) : grpc::Status::OK);
  }
}

}  // namespace triptych
