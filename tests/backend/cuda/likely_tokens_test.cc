#include "engine/backend/cuda/likely_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "engine/backend/cuda/device_memory.h"
#include "tests/backend/cuda/cuda_test.h"
#include "tests/support/likely_tokens.h"

namespace triptych::cuda::likely_tokens_test {
namespace {

using testing::ElementsAreArray;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class DeviceLikelyTokensTest : public CudaTest {
 protected:
  struct Found {
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    double log_sum_exp = 0;
    double weight_sum = 0;

    bool operator==(const Found&) const = default;
  };

  // The likely tokens of rows [rows, vocab], with weights at ScaleOf(row).
  static std::vector<Found> Find(const std::vector<float>& logits, int64_t vocab) {
    const auto rows = static_cast<int64_t>(logits.size()) / vocab;
    const int count = LikelyTokenCount(vocab);
    const Stream stream = MakeStream();
    const DeviceArray<float> device_logits(logits), found_logits(rows * count);
    const DeviceArray<int32_t> found_tokens(rows * count);
    const DeviceArray<double> sums(rows), weights(rows);
    std::vector<float> scales;
    for (int64_t row = 0; row < rows; ++row) scales.push_back(ScaleOf(row));
    const DeviceArray<float> device_scales(scales);
    Check(cudaDeviceSynchronize());  // copies from pageable memory can still be running
    FindLikelyTokens(device_logits.get(), device_scales.get(), static_cast<int>(vocab),
                     static_cast<int>(rows),
                     {.tokens = found_tokens.get(),
                      .logits = found_logits.get(),
                      .log_sum_exps = sums.get(),
                      .weight_sums = weights.get()},
                     stream.get());
    Check(cudaStreamSynchronize(stream.get()));
    std::vector<Found> all;
    for (int64_t row = 0; row < rows; ++row) {
      all.push_back({.tokens = Read(found_tokens.get() + row * count, count),
                     .logits = Read(found_logits.get() + row * count, count),
                     .log_sum_exp = Read(sums.get() + row, 1)[0],
                     .weight_sum = Read(weights.get() + row, 1)[0]});
    }
    return all;
  }

  static void ExpectRight(const std::vector<float>& logits, int64_t vocab) {
    const std::vector<Found> all = Find(logits, vocab);
    for (size_t row = 0; row < all.size(); ++row) {
      SCOPED_TRACE(testing::Message() << "vocabulary of " << vocab << ", row " << row);
      const std::span<const float> of_row = std::span(logits).subspan(row * vocab, vocab);
      const LikelyRow expected(of_row, LikelyTokenCount(vocab), ScaleOf(row));
      ASSERT_THAT(all[row].tokens, ElementsAreArray(expected.tokens));
      ASSERT_THAT(all[row].logits, ElementsAreArray(expected.logits));
      if (std::isfinite(expected.log_sum_exp)) {
        // Exponentials are float32, their sum is float64.
        ASSERT_NEAR(all[row].log_sum_exp, expected.log_sum_exp, 1e-5);
        ASSERT_NEAR(all[row].weight_sum, expected.weight_sum, 1e-5 * expected.weight_sum);
      } else {
        ASSERT_EQ(all[row].log_sum_exp, expected.log_sum_exp);
        ASSERT_EQ(all[row].weight_sum, 0);
      }
    }
  }

  static std::vector<float> Normal(int64_t size, uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal(0, 4);
    std::vector<float> logits(size);
    for (float& logit : logits) logit = normal(generator);
    return logits;
  }

 private:
  static float ScaleOf(int64_t row) { return 1 / (1.0f + 0.25f * static_cast<float>(row % 4)); }

  template <typename T>
  static std::vector<T> Read(const T* from, int64_t count) {
    std::vector<T> values(count);
    Check(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
};

TEST_F(DeviceLikelyTokensTest, AreThoseOfASortedRow) {
  for (const int64_t vocab : {1, 2, 127, 128, 129, 511, 513, 5000, kEmulated ? 9000 : 200000}) {
    ExpectRight(Normal(3 * vocab, static_cast<uint64_t>(vocab)), vocab);
  }
}

TEST_F(DeviceLikelyTokensTest, EqualLogitsAreTakenByLowerId) {
  constexpr int64_t kVocab = 3000;
  std::vector<float> sevenths(kVocab), equals(kVocab, 1.5f);  // more equal logits than candidates
  for (int64_t i = 0; i < kVocab; ++i) sevenths[i] = static_cast<float>(i % 7);
  equals[2900] = 2;
  std::vector<float> logits;
  for (const std::vector<float>* const row : {&sevenths, &equals, &equals, &sevenths}) {
    logits.insert(logits.end(), row->begin(), row->end());
  }
  ExpectRight(logits, kVocab);
}

TEST_F(DeviceLikelyTokensTest, ImpossibleTokensComeLast) {
  constexpr int64_t kVocab = 2000;
  const auto with = [](std::vector<float> logits, float value, int64_t begin, int64_t end) {
    std::fill(logits.begin() + begin, logits.begin() + end, value);
    return logits;
  };
  const std::vector<float> normal = Normal(kVocab, 5);
  ExpectRight(with(normal, kNaN, 3, 1000), kVocab);
  ExpectRight(with(normal, -kInf, 50, kVocab), kVocab);
  ExpectRight(with(normal, kInf, 70, 72), kVocab);
  ExpectRight(with(normal, kNaN, 0, kVocab), kVocab);
  ExpectRight(with(normal, -kInf, 0, kVocab), kVocab);
}

TEST_F(DeviceLikelyTokensTest, ARowIsTheSameBitsAmongOthers) {
  constexpr int64_t kVocab = 1500, kRows = 9;
  const std::vector<float> logits = Normal(kRows * kVocab, 11);
  const std::vector<Found> together = Find(logits, kVocab);
  for (int64_t row = 0; row < kRows; row += 4) {  // the rows with row 0's scale
    const auto first = logits.begin() + row * kVocab;
    EXPECT_EQ(Find({first, first + kVocab}, kVocab)[0], together[row]) << "row " << row;
  }
}

}  // namespace
}  // namespace triptych::cuda::likely_tokens_test
