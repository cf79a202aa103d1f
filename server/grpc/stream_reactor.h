// Base of the gRPC reactors of generations.
#ifndef TRIPTYCH_SERVER_GRPC_STREAM_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_STREAM_REACTOR_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "server/grpc/call_reactor.h"

namespace triptych::server {

// Writes the messages of a call's chunks to the stream. Messages are made one chunk at a time.
template <typename Response>
class StreamReactor : public CallReactor<grpc::ServerWriteReactor<Response>> {
 public:
  // `draining`: whether the server closes connections with their last stream.
  StreamReactor(grpc::CallbackServerContext& context, std::chrono::milliseconds stall_timeout,
                std::shared_ptr<const std::atomic<bool>> draining)
      : CallReactor<grpc::ServerWriteReactor<Response>>(context, stall_timeout),
        draining_(std::move(draining)) {}

  void OnWriteDone(bool ok) final {
    this->stall_alarm().End();
    messages_.pop_front();
    if (!ok) messages_.clear();
    if (!messages_.empty()) return Write();
    if (end_) return EndStream();
    this->call().ChunkDone(ok);
    Advance();
  }

 protected:
  using Messages = std::deque<Response>;

  // Adds the chunk's messages, if it has any.
  virtual void AddChunk(const StreamChunk& chunk, Messages& messages) = 0;
  // Adds messages after the last chunk, if there are any. Returns the error that the client gets.
  virtual std::optional<Error> AddEnd(std::optional<Error> error, Messages& /*messages*/) {
    return error;
  }

 private:
  // Pause before the end of a stream while the server drains. Then a connection is closed with its
  // last stream. A proxy that acknowledges the last message at that moment writes to a closed
  // connection, and may drop the stream's end with it, though that has arrived (HAProxy 2.6 does).
  // The second such write fails, so a call with one message, as a score, needs no pause.
  static constexpr std::chrono::milliseconds kAcknowledgeTime{200};

  void Advance() final {
    for (;;) {
      const Call::Event event = this->TakeNext();
      if (const auto* chunk = std::get_if<StreamChunk>(&event)) {
        AddChunk(*chunk, messages_);
        if (!messages_.empty()) return Write();
        this->call().ChunkDone(/*delivered=*/true);
      } else if (const auto* end = std::get_if<CallEnd>(&event)) {
        end_ = CallEnd{AddEnd(end->error, messages_)};
        return messages_.empty() ? EndStream() : Write();
      } else {
        return;
      }
    }
  }

  void Write() {
    wrote_ = true;
    this->stall_alarm().Begin();
    this->StartWrite(&messages_.front());
  }

  void EndStream() {
    if (!*draining_ || !wrote_ || this->context().IsCancelled()) return this->EndCall(end_->error);
    end_alarm_.Set(std::chrono::system_clock::now() + kAcknowledgeTime,
                   [this, self = this->shared_from_this()](bool) mutable {
                     const auto until_ended = std::move(self);
                     this->EndCall(end_->error);
                   });
  }

  const std::shared_ptr<const std::atomic<bool>> draining_;
  Messages messages_;  // of the one chunk in flight, or of the end
  std::optional<CallEnd> end_;
  bool wrote_ = false;
  grpc::Alarm end_alarm_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_STREAM_REACTOR_H_
