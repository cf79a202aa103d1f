// Emulated GPU: its limits, which tests set, and its allocated memory.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_EMULATION_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_EMULATION_H_

#include <cstdint>
#include <limits>

namespace triptych::emulation {

struct Limits {
  int64_t shared_bytes = int64_t{227} << 10;  // per thread block, as on Hopper
  int64_t memory_bytes = int64_t{64} << 30;   // cudaMalloc fails above it
  int multiprocessors = 132;
  // Launches of graphs until the GPU fails for good.
  int64_t graph_launches = std::numeric_limits<int64_t>::max();
};

// The current limits.
const Limits& CurrentLimits();

// Sets limits during its lifetime. A model keeps the limits under which it was made.
class LimitsScope {
 public:
  explicit LimitsScope(const Limits& limits);
  ~LimitsScope();
  LimitsScope(const LimitsScope&) = delete;
  LimitsScope& operator=(const LimitsScope&) = delete;

 private:
  const Limits before_;
};

// Makes the GPU fail during its lifetime: all work returns an error, as after a kernel's fault.
class LostDeviceScope {
 public:
  LostDeviceScope();
  ~LostDeviceScope();
  LostDeviceScope(const LostDeviceScope&) = delete;
  LostDeviceScope& operator=(const LostDeviceScope&) = delete;
};

// Bytes of allocated device memory, without page-locked host memory.
int64_t MemoryInUse();

}  // namespace triptych::emulation

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_EMULATION_H_
