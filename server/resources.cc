#include "server/resources.h"

#ifdef __linux__
#include <sched.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/base/parse.h"
#include "server/core/log.h"

namespace triptych::server {
namespace {

namespace fs = std::filesystem;

// The words of a file's first line; empty if there is no such file.
std::vector<std::string> ReadWords(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  std::istringstream words(line);
  std::vector<std::string> result;
  for (std::string word; words >> word;) result.push_back(word);
  return result;
}

// A number above zero; absent for "max" and -1, which stand for no limit.
std::optional<int64_t> ParsePositive(std::string_view text) {
  return ParseNumber<int64_t>(text, 1, INT64_MAX);
}

std::optional<int64_t> ReadPositive(const fs::path& file) {
  const std::vector<std::string> words = ReadWords(file);
  return words.size() == 1 ? ParsePositive(words[0]) : std::nullopt;
}

// Number of CPUs in a list such as "0-3,8"; absent if `list` is malformed.
std::optional<int64_t> CountCpus(const std::string& list) {
  std::istringstream ranges(list);
  int64_t count = 0;
  for (std::string range; std::getline(ranges, range, ',');) {
    const size_t dash = range.find('-');
    const std::optional<int64_t> first = ParseNumber<int64_t>(range.substr(0, dash));
    const std::optional<int64_t> last =
        dash == range.npos ? first : ParseNumber<int64_t>(range.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    count += *last - *first + 1;
  }
  return count > 0 ? std::optional(count) : std::nullopt;
}

// Lowers `resources` to the limits of the group whose files are in `directory`. Files of the other
// cgroup version, or of another controller, are absent there.
void LowerToGroup(const fs::path& directory, Resources& resources) {
  const auto limit_cpus = [&](int64_t cpus) {
    resources.cpus = static_cast<int>(std::min<int64_t>(resources.cpus, cpus));
  };
  const auto limit_time = [&](std::optional<int64_t> quota, std::optional<int64_t> period) {
    // A thread more than the quota has CPUs would have the whole group throttled in each period.
    if (quota && period) limit_cpus(std::max<int64_t>(*quota / *period, 1));
  };
  for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
    const auto bytes = ReadPositive(directory / file);
    if (bytes) resources.memory_bytes = std::min(resources.memory_bytes, *bytes);
  }
  const std::vector<std::string> time = ReadWords(directory / "cpu.max");
  if (time.size() == 2) limit_time(ParsePositive(time[0]), ParsePositive(time[1]));
  limit_time(ReadPositive(directory / "cpu.cfs_quota_us"),
             ReadPositive(directory / "cpu.cfs_period_us"));
  for (const char* file : {"cpuset.cpus", "cpuset.cpus.effective", "cpuset.effective_cpus"}) {
    const std::vector<std::string> list = ReadWords(directory / file);
    const auto cpus = list.size() == 1 ? CountCpus(list[0]) : std::nullopt;
    if (cpus) limit_cpus(*cpus);
  }
}

// The value of a field in a file of lines NAME VALUE.
std::optional<int64_t> ReadField(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string first, value;
    if (words >> first >> value && first == name) return ParseNumber<int64_t>(value);
  }
  return std::nullopt;
}

// Directories of this process's control groups and of their ancestors.
std::vector<fs::path> GroupDirectories(const fs::path& root) {
  std::vector<fs::path> directories;
  std::ifstream groups(root / "proc/self/cgroup");
  // Lines of HIERARCHY:CONTROLLERS:PATH; version 2 names no controllers, version 1 a list separated
  // by commas.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);

    std::vector<fs::path> mounts;
    if (controllers.empty()) {
      mounts = {root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"};
    } else {
      mounts.push_back(root / "sys/fs/cgroup" / controllers);
      std::istringstream names(controllers);
      for (std::string name; std::getline(names, name, ',');) {
        mounts.push_back(root / "sys/fs/cgroup" / name);
      }
    }
    // A limit holds for all descendants, so every group on the path counts. In a container the
    // mount is often the container's own group, and the path, which is the host's, does not exist
    // below it: then only the mount counts.
    for (const fs::path& mount : mounts) {
      fs::path directory = mount;
      directories.push_back(directory);
      for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
        if (part == "..") break;  // a group outside the mount
        directory /= part;
        directories.push_back(directory);
      }
    }
  }
  return directories;
}

}  // namespace

Resources MachineResources() {
  Resources machine;
  machine.cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
#ifdef __linux__
  cpu_set_t cpus;
  // Fails if the machine has more CPUs than cpu_set_t holds.
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) machine.cpus = CPU_COUNT(&cpus);
#endif
  machine.cpus = std::max(machine.cpus, 1);
  machine.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return machine;
}

Resources WithinCgroups(Resources machine, const fs::path& root) {
  Resources resources = machine;
  for (const fs::path& directory : GroupDirectories(root)) LowerToGroup(directory, resources);
  return resources;
}

Resources AvailableResources() { return WithinCgroups(MachineResources(), "/"); }

std::optional<int64_t> MemoryLeft(const fs::path& root) {
  std::optional<int64_t> left;
  const auto lower = [&](int64_t bytes) { left = std::min(left.value_or(bytes), bytes); };
  if (const auto available = ReadField(root / "proc/meminfo", "MemAvailable:")) {
    lower(*available * 1024);
  }
  for (const fs::path& directory : GroupDirectories(root)) {
    for (const auto& [limit_file, usage_file, prefix] :
         {std::tuple{"memory.max", "memory.current", ""},
          std::tuple{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"}}) {
      const auto limit = ReadPositive(directory / limit_file);
      const auto usage = ReadPositive(directory / usage_file);
      if (!limit || !usage) continue;
      int64_t files = 0;
      for (const char* list : {"active_file", "inactive_file"}) {
        files += ReadField(directory / "memory.stat", std::string(prefix) + list).value_or(0);
      }
      lower(*limit - std::max<int64_t>(*usage - files, 0));
    }
  }
  return left;
}

bool MemoryGauge::UnderPressure() {
  const MutexLock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (looked_ == std::chrono::steady_clock::time_point() || now - looked_ >= kInterval) {
    looked_ = now;
    const std::optional<int64_t> left = MemoryLeft(root_);
    const bool was_under_pressure = std::exchange(under_pressure_, left && *left < kHeadRoom);
    if (under_pressure_ && !was_under_pressure) {
      LogWarning("memory is short: {} bytes left; refusing requests until there are {}", *left,
                 kHeadRoom);
    } else if (!under_pressure_ && was_under_pressure) {
      LogInfo("memory is no longer short");
    }
  }
  return under_pressure_;
}

}  // namespace triptych::server
