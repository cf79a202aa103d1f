#include "client/format.h"

#include <gtest/gtest.h>

#include <limits>

namespace triptych::client {
namespace {

TEST(FormatTest, Count) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(-1000), "-1,000");
  EXPECT_EQ(FormatCount(-999), "-999");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(FormatTest, Decimal) {
  EXPECT_EQ(FormatDecimal(0, 1), "0.0");
  EXPECT_EQ(FormatDecimal(-1234.56, 1), "-1,234.6");
  EXPECT_EQ(FormatDecimal(-123.4, 3), "-123.400");
  EXPECT_EQ(FormatDecimal(1234567.891, 2), "1,234,567.89");
}

TEST(FormatTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "8,192.0 PiB");
}

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
}  // namespace triptych::client
