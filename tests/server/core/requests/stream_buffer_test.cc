#include "server/core/requests/stream_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace triptych::server::stream_buffer_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kPlenty = 1 << 20;

serving::Delta Token(int32_t token, const std::string& text, int32_t choice = 0) {
  return {.choice = choice, .token = token, .logprobs = {}, .text = text};
}

// With the log-probabilities of the `top` likeliest tokens.
serving::Delta TokenWithTop(int32_t token, size_t top) {
  serving::Delta delta = Token(token, "");
  delta.logprobs =
      serving::TokenLogprobs{.chosen = {}, .top = std::vector<serving::TokenLogprob>(top)};
  return delta;
}

// Bytes of a chunk, itself included.
size_t Bytes(const StreamChunk& chunk) {
  size_t bytes = sizeof(chunk) + chunk.text.capacity() + chunk.tokens.capacity() * 4;
  for (const auto* list : {&chunk.logprobs, &chunk.prompt_logprobs}) {
    bytes += list->capacity() * sizeof(serving::TokenLogprobs);
    for (const serving::TokenLogprobs& one : *list)
      bytes += one.top.capacity() * sizeof(serving::TokenLogprob);
  }
  return bytes;
}

TEST(StreamBufferTest, MergesInOrder) {
  StreamBuffer buffer(1, kPlenty);
  EXPECT_TRUE(buffer.empty());
  EXPECT_TRUE(buffer.Append(Token(1, "To")));
  EXPECT_TRUE(buffer.Append(Token(2, "")));
  serving::Delta delta = Token(3, " be");
  delta.logprobs = serving::TokenLogprobs{.chosen = {3, -0.5f}, .top = {{3, -0.5f}, {4, -2.0f}}};
  EXPECT_TRUE(buffer.Append(delta));
  EXPECT_FALSE(buffer.empty());

  const StreamChunk chunk = buffer.Take();
  EXPECT_EQ(chunk.text, "To be");
  EXPECT_THAT(chunk.tokens, ElementsAre(1, 2, 3));
  ASSERT_EQ(chunk.logprobs.size(), 1u);
  EXPECT_EQ(chunk.logprobs[0].top[1].token, 4);
  EXPECT_FALSE(chunk.completion.has_value());

  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.bytes(), 0u);
}

TEST(StreamBufferTest, ATokenWithoutTextIsSomething) {
  StreamBuffer buffer(1, kPlenty);
  EXPECT_TRUE(buffer.Append(Token(7, "")));
  EXPECT_FALSE(buffer.empty());
  EXPECT_THAT(buffer.Take().tokens, ElementsAre(7));
}

TEST(StreamBufferTest, ACompletionIsAChunkOfItsOwnOrTheEndOfOne) {
  StreamBuffer buffer(1, kPlenty);
  serving::Completion completion;
  completion.stop = "x";
  buffer.Complete(completion);
  EXPECT_FALSE(buffer.empty());
  EXPECT_EQ(buffer.Take().completion->stop, "x");

  buffer.Append(Token(1, "a"));
  buffer.Complete(completion);
  const StreamChunk chunk = buffer.Take();
  EXPECT_EQ(chunk.text, "a");
  EXPECT_TRUE(chunk.completion.has_value());
}

TEST(StreamBufferTest, ChoicesTakeTurns) {
  StreamBuffer buffer(3, kPlenty);
  buffer.Append(Token(1, "", 2));
  buffer.Append(Token(2, "", 0));
  buffer.Append(Token(3, "", 2));
  StreamChunk chunk = buffer.Take();
  EXPECT_EQ(chunk.choice, 2);
  EXPECT_THAT(chunk.tokens, ElementsAre(1, 3));
  buffer.Append(Token(4, "", 2));
  chunk = buffer.Take();
  EXPECT_EQ(chunk.choice, 0);
  chunk = buffer.Take();
  EXPECT_EQ(chunk.choice, 2);
  EXPECT_THAT(chunk.tokens, ElementsAre(4));
  EXPECT_TRUE(buffer.empty());
}

TEST(StreamBufferTest, CountsWhatItHoldsInMemory) {
  for (const size_t top : {0, 1, 20}) {
    StreamBuffer buffer(1, kPlenty);
    size_t tokens = 0;
    while (buffer.Append(TokenWithTop(1, top))) ++tokens;
    size_t held = 0, taken = 0;
    const size_t counted = buffer.bytes();
    while (!buffer.empty()) {
      const StreamChunk chunk = buffer.Take();
      held += Bytes(chunk);
      taken += chunk.tokens.size();
    }
    EXPECT_EQ(taken, tokens + 1);
    EXPECT_GT(counted, kPlenty);
    // A string's own room is not on the heap, and not counted.
    EXPECT_NEAR(static_cast<double>(counted), static_cast<double>(held), 0.01 * kPlenty) << top;
    EXPECT_EQ(buffer.bytes(), 0u);
  }
  StreamBuffer buffer(1, kPlenty);
  bool fits = true;
  for (int i = 0; i < 1000; ++i) {
    fits = buffer.AppendPrompt(
        0, std::vector<serving::TokenLogprobs>(
               7, {.chosen = {}, .top = std::vector<serving::TokenLogprob>(20)}));
  }
  EXPECT_FALSE(fits) << "those of a prompt count too";
}

TEST(StreamBufferTest, BoundsWhatIsHeldAndNotWhatWasTaken) {
  const std::string text(1000, 'a');
  StreamBuffer buffer(1, 2500);
  EXPECT_TRUE(buffer.Append(Token(1, text)));
  buffer.Take();
  EXPECT_TRUE(buffer.Append(Token(1, text)));
  EXPECT_FALSE(buffer.Append(Token(1, text + text)));
  buffer.Clear();
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_TRUE(buffer.Append(Token(1, text)));
}

TEST(StreamBufferTest, AMessageIsNoLargerThanAChunkAndOneToken) {
  StreamBuffer buffer(1, kPlenty);
  for (int i = 0; i < 1000; ++i) buffer.Append(TokenWithTop(i, 20));
  buffer.Complete({});
  int32_t next = 0;
  int chunks = 0;
  while (!buffer.empty()) {
    const StreamChunk chunk = buffer.Take();
    // A vector may have twice the room it needs.
    EXPECT_LT(Bytes(chunk), 2 * kChunkBytes);
    for (const int32_t token : chunk.tokens) EXPECT_EQ(token, next++);
    EXPECT_EQ(chunk.completion.has_value(), buffer.empty());
    ++chunks;
  }
  EXPECT_EQ(next, 1000);
  EXPECT_GT(chunks, 1);
}

}  // namespace
}  // namespace triptych::server::stream_buffer_test
