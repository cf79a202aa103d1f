// What has been generated and not been delivered yet.
#ifndef TRIPTYCH_SERVER_CORE_STREAM_BUFFER_H_
#define TRIPTYCH_SERVER_CORE_STREAM_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/serving/request.h"

namespace triptych {

// What a client is sent in one message: everything that was generated since the last chunk.
struct StreamChunk {
  std::string text;  // whole UTF-8 characters
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;  // one for each of tokens, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;
  std::optional<Completion> completion;  // in the last chunk only
};

// Merges deltas in their order into one chunk, up to a bound on its bytes. Not thread-safe.
class StreamBuffer {
 public:
  explicit StreamBuffer(size_t max_bytes) : max_bytes_(max_bytes) {}

  // False if the buffer now holds more than the bound.
  bool Append(Delta delta);
  // Goes out with what comes next.
  void AppendPrompt(std::vector<TokenLogprobs> logprobs);
  // Makes what is held the last chunk, even if it is nothing else.
  void Complete(Completion completion);
  // Drops what is held.
  void Clear() { Take(); }
  // Hands over what is held and is empty then.
  StreamChunk Take();

  bool empty() const { return empty_; }
  size_t bytes() const { return bytes_; }

 private:
  const size_t max_bytes_;
  StreamChunk chunk_;
  bool empty_ = true;
  size_t bytes_ = 0;  // of text, tokens and logprobs
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_STREAM_BUFFER_H_
