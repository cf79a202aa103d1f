#include "server/core/requests/stream_buffer.h"

#include <iterator>
#include <utility>

namespace triptych::server {
namespace {

// Heap bytes of a string; none if it is short.
size_t HeapBytes(const std::string& text) {
  return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}

size_t HeapBytes(const serving::TokenLogprobs& logprobs) {
  return logprobs.top.capacity() * sizeof(serving::TokenLogprob);
}

// Bytes of the chunk, without the heap memory of its log-probabilities.
size_t FlatBytes(const StreamChunk& chunk) {
  return sizeof(chunk) + HeapBytes(chunk.text) + chunk.tokens.capacity() * sizeof(int32_t) +
         (chunk.logprobs.capacity() + chunk.prompt_logprobs.capacity()) *
             sizeof(serving::TokenLogprobs);
}

}  // namespace

StreamBuffer::StreamBuffer(int32_t choices, size_t max_bytes)
    : max_bytes_(max_bytes), pending_(choices) {}

StreamBuffer::Pending& StreamBuffer::Last(int32_t choice) {
  std::deque<Pending>& pending = pending_.at(choice);
  if (pending.empty()) turns_.push_back(choice);
  if (pending.empty() || pending.back().bytes >= kChunkBytes) {
    Pending& fresh = pending.emplace_back();
    fresh.chunk.choice = choice;
    fresh.bytes = FlatBytes(fresh.chunk);
    bytes_ += fresh.bytes;
  }
  return pending.back();
}

bool StreamBuffer::Count(Pending& pending, size_t flat_before, size_t heap) {
  const size_t more = FlatBytes(pending.chunk) - flat_before + heap;
  pending.bytes += more;
  bytes_ += more;
  return bytes_ <= max_bytes_;
}

bool StreamBuffer::Append(serving::Delta delta) {
  Pending& pending = Last(delta.choice);
  StreamChunk& chunk = pending.chunk;
  const size_t before = FlatBytes(chunk);
  size_t heap = 0;
  chunk.text += delta.text;
  chunk.tokens.push_back(delta.token);
  if (delta.logprobs) {
    heap = HeapBytes(*delta.logprobs);
    chunk.logprobs.push_back(*std::move(delta.logprobs));
  }
  return Count(pending, before, heap);
}

bool StreamBuffer::AppendPrompt(int32_t choice, std::vector<serving::TokenLogprobs> logprobs) {
  bool fits = true;
  for (serving::TokenLogprobs& one : logprobs) {
    Pending& pending = Last(choice);
    const size_t before = FlatBytes(pending.chunk);
    const size_t heap = HeapBytes(one);
    pending.chunk.prompt_logprobs.push_back(std::move(one));
    fits = Count(pending, before, heap);
  }
  return fits;
}

void StreamBuffer::Complete(serving::Completion completion) {
  Last(completion.choice).chunk.completion = std::move(completion);
}

void StreamBuffer::Clear() {
  for (std::deque<Pending>& pending : pending_) pending.clear();
  turns_.clear();
  bytes_ = 0;
}

StreamChunk StreamBuffer::Take() {
  const int32_t choice = turns_.front();
  turns_.pop_front();
  std::deque<Pending>& pending = pending_[choice];
  StreamChunk chunk = std::move(pending.front().chunk);
  bytes_ -= pending.front().bytes;
  pending.pop_front();
  if (!pending.empty()) turns_.push_back(choice);
  return chunk;
}

}  // namespace triptych::server
