#include "engine/tools/plan/machine.h"

#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/kernels/thread_pool.h"

namespace triptych::tools {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 16;
constexpr size_t kMaxNameBytes = 128;
constexpr double kMostPerSecond = 1e18;

struct Rate {
  const char* field;
  double kernels::Limits::*value;
};
constexpr Rate kCpuRates[] = {{"read_bytes_per_second", &kernels::Limits::read_bytes},
                              {"float32_flop_per_second", &kernels::Limits::float32_flops},
                              {"bfloat16_flop_per_second", &kernels::Limits::bfloat16_flops},
                              {"int8_flop_per_second", &kernels::Limits::int8_flops},
                              {"int4_flop_per_second", &kernels::Limits::int4_flops}};
constexpr Rate kGpuRates[] = {{"read_bytes_per_second", &kernels::Limits::read_bytes},
                              {"bfloat16_flop_per_second", &kernels::Limits::bfloat16_flops}};

std::span<const Rate> RatesOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return kCpuRates;
    case DeviceKind::kCuda:
      return kGpuRates;
  }
  return {};
}

}  // namespace

std::string ProcessorName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2, kMaxNameBytes);
    }
  }
  return "unnamed";
}

Machine MeasureMachine(int threads) {
  kernels::ThreadPool pool(threads);
  return {.name = ProcessorName(),
          .device = DeviceKind::kCpu,
          .cores = threads,
          .limits = kernels::MeasureLimits(pool)};
}

Gpu FindGpu(const std::string& name) {
  const std::vector<CudaDevice> gpus = CudaDevices();
  std::string allowed = "cpu";
  for (int i = 0; i < std::ssize(gpus); ++i) {
    const std::string numbered = "cuda:" + std::to_string(i);
    if (name == numbered || (name == "cuda" && i == 0)) {
      return {.number = i, .name = gpus[i].name, .free_bytes = FreeCudaBytes(i)};
    }
    allowed += ", " + numbered;
  }
  throw std::invalid_argument("--device: " + name + " is not available" +
                              (gpus.empty() ? " (" + WhyNoCudaDevice() + ")" : "") +
                              "; allowed: " + allowed);
}

Machine MeasureGpu(const Gpu& gpu) {
  const CudaLimits measured = MeasureCudaLimits(gpu.number);
  Machine machine{.name = gpu.name, .device = DeviceKind::kCuda, .cores = 0, .limits = {}};
  machine.limits.read_bytes = measured.copy_bytes;
  machine.limits.bfloat16_flops = measured.bfloat16_flops;
  return machine;
}

Machine ReadMachine(const std::filesystem::path& file) {
  checkpoint::JsonFields fields(ParseJson(ReadText(file, kMaxFileBytes), file.string()),
                                file.string());
  Machine machine;
  const Json name = fields.Take("name", nullptr);
  if (!name.is_string() || name.get_ref<const std::string&>().size() > kMaxNameBytes) {
    fields.RefuseValue("name", name,
                       "allowed: a text of at most " + std::to_string(kMaxNameBytes) + " bytes");
  }
  machine.name = name.get<std::string>();
  machine.device = fields.Choice<DeviceKind>("device", Name(DeviceKind::kCpu));
  if (machine.device == DeviceKind::kCpu) machine.cores = fields.Int("cores", {1, 1 << 20});
  for (const Rate& rate : RatesOf(machine.device)) {
    const double value = fields.Number(rate.field, {0, kMostPerSecond, /*above_low=*/true});
    if (value < 1) fields.RefuseValue(rate.field, value, "allowed: 1 and more");
    machine.limits.*rate.value = value;
  }
  fields.RefuseLeftOver();
  return machine;
}

void WriteMachine(const std::filesystem::path& file, const Machine& machine) {
  nlohmann::ordered_json json = {{"name", machine.name}};
  switch (machine.device) {
    case DeviceKind::kCpu:
      json["cores"] = machine.cores;
      break;
    case DeviceKind::kCuda:
      json["device"] = Name(machine.device);
      break;
  }
  for (const Rate& rate : RatesOf(machine.device)) json[rate.field] = machine.limits.*rate.value;
  ReplaceFile(file, json.dump(2) + "\n");
}

}  // namespace triptych::tools
