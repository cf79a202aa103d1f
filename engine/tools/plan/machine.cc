#include "engine/tools/plan/machine.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
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

struct Published {
  const char* key;
  Machine machine;
};

constexpr double kNotPublished = std::numeric_limits<double>::infinity();

Published PublishedGpu(const char* key, const char* name, double bytes, double flops,
                       int64_t memory) {
  return {key,
          {.name = name,
           .device = DeviceKind::kCuda,
           .cores = 0,
           .limits = {.read_bytes = bytes, .bfloat16_flops = flops},
           .memory_bytes = memory}};
}

// FLOP per second of all cores at the base clock, of FLOP per cycle and core.
Published PublishedCpu(const char* key, const char* name, int64_t cores, double hertz, double bytes,
                       double float32, double bfloat16, double int8) {
  const double cycles = static_cast<double>(cores) * hertz;
  return {key,
          {.name = name,
           .device = DeviceKind::kCpu,
           .cores = cores,
           .limits = {.read_bytes = bytes,
                      .float32_flops = cycles * float32,
                      .bfloat16_flops = cycles * bfloat16,
                      .int8_flops = cycles * int8,
                      .int4_flops = cycles * int8}}};
}

const std::vector<Published>& PublishedTable() {
  constexpr int64_t kGb = 1'000'000'000;
  static const std::vector<Published> table = {
      PublishedGpu("a100", "NVIDIA A100 80GB SXM (NVIDIA A100 datasheet)", 2039e9, 312e12,
                   80 * kGb),
      PublishedGpu("h100", "NVIDIA H100 SXM (NVIDIA H100 datasheet)", 3350e9, 989.5e12, 80 * kGb),
      PublishedGpu("h200", "NVIDIA H200 SXM (NVIDIA H200 datasheet)", 4800e9, 989.5e12, 141 * kGb),
      PublishedGpu("l40s", "NVIDIA L40S (NVIDIA L40S datasheet)", 864e9, 362.05e12, 48 * kGb),
      PublishedGpu("rtx4090", "NVIDIA GeForce RTX 4090 (NVIDIA Ada GPU architecture whitepaper)",
                   1008e9, 165.2e12, 24 * kGb),
      // Zen 4: two 256-bit FMAs a cycle (AMD publication 57647).
      PublishedCpu("epyc-9654", "AMD EPYC 9654 (AMD product page, publication 57647)", 96, 2.4e9,
                   460.8e9, 32, 64, 128),
      // Two 512-bit FMAs; a tile product of 16 x 16 x 32 in 16 cycles.
      PublishedCpu("xeon-8480",
                   "Intel Xeon 8480+ with AMX (Intel ARK, Optimization Reference Manual)", 56,
                   2.0e9, 307.2e9, 64, 1024, 2048),
      PublishedCpu("m2-ultra", "Apple M2 Ultra (Apple newsroom, 2023-06-05)", 24, 1, 800e9,
                   kNotPublished, kNotPublished, kNotPublished),
      PublishedCpu("m4-max", "Apple M4 Max (Apple newsroom, 2024-10-30)", 16, 1, 546e9,
                   kNotPublished, kNotPublished, kNotPublished)};
  return table;
}

}  // namespace

std::optional<Machine> PublishedMachine(const std::string& name) {
  for (const Published& published : PublishedTable()) {
    if (name == published.key) return published.machine;
  }
  return std::nullopt;
}

std::string PublishedMachines() {
  std::string names;
  for (const Published& published : PublishedTable()) {
    names += (names.empty() ? "" : ", ") + std::string(published.key);
  }
  return names;
}

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
