#include "tests/bench/limits.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

// Compiled once for each instruction set; the best one is chosen at run time. Sums live in arrays
// of vectors, which vectors of unknown length do not allow.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_WANT_AVX3_DL  // the first set that may have bfloat16 products
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/limits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace triptych {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

constexpr int kSums = 12;  // enough to hide the latency, and they fit in 16 registers

// The sum of `sums` as a number that the compiler must have computed.
HWY_INLINE float Reduce(const FloatVec (&sums)[kSums]) {
  FloatVec total = sums[0];
  for (int i = 1; i < kSums; ++i) total = hn::Add(total, sums[i]);
  return hn::GetLane(hn::SumOfLanes(FloatTag(), total));
}

// All different: sums of the same numbers would be computed once.
HWY_INLINE void Start(FloatVec (&sums)[kSums], float number) {
  HWY_UNROLL(12)
  for (int i = 0; i < kSums; ++i) sums[i] = hn::Set(FloatTag(), number * static_cast<float>(i));
}

// The sum of `count` numbers, but for a few of the last.
float Read(const float* data, int64_t count) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sums[kSums];
  Start(sums, 0);
  for (int64_t i = 0; i + kSums * lanes <= count; i += kSums * lanes) {
    HWY_UNROLL(12)
    for (int j = 0; j < kSums; ++j) {
      sums[j] = hn::Add(sums[j], hn::LoadU(d, data + i + j * lanes));
    }
  }
  return Reduce(sums);
}

// `steps` multiply-adds in each lane of kSums vectors; adds the operations done to `flops`.
float MultiplyFloat32(int64_t steps, const float* factors, int64_t& flops) {
  const FloatTag d;
  const FloatVec a = hn::Set(d, factors[0]), b = hn::Set(d, factors[1]);
  FloatVec sums[kSums];
  Start(sums, factors[0]);
  for (int64_t step = 0; step < steps; ++step) {
    HWY_UNROLL(12)
    for (int j = 0; j < kSums; ++j) sums[j] = hn::MulAdd(a, b, sums[j]);
  }
  flops += steps * kSums * static_cast<int64_t>(hn::Lanes(d)) * 2;
  return Reduce(sums);
}

#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
// Not every processor of these sets has it, so the compiler must not know the instruction.
HWY_INLINE FloatVec AddBFloat16Products(FloatVec sum, FloatVec a, FloatVec b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
#endif

float MultiplyBFloat16(int64_t steps, const float* factors, int64_t& flops) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
  if (__builtin_cpu_supports("avx512bf16")) {
    const FloatTag d;
    const FloatVec a = hn::Set(d, factors[0]), b = hn::Set(d, factors[1]);
    FloatVec sums[kSums];
    Start(sums, factors[0]);
    for (int64_t step = 0; step < steps; ++step) {
      HWY_UNROLL(12)
      for (int j = 0; j < kSums; ++j) sums[j] = AddBFloat16Products(sums[j], a, b);
    }
    flops += steps * kSums * static_cast<int64_t>(hn::Lanes(d)) * 4;
    return Reduce(sums);
  }
#endif
  return MultiplyFloat32(steps, factors, flops);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych {
namespace {

HWY_EXPORT(Read);
HWY_EXPORT(MultiplyFloat32);
HWY_EXPORT(MultiplyBFloat16);

std::atomic<float> sink;  // results go here, so that they are computed

// The shortest of the runs within `duration` seconds: on a busy machine, one that had every CPU to
// itself if runs are shorter than what a thread gets at a time.
template <typename Run>
double BestSeconds(double duration, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto begin = Clock::now();
  double best = 1e30;
  while (seconds_since(begin) < duration) {
    const auto start = Clock::now();
    run();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

double ReadBytesPerSecond(ThreadPool& pool) {
  constexpr size_t kBytes = size_t{1} << 29;  // beyond any cache, a part at a time
  constexpr size_t kPage = size_t{1} << 21;
  constexpr int64_t kParts = 8, kTasks = 8;  // a thread reads on, not every other page
  constexpr int64_t kCount = kBytes / sizeof(float) / kParts / kTasks;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  const std::unique_ptr<float, Free> data(static_cast<float*>(std::aligned_alloc(kPage, kBytes)));
  if (!data) throw std::bad_alloc();
#if defined(__linux__)
  madvise(data.get(), kBytes, MADV_HUGEPAGE);
#endif
  std::memset(data.get(), 0, kBytes);
  const auto read = HWY_DYNAMIC_DISPATCH(Read);
  int64_t part = 0;
  const double seconds = BestSeconds(2, [&] {
    pool.Run(kTasks, [&](int64_t task) {
      sink.store(read(data.get() + (part * kTasks + task) * kCount, kCount),
                 std::memory_order_relaxed);
    });
    part = (part + 1) % kParts;
  });
  return static_cast<double>(kBytes) / kParts / seconds;
}

template <typename Multiply>
double FlopsPerSecond(ThreadPool& pool, const Multiply& multiply) {
  // As pairs of bfloat16, zero and the number.
  const volatile float factors[] = {0.5f, 0.25f};
  const float values[] = {factors[0], factors[1]};
  constexpr int64_t kSteps = 1 << 13;
  const int64_t tasks = 32 * pool.threads();
  int64_t flops = 0;  // of a task
  multiply(kSteps, values, flops);
  const double seconds = BestSeconds(0.5, [&] {
    pool.Run(tasks, [&](int64_t) {
      int64_t ignored = 0;
      sink.store(multiply(kSteps, values, ignored), std::memory_order_relaxed);
    });
  });
  return static_cast<double>(flops * tasks) / seconds;
}

}  // namespace

Limits MeasureLimits(ThreadPool& pool) {
  return {.read_bytes = ReadBytesPerSecond(pool),
          .float32_flops = FlopsPerSecond(pool, HWY_DYNAMIC_DISPATCH(MultiplyFloat32)),
          .bfloat16_flops = FlopsPerSecond(pool, HWY_DYNAMIC_DISPATCH(MultiplyBFloat16))};
}

double LeastSeconds(const Limits& limits, double peak, double bytes, double flops) {
  return std::max(bytes / limits.read_bytes, flops / peak);
}

}  // namespace triptych
#endif  // HWY_ONCE
