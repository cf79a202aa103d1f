// The server's side of one VllmEngine.Generate stream.
#ifndef TRIPTYCH_SERVER_GRPC_VLLM_GENERATE_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_VLLM_GENERATE_REACTOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "server/grpc/stream_reactor.h"
#include "server/grpc/vllm_wire.h"

namespace triptych::server {

// With `stream`, a message for the tokens of each chunk. In any case one for the end of each
// choice.
class VllmGenerateReactor final : public StreamReactor<vllm_wire::GenerateResponse> {
 public:
  // `on_done` is called once, when the call is over.
  VllmGenerateReactor(grpc::CallbackServerContext& context, std::chrono::milliseconds stall_timeout,
                      std::shared_ptr<const std::atomic<bool>> draining,
                      const vllm_wire::GenerateRequest& message, std::function<void()> on_done);

  // As CallReactor's, with the message's names of fields in errors.
  void Begin(Result<std::shared_ptr<Call>> call);
  // Ends the request. Its choices that have not ended do so with the reason "abort".
  void Abort() {
    aborted_ = true;
    OnCancel();
  }

  void OnDone() override;

 private:
  struct Choice {
    vllm_wire::GenerateComplete complete;
    int64_t bytes = 0;  // bound on those of `complete`, without `stream`
    uint32_t last_token = 0;
    bool done = false;
  };

  void AddChunk(const StreamChunk& chunk, Messages& messages) override;
  std::optional<Error> AddEnd(std::optional<Error> error, Messages& messages) override;
  void AddComplete(Choice& choice, Messages& messages);

  const bool streams_;
  const bool top_, prompt_top_;  // log-probabilities of most likely tokens are reported
  const int64_t token_bytes_, prompt_token_bytes_;  // bounds on those of a token in a message
  const std::vector<uint32_t> stop_token_ids_;
  const std::function<void()> on_done_;
  std::atomic<bool> aborted_ = false;
  // Belong to the one chunk in flight, or to the end.
  uint32_t prompt_tokens_ = 0;
  std::optional<vllm_wire::InputLogProbs> prompt_;  // until they are sent
  std::vector<Choice> choices_;
  bool too_large_ = false;  // one of their messages would be
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_VLLM_GENERATE_REACTOR_H_
