// Meter of tensor memory allocated on this thread during its lifetime, in bytes.
#ifndef TRIPTYCH_TESTS_SUPPORT_ALLOCATION_METER_H_
#define TRIPTYCH_TESTS_SUPPORT_ALLOCATION_METER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace triptych {

class AllocationMeter {
 public:
  AllocationMeter() : guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  int64_t total() const { return counter_->total; }      // all allocations
  int64_t largest() const { return counter_->largest; }  // the largest allocation
  int64_t most() const { return counter_->most; }        // peak of live allocations

 private:
  // LibTorch 1.13 reports signed totals, later versions unsigned: the overload that the base
  // declares overrides it.
  struct Counter : c10::MemoryReportingInfoBase {
    virtual void reportMemoryUsage(void*, int64_t bytes, int64_t, int64_t, c10::Device) {
      Count(bytes);
    }
    virtual void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) {
      Count(bytes);
    }
    virtual bool memoryProfilingEnabled() const { return true; }

    void Count(int64_t bytes) {  // negative when memory is freed
      total += std::max<int64_t>(bytes, 0);
      largest = std::max(largest, bytes);
      held += bytes;
      most = std::max(most, held);
    }

    int64_t total = 0;
    int64_t largest = 0;
    int64_t held = 0;
    int64_t most = 0;
  };

  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  c10::DebugInfoGuard guard_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_ALLOCATION_METER_H_
