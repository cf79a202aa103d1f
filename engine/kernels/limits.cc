#include "engine/kernels/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/limits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/base/bfloat16.h"
#include "engine/kernels/prefetch.h"
#include "engine/kernels/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

constexpr int64_t kStepsAtOnce = 128;

// The sum of all lanes of `sums`, so that the compiler cannot drop their computation.
template <class D, int kCount>
HWY_INLINE float Reduce(D d, const hn::Vec<D> (&sums)[kCount]) {
  hn::Vec<D> total = sums[0];
  for (int i = 1; i < kCount; ++i) total = hn::Add(total, sums[i]);
  return static_cast<float>(hn::GetLane(hn::SumOfLanes(d, total)));
}

// Sums `count` numbers, except a few of the last, in several prefetched streams, as the kernels
// read weights.
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
  return Reduce(d, sums);
}

// The types below define how products are added to an accumulator. kFlops: operations per lane.
// kSums: accumulators that hide the latency and fit in 16 registers.
struct Float32 {
  using Tag = FloatTag;
  static constexpr int64_t kFlops = 2;
  static constexpr int kSums = 12;
  static HWY_INLINE FloatVec Factor(float value) { return hn::Set(Tag(), value); }
  static HWY_INLINE FloatVec Add(FloatVec sum, FloatVec a, FloatVec b) {
    return hn::MulAdd(a, b, sum);
  }
};

#if TRIPTYCH_AVX3_DL
struct BFloat16 : Float32 {
  static constexpr int64_t kFlops = 4;
  static HWY_INLINE FloatVec Add(FloatVec sum, FloatVec a, FloatVec b) {
    return AddBFloat16Products(sum, a, b);
  }
};
#endif

// Products of integer weights and bytes, as in the kernels.
#if TRIPTYCH_ADDS_QUADS
struct QuadsAtOnce {
  using Tag = hn::ScalableTag<int32_t>;
  using Vec = hn::Vec<Tag>;
  static constexpr int64_t kFlops = 8;
  static constexpr int kSums = 12;
  static HWY_INLINE Vec Factor(float value) { return hn::Set(Tag(), value > 0.3f ? 1 : 0); }
  static HWY_INLINE Vec Add(Vec sum, Vec a, Vec b) { return AddByteProducts(sum, a, b); }
};
#endif

#if TRIPTYCH_ADDS_BYTE_PAIRS
struct QuadsInPairs {
  using Tag = hn::ScalableTag<int16_t>;
  using Vec = hn::Vec<Tag>;
  static constexpr int64_t kFlops = 4;
  static constexpr int kSums = 8;
  static HWY_INLINE Vec Factor(float value) { return hn::Set(Tag(), value > 0.3f ? 1 : 0); }
  static HWY_INLINE Vec Add(Vec sum, Vec a, Vec b) { return AddBytePairProducts(sum, a, b); }
};
#endif

#if TRIPTYCH_ADDS_PAIRS
struct Pairs {
  using Tag = hn::ScalableTag<int32_t>;
  using ShortTag = hn::RepartitionToNarrow<Tag>;
  [[maybe_unused]] static constexpr int64_t kFlops = 4;
  [[maybe_unused]] static constexpr int kSums = 8;
  static HWY_INLINE hn::Vec<ShortTag> Factor(float value) {
    return hn::Set(ShortTag(), static_cast<int16_t>(value * 4));
  }
  static HWY_INLINE hn::Vec<Tag> Add(hn::Vec<Tag> sum, hn::Vec<ShortTag> a, hn::Vec<ShortTag> b) {
#if HWY_TARGET != HWY_AVX2
    // Unlike in the kernels, all products are equal: without this the compiler would compute one.
    asm volatile("" : "+x"(a.raw));
#endif
    return AddPairProducts(sum, a, b);
  }
};
#else
using Pairs = Float32;  // the same number of products at a time
#endif

#if TRIPTYCH_AVX3_DL
using Int8 = QuadsAtOnce;
using Int4 = QuadsAtOnce;
#else
using Int8 = Pairs;
#if TRIPTYCH_ADDS_BYTE_PAIRS
using Int4 = QuadsInPairs;
#else
using Int4 = Pairs;
#endif
#endif

// Adds products to the lanes of kSums vectors, `steps` times; adds the operations done to `flops`.
template <class Products>
float Multiply(int64_t steps, const float* factors, int64_t& flops) {
  constexpr int kSums = Products::kSums;
  const typename Products::Tag d;
  using Lane = hn::TFromD<typename Products::Tag>;
  const auto a = Products::Factor(factors[0]), b = Products::Factor(factors[1]);
  hn::Vec<typename Products::Tag> sums[kSums];
  // All different: the compiler would compute equal accumulators once.
  HWY_UNROLL(12)
  for (int i = 0; i < kSums; ++i) {
    sums[i] = hn::Set(d, static_cast<Lane>(4 * factors[0]) * static_cast<Lane>(i));
  }
  for (int64_t step = 0; step < steps; step += kStepsAtOnce) {
    // Local: compilers may store accumulators that outlive the loop in each of its steps.
    hn::Vec<typename Products::Tag> some[kSums];
    HWY_UNROLL(12)
    for (int i = 0; i < kSums; ++i) some[i] = sums[i];
    for (int64_t one = 0; one < kStepsAtOnce; ++one) {
      HWY_UNROLL(12)
      for (int i = 0; i < kSums; ++i) some[i] = Products::Add(some[i], a, b);
    }
    HWY_UNROLL(12)
    for (int i = 0; i < kSums; ++i) sums[i] = some[i];
  }
  flops += steps * kSums * static_cast<int64_t>(hn::Lanes(d)) * Products::kFlops;
  return Reduce(d, sums);
}

using Multiplier = float (*)(int64_t steps, const float* factors, int64_t& flops);

Multiplier MultiplierOf(WeightFormat format) {
#if TRIPTYCH_SOME_ADD_BYTES
  if (IsInteger(format) && HasByteProducts()) return Multiply<QuadsAtOnce>;
#endif
  switch (format) {
    case WeightFormat::kFloat32:
      return Multiply<Float32>;
    case WeightFormat::kBFloat16:
#if TRIPTYCH_AVX3_DL
      if (HasBFloat16Products()) return Multiply<BFloat16>;
#endif
      return Multiply<Float32>;
    case WeightFormat::kInt8:
      return Multiply<Int8>;
    case WeightFormat::kInt4:
      return Multiply<Int4>;
  }
  __builtin_unreachable();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {

HWY_EXPORT(Read);
HWY_EXPORT(MultiplierOf);

constexpr size_t kReadBytes = size_t{1} << 29;  // beyond any cache
constexpr size_t kPartBytes = size_t{1} << 26;

std::atomic<float> sink;  // results go here, so that they are computed

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The best result of the runs within `duration` seconds. If runs are shorter than a time slice,
// some run has every CPU to itself even on a busy machine.
template <typename Run>
double Best(double duration, const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  double best = 0;
  while (SecondsSince(start) < duration) best = std::max(best, run());
  return best;
}

}  // namespace

double PeakFlops(const Limits& limits, WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return limits.float32_flops;
    case WeightFormat::kBFloat16:
      return limits.bfloat16_flops;
    case WeightFormat::kInt8:
      return limits.int8_flops;
    case WeightFormat::kInt4:
      return limits.int4_flops;
  }
  return 0;
}

double FlopsPerSecond(ThreadPool& pool, WeightFormat format) {
  // Read as a pair of bfloat16, each is zero and the number itself.
  const volatile float factors[] = {0.5f, 0.25f};
  const float values[] = {factors[0], factors[1]};
  constexpr int64_t kSteps = 1 << 15;
  const auto multiply = HWY_DYNAMIC_DISPATCH(MultiplierOf)(format);
  const int64_t tasks = int64_t{32} * pool.threads();
  std::atomic<int64_t> all = 0;
  const auto start = std::chrono::steady_clock::now();
  pool.Run(tasks, [&](int64_t) {
    int64_t flops = 0;
    sink.store(multiply(kSteps, values, flops), std::memory_order_relaxed);
    all += flops;
  });
  return static_cast<double>(all) / SecondsSince(start);
}

ReadProbe::ReadProbe(ThreadPool& pool) : pool_(pool), memory_(kReadBytes) {
  std::memset(memory_.data(), 0, kReadBytes);  // so that each page is backed by its own memory
}

double ReadProbe::BytesPerSecond() {
  constexpr int64_t kTasks = 8;  // large parts, so that each thread reads contiguous pages
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
  const auto flops = [&](WeightFormat format) {
    return Best(0.5, [&] { return FlopsPerSecond(pool, format); });
  };
  return {.read_bytes = Best(2, [&] { return probe.BytesPerSecond(); }),
          .float32_flops = flops(WeightFormat::kFloat32),
          .bfloat16_flops = flops(WeightFormat::kBFloat16),
          .int8_flops = flops(WeightFormat::kInt8),
          .int4_flops = flops(WeightFormat::kInt4)};
}

double LeastSeconds(const Limits& limits, double peak, double bytes, double flops) {
  return std::max(bytes / limits.read_bytes, flops / peak);
}

}  // namespace triptych::kernels
#endif  // HWY_ONCE
