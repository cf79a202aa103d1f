// How much of the machine this process may use.
#ifndef TRIPTYCH_SERVER_RESOURCES_H_
#define TRIPTYCH_SERVER_RESOURCES_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/mutex.h"

namespace triptych::server {

struct Resources {
  int cpus = 1;              // that threads can run on at once; at least 1
  int64_t memory_bytes = 0;  // that the process may hold
};

// The CPUs that this process may be scheduled on, and the machine's physical memory.
Resources MachineResources();

// `machine` lowered to the limits of the control groups (cgroups, v1 and v2) that this process is
// in and of the groups above them: processor time, rounded up to whole CPUs, CPU sets and memory.
// `root` is where proc/ and sys/ are. What is absent or unreadable sets no limit.
Resources WithinCgroups(Resources machine, const std::filesystem::path& root);

// What this process may use.
Resources AvailableResources();

// How much more this process may take before the system ends it: the least of what the machine has
// available and what each control group has left of its limit. Memory that only holds files does
// not count as taken, since it is given back when it is needed. `root` as above; nothing if nothing
// says.
std::optional<int64_t> MemoryLeft(const std::filesystem::path& root = "/");

// Whether memory is short, asked by every request. Thread-safe.
class MemoryGauge {
 public:
  // What must be left for requests that run already, and for what the transport buffers.
  static constexpr int64_t kHeadRoom = int64_t{64} << 20;

  explicit MemoryGauge(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // Looks at most once in kInterval.
  bool UnderPressure() TRIPTYCH_EXCLUDES(mutex_);

  static constexpr std::chrono::milliseconds kInterval{100};

 private:
  const std::filesystem::path root_;
  Mutex mutex_;
  std::chrono::steady_clock::time_point looked_ TRIPTYCH_GUARDED_BY(mutex_);
  bool under_pressure_ TRIPTYCH_GUARDED_BY(mutex_) = false;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_RESOURCES_H_
