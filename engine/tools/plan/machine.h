// Rates of a CPU or GPU for planning, measured or read from a file.
#ifndef TRIPTYCH_ENGINE_TOOLS_PLAN_MACHINE_H_
#define TRIPTYCH_ENGINE_TOOLS_PLAN_MACHINE_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/kernels/limits.h"

namespace triptych::tools {

// Kind of the device that serves a model.
enum class DeviceKind { kCpu, kCuda };

constexpr std::string_view Name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCuda:
      return "cuda";
  }
  return {};
}

struct Machine {
  std::string name;  // of a published machine with the source of its rates
  DeviceKind device = DeviceKind::kCpu;
  int64_t cores = 0;  // of a CPU; 0 for a GPU
  // A GPU has only read_bytes, the bytes that a large copy reads and writes together, and
  // bfloat16_flops. Infinity: not published.
  kernels::Limits limits;
  int64_t memory_bytes = 0;  // of a published GPU; else 0
};

// A machine by its name in a table of published rates, such as "h100"; absent if it is not there.
// Rates are peaks without sparsity.
std::optional<Machine> PublishedMachine(const std::string& name);
// The names in the table, for messages: "h100, h200, ...".
std::string PublishedMachines();

// Name of this machine's processor by Linux; "unnamed" if Linux has none.
std::string ProcessorName();

// Measures this machine with `threads` threads, in about five seconds.
Machine MeasureMachine(int threads);

// A GPU of this machine.
struct Gpu {
  int number = 0;  // of CUDA
  std::string name;
  int64_t free_bytes = 0;  // free memory
};

// The GPU with this name: "cuda" (the first) or "cuda:N". Throws std::invalid_argument if this
// machine or build has no such GPU.
Gpu FindGpu(const std::string& name);

// Measures a GPU, in about a second. Throws std::runtime_error for errors of CUDA.
Machine MeasureGpu(const Gpu& gpu);

// Reads a JSON object. A CPU has all of these fields:
//   {"name": "...", "cores": 2, "read_bytes_per_second": 35e9,
//    "float32_flop_per_second": 236e9, "bfloat16_flop_per_second": 471e9,
//    "int8_flop_per_second": 942e9, "int4_flop_per_second": 942e9}
// A GPU has all of these and no others:
//   {"name": "...", "device": "cuda", "read_bytes_per_second": 2.9e12,
//    "bfloat16_flop_per_second": 750e12}
// Throws LoadError with the field, its value and the allowed values.
Machine ReadMachine(const std::filesystem::path& file);
// Throws std::runtime_error.
void WriteMachine(const std::filesystem::path& file, const Machine& machine);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_PLAN_MACHINE_H_
