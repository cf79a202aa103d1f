#include "server/grpc/generate_reactor.h"

#include <optional>
#include <variant>

#include "server/grpc/wire.h"

namespace triptych::server {
namespace {

// Pause before the end of a stream while the server drains. Then a connection is closed with its
// last stream. A proxy that acknowledges the last message at that moment writes to a closed
// connection, and may drop the stream's end with it, though that has arrived (HAProxy 2.6 does).
// The second such write fails, so a call with one message, as a score, needs no pause.
constexpr std::chrono::milliseconds kAcknowledgeTime{200};

}  // namespace

void GenerateReactor::OnWriteDone(bool ok) {
  stall_alarm().End();
  call().ChunkDone(ok);
  Advance();
}

void GenerateReactor::Advance() {
  const Call::Event event = TakeNext();
  if (const auto* chunk = std::get_if<StreamChunk>(&event)) {
    message_ = ToProto(*chunk, call().id());
    wrote_ = true;
    stall_alarm().Begin();
    StartWrite(&message_);
  } else if (const auto* end = std::get_if<CallEnd>(&event)) {
    if (!*draining_ || !wrote_ || context().IsCancelled()) return EndCall(end->error);
    end_alarm_.Set(std::chrono::system_clock::now() + kAcknowledgeTime,
                   [this, self = shared_from_this(), error = end->error](bool) mutable {
                     const auto until_ended = std::move(self);
                     EndCall(error);
                   });
  }
}

}  // namespace triptych::server
