// Results that have not been delivered yet.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_STREAM_BUFFER_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_STREAM_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/serving/request.h"

namespace triptych::server {

// New results of one choice, or of one input of a score, since its last chunk.
struct StreamChunk {
  int32_t choice = 0;  // or the input
  std::string text;    // whole UTF-8 characters
  std::vector<int32_t> tokens;
  std::vector<serving::TokenLogprobs> logprobs;         // one for each of tokens, if asked for
  std::vector<serving::TokenLogprobs> prompt_logprobs;  // of a request's first choice, if asked for
  std::optional<serving::Completion> completion;        // in the choice's last chunk only
};

// A chunk that is about as large goes out as it is, and what follows into the next one.
inline constexpr size_t kChunkBytes = 64 << 10;

// Merges what is generated into chunks, in order, up to a bound on the bytes that they take in
// memory. Choices take turns. Not thread-safe.
class StreamBuffer {
 public:
  StreamBuffer(int32_t choices, size_t max_bytes);

  // Both: false if the buffer now holds more than the bound. REQUIRES: a choice that there is.
  bool Append(serving::Delta delta);
  bool AppendPrompt(int32_t choice, std::vector<serving::TokenLogprobs> logprobs);
  // Makes what is held of the choice its last chunk, even if it is nothing else.
  void Complete(serving::Completion completion);
  // Drops what is held.
  void Clear();
  // Hands over the next chunk. REQUIRES: not empty.
  StreamChunk Take();

  bool empty() const { return turns_.empty(); }
  // Bytes of the chunks, including the unused capacity of their vectors.
  size_t bytes() const { return bytes_; }

 private:
  struct Pending {
    StreamChunk chunk;
    size_t bytes = 0;
  };

  // The chunk of the choice that what comes next is merged into.
  Pending& Last(int32_t choice);
  // Counts what was added to a chunk that took `flat_before` bytes, and another `heap` bytes.
  // False if the buffer now holds more than the bound.
  bool Count(Pending& pending, size_t flat_before, size_t heap);

  const size_t max_bytes_;
  std::vector<std::deque<Pending>> pending_;  // of each choice
  std::deque<int32_t> turns_;                 // the choices that have something, next one first
  size_t bytes_ = 0;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_STREAM_BUFFER_H_
