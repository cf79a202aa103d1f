#include "server/resources.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/support/temp_dir.h"

namespace triptych::server::resources_test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr Resources kMachine = {.cpus = 64, .memory_bytes = 4096 * kMiB};

class ResourcesTest : public testing::Test {
 protected:
  // Writes a file, and makes its directories.
  void Write(const std::string& name, std::string_view text) {
    const std::filesystem::path file = root_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    WriteFile(file, text);
  }
  void Expect(int cpus, int64_t memory_bytes) const {
    const Resources resources = WithinCgroups(kMachine, root_.path());
    EXPECT_EQ(resources.cpus, cpus);
    EXPECT_EQ(resources.memory_bytes, memory_bytes);
  }
  void ExpectCpus(int cpus) const { Expect(cpus, kMachine.memory_bytes); }

  TempDir root_;
};

TEST_F(ResourcesTest, WithoutCgroupsTheMachineIsTheLimit) {
  ExpectCpus(64);
  Write("proc/self/cgroup", "0::/\n");
  ExpectCpus(64);
}

TEST_F(ResourcesTest, Version2) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "536870912\n");
  Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  Expect(2, 512 * kMiB);
}

TEST_F(ResourcesTest, MaxIsNoLimit) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "max\n");
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/cpuset.cpus", "\n");
  ExpectCpus(64);
}

TEST_F(ResourcesTest, TimeIsRoundedDownToWholeCpus) {
  Write("proc/self/cgroup", "0::/\n");
  for (const auto& [time, cpus] : {std::pair{"150000 100000", 1},
                                   {"10000 100000", 1},
                                   {"100000 100000", 1},
                                   {"199999 100000", 1},
                                   {"200000 100000", 2},
                                   {"765000 100000", 7},
                                   {"9000000000 100000", 64}}) {
    SCOPED_TRACE(time);
    Write("sys/fs/cgroup/cpu.max", time);
    ExpectCpus(cpus);
  }
}

TEST_F(ResourcesTest, EveryGroupAboveCounts) {
  Write("proc/self/cgroup", "0::/tenant.slice/pod:1/server\n");
  Write("sys/fs/cgroup/tenant.slice/memory.max", "1073741824\n");
  Write("sys/fs/cgroup/tenant.slice/cpu.max", "800000 100000\n");
  Write("sys/fs/cgroup/tenant.slice/pod:1/memory.max", "max\n");
  Write("sys/fs/cgroup/tenant.slice/pod:1/cpu.max", "400000 100000\n");
  Write("sys/fs/cgroup/tenant.slice/pod:1/server/memory.max", "2147483648\n");
  Write("sys/fs/cgroup/tenant.slice/other/memory.max", "4096\n");
  Expect(4, 1024 * kMiB);
}

TEST_F(ResourcesTest, APathThatIsNotMountedLeavesTheMountItself) {
  Write("sys/fs/cgroup/memory.max", "536870912\n");
  Write("sys/fs/memory.max", "4096\n");
  for (const char* groups : {"0::/docker/0123abcd\n", "0::/../sibling\n", "0::/\n"}) {
    SCOPED_TRACE(groups);
    Write("proc/self/cgroup", groups);
    Expect(64, 512 * kMiB);
  }
}

TEST_F(ResourcesTest, CpuSets) {
  Write("proc/self/cgroup", "0::/\n");
  for (const auto& [list, cpus] : {std::pair{"0-3,8", 5},
                                   {"7", 1},
                                   {"0-1,4-5,10-11", 6},
                                   {"0-1023", 64},
                                   {"", 64},
                                   {"3-1", 64},
                                   {"0-", 64},
                                   {"a", 64},
                                   {"0-1x", 64}}) {
    SCOPED_TRACE(list);
    Write("sys/fs/cgroup/cpuset.cpus.effective", list);
    ExpectCpus(cpus);
  }
}

TEST_F(ResourcesTest, TheLesserOfTimeAndCpuSet) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n");
  Write("sys/fs/cgroup/cpu.max", "350000 100000\n");
  ExpectCpus(3);
  Write("sys/fs/cgroup/cpu.max", "600000 100000\n");
  ExpectCpus(4);
}

TEST_F(ResourcesTest, Version1) {
  Write("proc/self/cgroup",
        "12:cpuset:/docker/0123abcd\n"
        "5:memory:/docker/0123abcd\n"
        "4:cpu,cpuacct:/docker/0123abcd\n"
        "1:name=systemd:/docker/0123abcd\n"
        "0::/\n");
  // On a host: the whole hierarchy is mounted.
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/docker/0123abcd/memory.limit_in_bytes", "268435456\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/docker/0123abcd/cpu.cfs_quota_us", "150000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/docker/0123abcd/cpu.cfs_period_us", "50000\n");
  Expect(3, 256 * kMiB);
  Write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-15\n");
  Write("sys/fs/cgroup/cpuset/docker/0123abcd/cpuset.cpus", "4,6\n");
  Expect(2, 256 * kMiB);
}

TEST_F(ResourcesTest, Version1InAContainer) {
  Write("proc/self/cgroup", "5:memory:/docker/0123abcd\n4:cpu,cpuacct:/docker/0123abcd\n");
  // In a container: its own group is mounted, each controller at its name.
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Expect(1, 256 * kMiB);
}

TEST_F(ResourcesTest, BothVersionsNextToEachOther) {
  Write("proc/self/cgroup", "5:memory:/a\n0::/b\n");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n");
  Write("sys/fs/cgroup/unified/b/cpu.max", "100000 100000\n");
  Expect(1, 512 * kMiB);
}

TEST_F(ResourcesTest, AnUnreadableFileIsNoLimit) {
  Write("proc/self/cgroup", "\nnonsense\n0:\n0::/\n");
  for (const char* text : {"", "\n", "-1", "0", "12x", "1 2 3", "99999999999999999999999"}) {
    SCOPED_TRACE(text);
    for (const char* file :
         {"memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us"}) {
      Write(std::string("sys/fs/cgroup/") + file, text);
    }
    Write("sys/fs/cgroup/cpu.cfs_period_us", "100000");
    ExpectCpus(64);
  }
}

TEST(AvailableResourcesTest, IsWithinTheMachine) {
  const Resources machine = MachineResources();
  const Resources available = AvailableResources();
  EXPECT_GE(available.cpus, 1);
  EXPECT_LE(available.cpus, machine.cpus);
  EXPECT_GT(available.memory_bytes, 0);
  EXPECT_LE(available.memory_bytes, machine.memory_bytes);
}

TEST_F(ResourcesTest, MemoryLeftIsTheLeastThatAnyoneHasLeft) {
  EXPECT_EQ(MemoryLeft(root_.path()), std::nullopt);
  Write("proc/meminfo", "MemTotal:  4096 kB\nMemAvailable:    2048 kB\n");
  EXPECT_EQ(MemoryLeft(root_.path()), 2 * kMiB);
  Write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  EXPECT_EQ(MemoryLeft(root_.path()), 1024 * kMiB);

  // Version 2: used memory, except file pages that can be read again.
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/memory.max", "524288000\n");
  Write("sys/fs/cgroup/a/memory.current", "419430400\n");
  EXPECT_EQ(MemoryLeft(root_.path()), 100 * kMiB);
  Write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 20971520\nactive_file 10485760\n");
  EXPECT_EQ(MemoryLeft(root_.path()), 130 * kMiB);
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("sys/fs/cgroup/a/b/memory.current", "419430400\n");
  EXPECT_EQ(MemoryLeft(root_.path()), 130 * kMiB);

  // Version 1, with counts that include the groups below.
  Write("proc/self/cgroup", "4:memory:/c\n");
  Write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "104857600\n");
  Write("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "94371840\n");
  Write("sys/fs/cgroup/memory/c/memory.stat",
        "inactive_file 0\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
  EXPECT_EQ(MemoryLeft(root_.path()), 11 * kMiB);
}

TEST_F(ResourcesTest, MemoryIsShortBelowTheHeadRoom) {
  const auto under_pressure = [&](int64_t left) {
    Write("proc/meminfo", "MemAvailable: " + std::to_string(left / 1024) + " kB\n");
    return MemoryGauge(root_.path()).UnderPressure();
  };
  EXPECT_FALSE(MemoryGauge(root_.path()).UnderPressure());  // unknown
  EXPECT_FALSE(under_pressure(MemoryGauge::kHeadRoom));
  EXPECT_TRUE(under_pressure(MemoryGauge::kHeadRoom - 1024));
  EXPECT_TRUE(under_pressure(0));
}

// Every request asks the gauge, which reads the files again once the interval has passed.
TEST_F(ResourcesTest, MemoryIsReadAgain) {
  MemoryGauge gauge(root_.path());
  EXPECT_FALSE(gauge.UnderPressure());
  Write("proc/meminfo", "MemAvailable: 0 kB\n");
  while (!gauge.UnderPressure()) std::this_thread::sleep_for(MemoryGauge::kInterval);
  Write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  while (gauge.UnderPressure()) std::this_thread::sleep_for(MemoryGauge::kInterval);
}

}  // namespace
}  // namespace triptych::server::resources_test
