// What this machine can do at most, measured: what kernels are held against, and speed is
// planned with.
#ifndef TRIPTYCH_ENGINE_KERNELS_LIMITS_H_
#define TRIPTYCH_ENGINE_KERNELS_LIMITS_H_

#include <cstddef>

#include "engine/base/formats.h"
#include "engine/kernels/large_pages.h"
#include "engine/kernels/thread_pool.h"

namespace triptych::kernels {

struct Limits {
  double read_bytes = 0;      // a second, from memory beyond the caches
  double float32_flops = 0;   // a second, multiply-adds counted as two
  double bfloat16_flops = 0;  // the same of bfloat16 products, summed in float32
  // The same of such weights and inputs of 8 bits, by the instructions that the kernels have.
  double int8_flops = 0;
  double int4_flops = 0;
};

// Of products with such weights, a second.
double PeakFlops(const Limits& limits, WeightFormat format);

// On a machine that is shared, limits change from one moment to the next: what is held against them
// is timed beside FlopsPerSecond and ReadProbe, which take a few milliseconds. All of a pool's
// threads compute and read together.

// Of products with such weights, at this moment.
double FlopsPerSecond(ThreadPool& pool, WeightFormat format);

// Reads memory beyond the caches.
class ReadProbe {
 public:
  explicit ReadProbe(ThreadPool& pool);

  // Of one part of the memory, 64 MiB, then of the next.
  double BytesPerSecond();

 private:
  ThreadPool& pool_;
  LargePages memory_;
  size_t part_ = 0;
};

// How long a word takes from one thread to another and back: longer where their processors are far
// apart, which on a virtual machine may change while it runs.
double RoundTripSeconds();

// Of all of the pool's threads together, by the best instructions of this machine: the best of
// many short runs. Takes about four seconds.
Limits MeasureLimits(ThreadPool& pool);

// The least seconds for so much work: the roofline is flops / that, min(peak, read_bytes *
// flops / bytes). `peak` is one of the limits above.
double LeastSeconds(const Limits& limits, double peak, double bytes, double flops);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_LIMITS_H_
