#include "server/grpc/score_reactor.h"

#include <utility>
#include <variant>

#include "server/grpc/status.h"
#include "server/grpc/wire.h"

namespace triptych {

ScoreReactor* ScoreReactor::Start(std::shared_ptr<Generation> generation,
                                  grpc::CallbackServerContext& context, v1::ScoreResponse* response,
                                  std::chrono::milliseconds stall_timeout) {
  std::shared_ptr<ScoreReactor> reactor(
      new ScoreReactor(std::move(generation), context, response, stall_timeout));
  reactor->self_ = reactor;
  reactor->generation_->Start(reactor);
  return reactor.get();
}

void ScoreReactor::OnReady() {
  Generation::Event event = generation_->Take();
  if (const auto* chunk = std::get_if<StreamChunk>(&event)) {
    *response_ = ToScoreResponse(*chunk);
    generation_->ChunkDone(/*delivered=*/true);
    event = generation_->Take();
  }
  if (const auto* end = std::get_if<GenerationEnd>(&event)) {
    stall_alarm_->Begin();
    Finish(end->error ? ToStatus(*end->error, context_) : grpc::Status::OK);
  }
}

}  // namespace triptych
