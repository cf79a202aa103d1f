// Measured limits of this machine, for benchmarks of kernels and for planning.
#ifndef TRIPTYCH_ENGINE_KERNELS_LIMITS_H_
#define TRIPTYCH_ENGINE_KERNELS_LIMITS_H_

#include <cstddef>

#include "engine/base/formats.h"
#include "engine/kernels/large_pages.h"
#include "engine/kernels/thread_pool.h"

namespace triptych::kernels {

struct Limits {
  double read_bytes = 0;      // per second, from memory beyond the caches
  double float32_flops = 0;   // per second; a multiply-add counts as two
  double bfloat16_flops = 0;  // the same for bfloat16 products summed in float32
  // The same for weights of these formats and 8-bit inputs, by the kernels' instructions.
  double int8_flops = 0;
  double int4_flops = 0;
};

// The limit of products with weights of this format, in FLOP per second.
double PeakFlops(const Limits& limits, WeightFormat format);

// On a shared machine the limits vary over time. To compare code with them, time it in turn with
// FlopsPerSecond and ReadProbe, which take a few milliseconds. Both use all of a pool's threads at
// once.

// The current rate of products with weights of this format.
double FlopsPerSecond(ThreadPool& pool, WeightFormat format);

// Measures reads from memory beyond the caches.
class ReadProbe {
 public:
  explicit ReadProbe(ThreadPool& pool);

  // Reads one part of the memory, 64 MiB; the next call reads the next part.
  double BytesPerSecond();

 private:
  ThreadPool& pool_;
  LargePages memory_;
  size_t part_ = 0;
};

// Time in which a word passes from one thread to another and back. It is longer if their processors
// are far apart, which may change during a run on a virtual machine.
double RoundTripSeconds();

// Measures the limits of all of the pool's threads together, with the best instructions of this
// machine: the best of many short runs. Takes about four seconds.
Limits MeasureLimits(ThreadPool& pool);

// Least seconds to read `bytes` and compute `flops`. The roofline is flops divided by this:
// min(peak, read_bytes * flops / bytes). `peak` is one of the limits above.
double LeastSeconds(const Limits& limits, double peak, double bytes, double flops);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_LIMITS_H_
