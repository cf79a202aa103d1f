#include "server/core/stream_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Delta Token(int32_t token, const std::string& text) {
  return {.token = token, .logprobs = {}, .text = text};
}

TEST(StreamBufferTest, MergesInOrder) {
  StreamBuffer buffer(1000);
  EXPECT_TRUE(buffer.empty());
  EXPECT_TRUE(buffer.Append(Token(1, "To")));
  EXPECT_TRUE(buffer.Append(Token(2, "")));
  Delta delta = Token(3, " be");
  delta.logprobs = TokenLogprobs{.chosen = {3, -0.5f}, .top = {{3, -0.5f}, {4, -2.0f}}};
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
  EXPECT_THAT(buffer.Take().tokens, IsEmpty());
}

TEST(StreamBufferTest, ATokenWithoutTextIsSomething) {
  StreamBuffer buffer(1000);
  EXPECT_TRUE(buffer.Append(Token(7, "")));
  EXPECT_FALSE(buffer.empty());
  EXPECT_THAT(buffer.Take().tokens, ElementsAre(7));
}

TEST(StreamBufferTest, ACompletionIsAChunkOfItsOwnOrTheEndOfOne) {
  StreamBuffer buffer(1000);
  Completion completion;
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

TEST(StreamBufferTest, BoundsWhatIsHeldAndNotWhatWasTaken) {
  StreamBuffer buffer(14);
  EXPECT_TRUE(buffer.Append(Token(1, "abc")));  // 7 bytes with the token's 4
  EXPECT_TRUE(buffer.Append(Token(1, "abc")));  // 14
  EXPECT_FALSE(buffer.Append(Token(1, "")));    // 18
  EXPECT_EQ(buffer.bytes(), 18u);
  buffer.Take();
  EXPECT_TRUE(buffer.Append(Token(1, "abc")));
  buffer.Clear();
  EXPECT_TRUE(buffer.empty());

  Delta delta = Token(1, "");
  delta.logprobs = TokenLogprobs{.chosen = {}, .top = {{}, {}}};
  EXPECT_FALSE(buffer.Append(delta)) << "log-probabilities count";
}

}  // namespace
}  // namespace triptych
