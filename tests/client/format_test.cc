#include "client/format.h"

#include <gtest/gtest.h>

namespace triptych::client::format_test {
namespace {

TEST(FormatTest, Seconds) {
  EXPECT_EQ(FormatSeconds(0), "0.00 ms");
  EXPECT_EQ(FormatSeconds(0.00025), "0.25 ms");
  EXPECT_EQ(FormatSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(FormatSeconds(0.99999), "1.00 s");
  EXPECT_EQ(FormatSeconds(75), "75.00 s");
}

TEST(FormatTest, Saving) {
  EXPECT_EQ(FormatSaving(800, 100), "8.0x");
  EXPECT_EQ(FormatSaving(100, 100), "1.0x");
  EXPECT_EQ(FormatSaving(0, 0), "-");
}

TEST(FormatTest, OneLine) { EXPECT_EQ(OneLine("a\nb\x1b[1m\té"), "a b [1m é"); }

TEST(FormatTest, Bar) {
  EXPECT_EQ(FormatBar(0, 4), "");
  EXPECT_EQ(FormatBar(1e-9, 4), "▏");
  EXPECT_EQ(FormatBar(0.125, 4), "▌");
  EXPECT_EQ(FormatBar(0.5, 4), "██");
  EXPECT_EQ(FormatBar(1, 4), "████");
}

TEST(FormatTest, Labels) {
  EXPECT_EQ(Label(v1::ATTENTION_KIND_GQA), "GQA");
  EXPECT_EQ(Label(v1::SEQUENCE_STATE_PREFILL), "prefill");
  EXPECT_EQ(Label(v1::FINISH_REASON_STOP), "stop");
  EXPECT_EQ(Label(static_cast<v1::AttentionKind>(77)), "77");
}

TEST(FormatTest, Usage) {
  v1::Usage usage;
  usage.mutable_queue_time()->set_nanos(2'000'000);
  usage.mutable_prefill_time()->set_seconds(1);
  EXPECT_DOUBLE_EQ(TimeToFirstToken(usage), 1.002);

  EXPECT_EQ(FormatDecodeRate(usage), "-");
  usage.mutable_decode_time()->set_nanos(500'000'000);
  usage.set_generated_tokens(1);
  EXPECT_EQ(FormatDecodeRate(usage), "-");
  usage.set_generated_tokens(101);
  EXPECT_EQ(FormatDecodeRate(usage), "200.0");
}

}  // namespace
}  // namespace triptych::client::format_test
