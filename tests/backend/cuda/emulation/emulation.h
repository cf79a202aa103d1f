// An emulated GPU: the limits that tests give it and the memory that it has handed out.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_EMULATION_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_EMULATION_H_

#include <cstdint>

namespace triptych::emulation {

struct Limits {
  int64_t shared_bytes = int64_t{227} << 10;  // of a thread block, as on Hopper
  int64_t memory_bytes = int64_t{64} << 30;   // cudaMalloc fails beyond
};

// The limits that hold now.
const Limits& CurrentLimits();

// Sets limits for as long as it lives. A model keeps to the limits it was made under.
class LimitsScope {
 public:
  explicit LimitsScope(const Limits& limits);
  ~LimitsScope();
  LimitsScope(const LimitsScope&) = delete;
  LimitsScope& operator=(const LimitsScope&) = delete;

 private:
  const Limits before_;
};

// A GPU that has failed, for as long as it lives: all work on it returns an error, as it does after
// a fault of a kernel.
class LostDeviceScope {
 public:
  LostDeviceScope();
  ~LostDeviceScope();
  LostDeviceScope(const LostDeviceScope&) = delete;
  LostDeviceScope& operator=(const LostDeviceScope&) = delete;
};

// Device memory that is allocated now. Page-locked host memory does not count.
int64_t MemoryInUse();

}  // namespace triptych::emulation

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_EMULATION_H_
