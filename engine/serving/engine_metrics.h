// What an engine has measured since it was made, for other threads to read. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_ENGINE_METRICS_H_
#define TRIPTYCH_ENGINE_SERVING_ENGINE_METRICS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace triptych::serving {

// A count that one thread makes and any may read.
template <typename Number>
class Counter {
 public:
  void Add(Number more) { value_.store(value() + more, std::memory_order_relaxed); }
  Number value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Number> value_ = 0;
};

// Counts values by size. One thread adds, any may read meanwhile, and may then see a value in the
// counts and not yet in the sum.
class Histogram {
 public:
  static constexpr size_t kMostBounds = 20;

  // `bounds` ascend, are no more than the most, and outlive this.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {}

  void Add(double value) {
    counts_[std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin()].Add(1);
    sum_.Add(value);
  }
  void Add(std::chrono::nanoseconds time) { Add(std::chrono::duration<double>(time).count()); }

  std::span<const double> bounds() const { return bounds_; }
  // Of the values up to bounds()[i] and above the bound before; the last, above all bounds.
  int64_t count(size_t i) const { return counts_[i].value(); }
  // Of all values.
  int64_t total() const {
    int64_t total = 0;
    for (const Counter<int64_t>& count : counts_) total += count.value();
    return total;
  }
  double sum() const { return sum_.value(); }

 private:
  const std::span<const double> bounds_;
  std::array<Counter<int64_t>, kMostBounds + 1> counts_;
  Counter<double> sum_;
};

inline constexpr std::array kSecondsBounds = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                              0.025,  0.05,    0.1,    0.25,  0.5,    1.0,   2.5,
                                              5.0,    10.0,    25.0,   60.0,  150.0,  300.0};
inline constexpr std::array kCountBounds = {1.0,   2.0,   4.0,   8.0,    16.0,   32.0,  64.0,
                                            128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0};
// From a KiB to 16 GiB.
inline constexpr std::array kBytesBounds = {0x1p10, 0x1p12, 0x1p14, 0x1p16, 0x1p18, 0x1p20, 0x1p22,
                                            0x1p24, 0x1p26, 0x1p28, 0x1p30, 0x1p32, 0x1p34};
static_assert(kSecondsBounds.size() <= Histogram::kMostBounds);
static_assert(kCountBounds.size() <= Histogram::kMostBounds);
static_assert(kBytesBounds.size() <= Histogram::kMostBounds);

struct EngineMetrics {
  // Of each choice: arrival to first scheduled, to first token, to the end.
  Histogram queue_time{kSecondsBounds};
  Histogram time_to_first_token{kSecondsBounds};
  Histogram end_to_end_time{kSecondsBounds};
  Histogram inter_token_time{kSecondsBounds};  // of each token but a choice's first
  Histogram cache_bytes{kBytesBounds};         // of each choice, used at its end
  // Of each step: what it took, the sequences in it, and their tokens.
  Histogram step_time{kSecondsBounds};
  Histogram step_sequences{kCountBounds};
  Histogram step_tokens{kCountBounds};
  // Tokens of prompts that were looked up in the prefix cache when first scheduled; of these,
  // found.
  Counter<int64_t> prefix_queries;
  Counter<int64_t> prefix_hits;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_METRICS_H_
