// Metrics of an engine since its creation, readable from other threads.
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

// A counter that one thread writes and any thread may read.
template <typename Number>
class Counter {
 public:
  void Add(Number more) { value_.store(value() + more, std::memory_order_relaxed); }
  Number value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Number> value_ = 0;
};

// Counts values by size. One thread adds. Any thread may read concurrently, and may see a value in
// the counts before it is in the sum.
class Histogram {
 public:
  static constexpr size_t kMostBounds = 20;

  // `bounds`: ascending, at most kMostBounds, must outlive this.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {}

  void Add(double value) {
    counts_[std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin()].Add(1);
    sum_.Add(value);
  }
  void Add(std::chrono::nanoseconds time) { Add(std::chrono::duration<double>(time).count()); }

  std::span<const double> bounds() const { return bounds_; }
  // Number of values in (bounds()[i - 1], bounds()[i]]; the last count is of values above all
  // bounds.
  int64_t count(size_t i) const { return counts_[i].value(); }
  // Number of all values.
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
// 1 KiB to 16 GiB.
inline constexpr std::array kBytesBounds = {0x1p10, 0x1p12, 0x1p14, 0x1p16, 0x1p18, 0x1p20, 0x1p22,
                                            0x1p24, 0x1p26, 0x1p28, 0x1p30, 0x1p32, 0x1p34};
static_assert(kSecondsBounds.size() <= Histogram::kMostBounds);
static_assert(kCountBounds.size() <= Histogram::kMostBounds);
static_assert(kBytesBounds.size() <= Histogram::kMostBounds);

struct EngineMetrics {
  // Per choice, from arrival: to first scheduled, to first token, to the end.
  Histogram queue_time{kSecondsBounds};
  Histogram time_to_first_token{kSecondsBounds};
  Histogram end_to_end_time{kSecondsBounds};
  Histogram inter_token_time{kSecondsBounds};  // per token, except a choice's first
  Histogram cache_bytes{kBytesBounds};         // per choice, used at its end
  // Per step: duration, number of sequences, number of tokens.
  Histogram step_time{kSecondsBounds};
  Histogram step_sequences{kCountBounds};
  Histogram step_tokens{kCountBounds};
  // Prompt tokens looked up in the prefix cache when first scheduled, and those of them that hit.
  Counter<int64_t> prefix_queries;
  Counter<int64_t> prefix_hits;
  // Drafted tokens that steps verified, and those of them that were accepted.
  Counter<int64_t> drafted_tokens;
  Counter<int64_t> accepted_tokens;
  // Tokens generated in a step after its sequence's first: each saved that sequence a step.
  Counter<int64_t> saved_steps;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_METRICS_H_
