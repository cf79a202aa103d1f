#include "server/grpc/score_reactor.h"

#include <variant>

#include "server/grpc/wire.h"

namespace triptych::server {

void ScoreReactor::Advance() {
  Call::Event event = TakeNext();
  while (const auto* chunk = std::get_if<StreamChunk>(&event)) {
    AddChunk(*chunk, scores_);
    call().ChunkDone(/*delivered=*/true);
    event = TakeNext();
  }
  if (const auto* end = std::get_if<CallEnd>(&event)) {
    if (!end->error) *response_ = ToProto(scores_);
    EndCall(end->error);
  }
}

}  // namespace triptych::server
