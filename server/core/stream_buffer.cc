#include "server/core/stream_buffer.h"

#include <iterator>
#include <utility>

namespace triptych {

bool StreamBuffer::Append(Delta delta) {
  empty_ = false;
  bytes_ += delta.text.size() + sizeof(delta.token);
  chunk_.text += delta.text;
  chunk_.tokens.push_back(delta.token);
  if (delta.logprobs) {
    bytes_ += (1 + delta.logprobs->top.size()) * sizeof(TokenLogprob);
    chunk_.logprobs.push_back(*std::move(delta.logprobs));
  }
  return bytes_ <= max_bytes_;
}

void StreamBuffer::AppendPrompt(std::vector<TokenLogprobs> logprobs) {
  chunk_.prompt_logprobs.insert(chunk_.prompt_logprobs.end(),
                                std::make_move_iterator(logprobs.begin()),
                                std::make_move_iterator(logprobs.end()));
}

void StreamBuffer::Complete(Completion completion) {
  empty_ = false;
  chunk_.completion = std::move(completion);
}

StreamChunk StreamBuffer::Take() {
  empty_ = true;
  bytes_ = 0;
  return std::exchange(chunk_, {});
}

}  // namespace triptych
