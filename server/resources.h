// CPUs and memory that this process may use.
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
  int cpus = 1;              // that its threads can use concurrently; at least 1
  int64_t memory_bytes = 0;  // that it may hold
};

// The CPUs of this process's affinity mask, and the machine's physical memory.
Resources MachineResources();

// `machine` lowered to the limits of this process's control groups (cgroups, v1 and v2) and of
// their ancestors: CPU time in whole CPUs, at least one, CPU sets and memory. `root` holds proc/
// and sys/. A file that is absent or unreadable sets no limit.
Resources WithinCgroups(Resources machine, const std::filesystem::path& root);

// MachineResources() within the control groups of this machine.
Resources AvailableResources();

// Bytes that this process may still allocate before the system kills it: the least of the machine's
// available memory and what each control group has left of its limit. The page cache does not count
// as used, since the system reclaims it. `root` as above. Absent if no file tells.
std::optional<int64_t> MemoryLeft(const std::filesystem::path& root = "/");

// Tells whether memory is short; every request asks it. Thread-safe.
class MemoryGauge {
 public:
  // Bytes that must be left, for running requests and the transports' buffers.
  static constexpr int64_t kHeadRoom = int64_t{64} << 20;

  explicit MemoryGauge(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // True if less than kHeadRoom is left. Reads MemoryLeft at most once per kInterval; logs changes.
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
