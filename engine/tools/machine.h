// What a machine can do, for planning: measured here, or read from a file.
#ifndef TRIPTYCH_ENGINE_TOOLS_MACHINE_H_
#define TRIPTYCH_ENGINE_TOOLS_MACHINE_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/kernels/limits.h"

namespace triptych {

struct Machine {
  std::string name;
  int64_t cores = 0;
  Limits limits;
};

// What this machine's processor is called, as Linux tells it; "unnamed" where it does not.
std::string ProcessorName();

// This one, by so many threads; takes some five seconds.
Machine MeasureMachine(int threads);

// A file is a JSON object, all of whose fields are required:
//   {"name": "...", "cores": 2, "read_bytes_per_second": 35e9,
//    "float32_flop_per_second": 236e9, "bfloat16_flop_per_second": 471e9,
//    "int8_flop_per_second": 942e9, "int4_flop_per_second": 942e9}
// Throws LoadError, naming the field, its value and what is allowed.
Machine ReadMachine(const std::filesystem::path& file);
// Throws std::runtime_error.
void WriteMachine(const std::filesystem::path& file, const Machine& machine);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TOOLS_MACHINE_H_
