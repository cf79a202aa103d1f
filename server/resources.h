// How much of the machine this process may use.
#ifndef TRIPTYCH_SERVER_RESOURCES_H_
#define TRIPTYCH_SERVER_RESOURCES_H_

#include <cstdint>
#include <filesystem>

namespace triptych {

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

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_RESOURCES_H_
