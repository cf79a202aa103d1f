#include "engine/kernels/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>

// Compiled once for each instruction set; the best one is chosen at run time. Sums live in arrays
// of vectors, which vectors of unknown length do not allow.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_WANT_AVX3_DL  // the first set that may have bfloat16 products
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/limits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace triptych {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

constexpr int kSums = 12;  // enough to hide the latency, and they fit in 16 registers

// The sum of `sums` as a number that the compiler must have computed.
template <int kCount>
HWY_INLINE float Reduce(const FloatVec (&sums)[kCount]) {
  FloatVec total = sums[0];
  for (int i = 1; i < kCount; ++i) total = hn::Add(total, sums[i]);
  return hn::GetLane(hn::SumOfLanes(FloatTag(), total));
}

// All different: sums of the same numbers would be computed once.
HWY_INLINE void Start(FloatVec (&sums)[kSums], float number) {
  HWY_UNROLL(12)
  for (int i = 0; i < kSums; ++i) sums[i] = hn::Set(FloatTag(), number * static_cast<float>(i));
}

// The sum of `count` numbers, but for a few of the last: in a few streams, each fetched ahead, as
// the kernels read weights.
float Read(const float* data, int64_t count) {
  constexpr int kStreams = 4;
  constexpr int64_t kLine = kLineBytes / sizeof(float);
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t stream = count / kStreams;
  FloatVec sums[kStreams];
  HWY_UNROLL(4)
  for (int s = 0; s < kStreams; ++s) sums[s] = hn::Zero(d);
  for (int64_t i = 0; i + kLine <= stream; i += kLine) {
    HWY_UNROLL(4)
    for (int s = 0; s < kStreams; ++s) {
      const float* line = data + s * stream + i;
      Prefetch(line, 1024);
      for (int64_t j = 0; j < kLine; j += lanes) {
        sums[s] = hn::Add(sums[s], hn::LoadU(d, line + j));
      }
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

// Pairs of products of 16-bit integers, summed in 32 bits.
float MultiplyIntegers(int64_t steps, const float* factors, int64_t& flops) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<int32_t> d;
  const hn::RepartitionToNarrow<decltype(d)> narrow;
  const auto a = hn::Set(narrow, static_cast<int16_t>(factors[0] * 4));
  const auto b = hn::Set(narrow, static_cast<int16_t>(factors[1] * 4));
  using IntVec = hn::Vec<decltype(d)>;
  IntVec sums[kSums];
  HWY_UNROLL(12)
  for (int i = 0; i < kSums; ++i) sums[i] = hn::Set(d, i * static_cast<int>(factors[0] * 4));
  for (int64_t step = 0; step < steps; ++step) {
    HWY_UNROLL(12)
    for (int j = 0; j < kSums; ++j) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
      asm("vpdpwssd %2, %1, %0" : "+v"(sums[j].raw) : "v"(a.raw), "v"(b.raw));
#else
      // Unlike the kernels' products, these would otherwise be all the same one.
      auto product = a;
      asm volatile("" : "+x"(product.raw));
      IntVec unused = sums[j];
      sums[j] = hn::ReorderWidenMulAccumulate(d, product, b, sums[j], unused);
#endif
    }
  }
  IntVec total = sums[0];
  for (int i = 1; i < kSums; ++i) total = hn::Add(total, sums[i]);
  flops += steps * kSums * static_cast<int64_t>(hn::Lanes(d)) * 4;
  return static_cast<float>(hn::GetLane(hn::SumOfLanes(d, total)));
#else
  return MultiplyFloat32(steps, factors, flops);
#endif
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
HWY_EXPORT(MultiplyIntegers);

constexpr size_t kReadBytes = size_t{1} << 29;  // beyond any cache
constexpr size_t kPartBytes = size_t{1} << 26;

std::atomic<float> sink;  // results go here, so that they are computed

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The shortest of the runs within `duration` seconds: on a busy machine, one that had every CPU to
// itself if runs are shorter than what a thread gets at a time.
template <typename Run>
double BestSeconds(double duration, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double best = std::numeric_limits<double>::infinity();
  while (SecondsSince(begin) < duration) {
    const auto start = Clock::now();
    run();
    best = std::min(best, SecondsSince(start));
  }
  return best;
}

template <typename Multiply>
double FlopsPerSecond(ThreadPool& pool, const Multiply& multiply) {
  // As pairs of bfloat16, zero and the number.
  const volatile float factors[] = {0.5f, 0.25f};
  const float values[] = {factors[0], factors[1]};
  constexpr int64_t kSteps = 1 << 13;
  const int64_t tasks = int64_t{32} * pool.threads();
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

double PeakFlops(const Limits& limits, WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return limits.float32_flops;
    case WeightFormat::kBFloat16:
      return limits.bfloat16_flops;
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return limits.integer_flops;
  }
  return 0;
}

ReadProbe::ReadProbe(ThreadPool& pool) : pool_(pool), memory_(kReadBytes) {
  std::memset(memory_.data(), 0, kReadBytes);  // pages of its own
}

double ReadProbe::BytesPerSecond() {
  constexpr int64_t kTasks = 8;  // a thread reads on, not every other page
  constexpr int64_t kCount = kPartBytes / sizeof(float) / kTasks;
  const auto* part = reinterpret_cast<const float*>(memory_.data() + part_ * kPartBytes);
  part_ = (part_ + 1) % (kReadBytes / kPartBytes);
  const auto read = HWY_DYNAMIC_DISPATCH(Read);
  const auto start = std::chrono::steady_clock::now();
  pool_.Run(kTasks, [&](int64_t task) {
    sink.store(read(part + task * kCount, kCount), std::memory_order_relaxed);
  });
  return static_cast<double>(kPartBytes) / SecondsSince(start);
}

double RoundTripSeconds() {
  constexpr int kTrips = 100'000;
  std::atomic<int> word = 0;  // odd: on its way there
  const auto await = [&](int value) {
    while (word.load(std::memory_order_acquire) != value) {
    }
  };
  std::thread there([&] {
    for (int i = 0; i < kTrips; ++i) {
      await(2 * i + 1);
      word.store(2 * i + 2, std::memory_order_release);
    }
  });
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTrips; ++i) {
    word.store(2 * i + 1, std::memory_order_release);
    await(2 * i + 2);
  }
  const double seconds = SecondsSince(start);
  there.join();
  return seconds / kTrips;
}

Limits MeasureLimits(ThreadPool& pool) {
  ReadProbe probe(pool);
  return {.read_bytes = kPartBytes / BestSeconds(2, [&] { probe.BytesPerSecond(); }),
          .float32_flops = FlopsPerSecond(pool, HWY_DYNAMIC_DISPATCH(MultiplyFloat32)),
          .bfloat16_flops = FlopsPerSecond(pool, HWY_DYNAMIC_DISPATCH(MultiplyBFloat16)),
          .integer_flops = FlopsPerSecond(pool, HWY_DYNAMIC_DISPATCH(MultiplyIntegers))};
}

double LeastSeconds(const Limits& limits, double peak, double bytes, double flops) {
  return std::max(bytes / limits.read_bytes, flops / peak);
}

}  // namespace triptych
#endif  // HWY_ONCE
