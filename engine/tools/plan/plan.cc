#include "engine/tools/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/step_cost.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/server_bytes.h"
#include "engine/base/error.h"
#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/base/table.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/model/validate_config.h"
#include "engine/tools/asked_formats.h"
#include "engine/tools/plan/capacity.h"
#include "engine/tools/plan/machine.h"
#include "engine/tools/plan/outline.h"

namespace triptych::tools {
namespace {

std::string RankText(const ModelConfig& config) {
  const auto [least, most] =
      std::minmax_element(config.kv_lora_rank.begin(), config.kv_lora_rank.end());
  return *least == *most ? std::to_string(*least)
                         : std::to_string(*least) + " to " + std::to_string(*most);
}

std::string Title(const ModelConfig& config) {
  const std::string name(Name(config.attention));
  switch (config.attention) {
    case AttentionKind::kMha:
      return name + "\n" + std::to_string(config.num_attention_heads) + " heads";
    case AttentionKind::kGqa:
      return name + "\n" + std::to_string(config.num_key_value_heads) +
             (config.num_key_value_heads == 1 ? " group" : " groups");
    case AttentionKind::kMla:
      return name + "\nrank " + RankText(config) +
             (config.qk_rope_head_dim > 0 ? " + " + std::to_string(config.qk_rope_head_dim) : "");
  }
  return name;
}

// The parameters of the kinds that the model itself is not.
std::string MadeWith(const ModelConfig& config, const std::vector<ModelConfig>& kinds,
                     const PlanOptions& options) {
  std::string text;
  const ModelConfig& gqa = kinds[1];
  const ModelConfig& mla = kinds[2];
  if (config.attention != AttentionKind::kMla) {
    text += "mla: rank " + RankText(mla);
    if (mla.qk_rope_head_dim > 0) {
      text += " with decoupled keys of width " + std::to_string(mla.qk_rope_head_dim) +
              " (convert --rope-head-dim)";
    } else if (!options.rank) {
      text += ", which is exact";
    }
    text += options.rank ? "\n" : " (--rank for less)\n";
    if (config.qk_norm && !mla.qk_norm) {
      text +=
          "mla: no conversion from normed keys with a bias or a norm over all heads; its figures "
          "are "
          "those without norms\n";
    }
    if (mla.max_position_embeddings < config.max_position_embeddings) {
      text += "mla: a conversion serves at most " + FormatCount(mla.max_position_embeddings) +
              " positions, those of the window; its figures are those of longer sequences\n";
    }
  } else if (mla.qk_rope_head_dim > 0) {
    text += "mha, gqa: rotated as a whole, without mla's decoupled keys of width " +
            std::to_string(mla.qk_rope_head_dim) + "\n";
  }
  if (config.attention != AttentionKind::kGqa && !options.groups) {
    text += "gqa: " + std::to_string(gqa.num_key_value_heads) +
            (gqa.num_key_value_heads == 1
                 ? " group (--groups for more)\n"
                 : " groups, the most with rows no wider than mla's (--groups for others)\n");
  }
  return text;
}

double TokensPerSecond(const KindPlan& plan, const kernels::Limits& limits, int64_t batch,
                       double context) {
  return static_cast<double>(batch) / StepSeconds(plan, limits, batch, context);
}

// "6.358 MFLOP".
std::string FormatFlops(double flops) {
  return flops < 1e9 ? FormatDecimal(flops / 1e6, 3) + " MFLOP"
                     : FormatDecimal(flops / 1e9, 3) + " GFLOP";
}

std::string FormatSequences(int64_t count) {
  return FormatCount(count) + (count == 1 ? " sequence" : " sequences");
}

// The bound of attention: reading a position or computing with it.
std::string BoundOf(const KindPlan& plan, const kernels::Limits& limits) {
  const auto bytes = static_cast<double>(plan.info.geometry.BytesPerPosition());
  return bytes / limits.read_bytes >
                 static_cast<double>(plan.cost.core_flops) / AttentionFlops(plan, limits)
             ? "memory"
             : "arithmetic";
}

// A table with a column for each kind.
class Report {
 public:
  explicit Report(const std::vector<KindPlan>& plans) : plans_(plans), table_(Columns(plans)) {}

  template <typename Cell>
  void Add(const std::string& title, const Cell& cell) {
    std::vector<std::string> cells = {title};
    for (const KindPlan& plan : plans_) cells.push_back(cell(plan));
    table_.AddRow(std::move(cells));
  }

  std::string ToString() const { return table_.ToString(); }

 private:
  static std::vector<Table::Column> Columns(const std::vector<KindPlan>& plans) {
    std::vector<Table::Column> columns = {{"", Table::Align::kLeft}};
    for (const KindPlan& plan : plans) columns.push_back({Title(plan.config)});
    return columns;
  }

  const std::vector<KindPlan>& plans_;
  Table table_;
};

std::string MemoryAndWork(const std::vector<KindPlan>& plans, int64_t context,
                          const Machine& machine) {
  Report report(plans);
  report.Add("weights", [](const KindPlan& p) { return FormatBytes(p.cost.weight_bytes); });
  switch (machine.device) {
    case DeviceKind::kCpu:
      report.Add("expanded prompts", [](const KindPlan& p) { return FormatBytes(p.prompt_bytes); });
      break;
    case DeviceKind::kCuda:
      report.Add("workspace", [](const KindPlan& p) { return FormatBytes(p.server_bytes); });
      break;
  }
  report.Add("cache", [](const KindPlan& p) { return FormatBytes(p.info.cache_bytes); });
  report.Add("bytes per position",
             [](const KindPlan& p) { return FormatCount(p.info.geometry.BytesPerPosition()); });
  report.Add("positions that fit",
             [](const KindPlan& p) { return FormatCount(p.info.pool_positions()); });
  report.Add("sequences that fit", [](const KindPlan& p) { return FormatCount(p.sequences); });
  const auto read = [](const KindPlan& p, int64_t batch) {
    return FormatBytes(std::llround(cpu::ReadBytes(p.config, p.cost, static_cast<double>(batch))));
  };
  if (plans.front().config.experts.n_routed_experts == 0) {
    report.Add("weights read per step", [&](const KindPlan& p) { return read(p, 1); });
  } else {
    report.Add("active parameters",
               [](const KindPlan& p) { return FormatCount(ActiveParameterCount(p.config)); });
    for (const int64_t batch : kBatches) {
      report.Add("weights read, " + FormatSequences(batch),
                 [&](const KindPlan& p) { return read(p, batch); });
    }
  }
  report.Add("cache read per token", [&](const KindPlan& p) {
    const double bytes = AttendedPositions(p, static_cast<double>(context)) *
                         static_cast<double>(p.info.geometry.BytesPerPosition());
    return FormatBytes(static_cast<int64_t>(std::min(bytes, 0x1p62)));
  });
  report.Add("products per token", [](const KindPlan& p) {
    return FormatFlops(static_cast<double>(p.cost.product_flops));
  });
  report.Add("attention per token", [&](const KindPlan& p) {
    return FormatFlops(AttendedPositions(p, static_cast<double>(context)) *
                       static_cast<double>(p.cost.core_flops));
  });
  report.Add("attention is bound by",
             [&](const KindPlan& p) { return BoundOf(p, machine.limits); });
  return report.ToString();
}

std::string Speeds(const std::vector<KindPlan>& plans, int64_t context,
                   const kernels::Limits& limits) {
  const auto speed = [&](const KindPlan& plan, int64_t batch, double positions) {
    if (batch < 1 || batch > plan.sequences) return std::string("-");
    return FormatDecimal(TokensPerSecond(plan, limits, batch, positions), 1);
  };
  const auto whole = static_cast<double>(context);
  Report report(plans);
  for (const int64_t batch : kBatches) {
    report.Add("tokens/s, " + FormatSequences(batch),
               [&](const KindPlan& p) { return speed(p, batch, whole); });
  }
  report.Add("tokens/s, all that fit",
             [&](const KindPlan& p) { return speed(p, p.sequences, whole); });
  report.Add("tokens/s, all, half full",
             [&](const KindPlan& p) { return speed(p, p.sequences, whole / 2); });
  return report.ToString();
}

// The positions at which MLA is faster.
std::string WhereFaster(const Crossover& crossover) {
  if (!crossover.positions) return crossover.at_first ? "faster throughout" : "nowhere faster";
  const auto positions = static_cast<int64_t>(*crossover.positions);
  return crossover.at_first ? "faster up to " + FormatCount(positions) + " positions"
                            : "faster from " + FormatCount(positions + 1) + " positions on";
}

// One sentence about MLA against another kind.
std::string Verdict(const KindPlan& mla, const KindPlan& other, const kernels::Limits& limits,
                    int64_t context) {
  std::vector<std::pair<std::string, std::string>> batches;  // sizes, result; equal results joined
  for (const int64_t batch : kBatches) {
    const std::string where = WhereFaster(FindCrossover(mla, other, limits, batch, context));
    if (!batches.empty() && batches.back().second == where) {
      batches.back().first += ", " + std::to_string(batch);
    } else {
      batches.emplace_back(std::to_string(batch), where);
    }
  }
  std::string text = "mla against " + std::string(Name(other.config.attention)) + ", batches of";
  for (size_t i = 0; i < batches.size(); ++i) {
    text += (i > 0 ? "; " : " ") + batches[i].first + ": " + batches[i].second;
  }
  if (mla.sequences < 1 || other.sequences < 1) return text + ".\n";
  const auto ratio = [](double a, double b) { return FormatDecimal(a / b, 2) + "x"; };
  const auto speed = [&](const KindPlan& plan) {
    return TokensPerSecond(plan, limits, plan.sequences, static_cast<double>(context));
  };
  return text + ";\n  with the memory full " +
         ratio(static_cast<double>(mla.sequences), static_cast<double>(other.sequences)) +
         " the sequences, " + ratio(speed(mla), speed(other)) + " the tokens/s.\n";
}

std::string Describe(const Machine& machine) {
  const auto billions = [](double rate) { return FormatDecimal(rate / 1e9, 1); };
  const kernels::Limits& limits = machine.limits;
  const bool published = machine.memory_bytes > 0;
  switch (machine.device) {
    case DeviceKind::kCpu:
      if (std::isinf(limits.float32_flops)) {
        return Printable(machine.name) + ": reads " + billions(limits.read_bytes) +
               " GB/s; FLOP/s are not published, so that speeds are bound by reads alone";
      }
      return Printable(machine.name) + ", " + std::to_string(machine.cores) +
             (machine.cores == 1 ? " core" : " cores") + ": reads " + billions(limits.read_bytes) +
             " GB/s, " + billions(limits.float32_flops) + " GFLOP/s in float32, " +
             billions(limits.bfloat16_flops) + " in bfloat16, " + billions(limits.int8_flops) +
             " in int8, " + billions(limits.int4_flops) + " in int4";
    case DeviceKind::kCuda:
      return Printable(machine.name) +
             (published ? ", GPU: reads " : ", GPU: a copy reads and writes ") +
             billions(limits.read_bytes) + " GB/s, " + billions(limits.bfloat16_flops) +
             " GFLOP/s in bfloat16";
  }
  return {};
}

std::string DescribeMemory(int64_t memory, DeviceKind device) {
  switch (device) {
    case DeviceKind::kCpu:
      return FormatBytes(memory) + " of memory, of which the server itself takes " +
             FormatBytes(kServerBytes);
    case DeviceKind::kCuda:
      return FormatBytes(memory) + " of the GPU's memory";
  }
  return {};
}

const char* LeftOut(DeviceKind device) {
  switch (device) {
    case DeviceKind::kCpu:
      return R"(Left out: prefill, sampling and scheduling, norms and softmax, a step's scratch memory,
the memory of loading (a part of a layer at a time), and hits in the processor's caches.
The speeds are upper bounds of the machine.
)";
    case DeviceKind::kCuda:
      return R"(Left out: prefill, sampling and scheduling, norms and softmax, launches of kernels, hits
in the GPU's cache, and memory that the server leaves free. Measured reads are as fast as
a copy. The speeds are upper bounds of the GPU.
)";
  }
  return "";
}

template <typename Format>
void RequireBFloat16(const char* flag, const std::optional<Format>& format) {
  if (!format || *format == Format::kBFloat16) return;
  throw std::invalid_argument(std::string(flag) + ": " + std::string(Name(*format)) +
                              "; allowed on a GPU: bfloat16");
}

WeightFormats PlannedFormats(const ModelConfig& config, const PlanOptions& options,
                             DeviceKind device) {
  WeightFormats formats = StoredFormats(config);
  if (device == DeviceKind::kCuda) {
    RequireBFloat16("--dtype", options.weights.layers);
    RequireBFloat16("--embedding-dtype", options.weights.embeddings);
    RequireBFloat16("--expert-dtype", options.weights.experts);
    RequireBFloat16("--kv-cache-dtype", options.cache);
    formats = WeightFormat::kBFloat16;
  }
  return FormatsFor(config, options.weights, formats);
}

std::optional<Machine> GivenMachine(const std::string& machine) {
  if (machine.empty()) return std::nullopt;
  if (std::optional<Machine> published = PublishedMachine(machine)) return published;
  return ReadMachine(machine);
}

// `known`: the context of the config, if it has one.
void CheckContext(std::optional<int64_t> known, std::optional<int64_t> asked, bool needed) {
  if (!asked && !known && needed) {
    throw std::invalid_argument("--context is required: the config has no max_position_embeddings");
  }
  const int64_t most = known.value_or(config_limits::kPositions.high);
  if (asked && (*asked < 1 || *asked > most)) {
    throw std::invalid_argument("--context: " + std::to_string(*asked) + "; allowed: 1 to the " +
                                std::to_string(most) + " positions of the model");
  }
}

// Why the CUDA backend does not serve a model; empty if it does.
std::string WhyNotOnGpu(const ModelConfig& config) {
  try {
    CountCudaModelBytes(config, {.max_step_tokens = kDefaultGpuBatchTokens,
                                 .cache_format = CacheFormat::kBFloat16});
  } catch (const LoadError& e) {
    return e.what();
  }
  return "";
}

OutlineUse UseOf(const PlannedModel& model, const checkpoint::ModelOutline& outline,
                 const PlanOptions& options, int64_t memory) {
  const CacheFormat cache = options.cache.value_or(
      model.config
          ? DefaultCacheFormat(options.weights.layers.value_or(StoredFormats(*model.config).layers))
          : CacheFormat::kBFloat16);
  const int64_t context = options.context ? *options.context : *outline.context;
  const int64_t widest = BytesPerPosition(outline.cached, CacheFormat::kFloat32);
  if (static_cast<double>(widest) * static_cast<double>(context) > 0x1p62) {
    throw std::invalid_argument("--context: " + std::to_string(context) +
                                " positions take more than 2^62 bytes; allowed: fewer");
  }
  return {.memory = memory, .context = context, .cache = cache};
}

Machine MachineOf(const PlanOptions& options, const std::optional<Machine>& given,
                  const std::optional<Gpu>& gpu) {
  const Machine machine = given ? *given : gpu ? MeasureGpu(*gpu) : MeasureMachine(options.threads);
  if (!options.write_machine.empty()) WriteMachine(options.write_machine, machine);
  return machine;
}

// The plan of a model as its config describes it.
void PlanOutline(const PlanOptions& options, const PlannedModel& model,
                 const checkpoint::ModelOutline& outline, const std::string& title,
                 const std::optional<int64_t>& memory, const std::optional<Machine>& given,
                 const std::optional<Gpu>& gpu) {
  if (options.groups || options.rank || options.weights.embeddings || options.weights.experts) {
    throw std::invalid_argument(
        "--groups, --rank, --embedding-dtype and --expert-dtype are for one device and a model "
        "that is served there, with --memory");
  }
  std::string text = options.model.string() + ": " + title + "\n" +
                     DescribeOutline(outline, options.tensor_parallel);
  if (memory && outline.weights) {
    const OutlineUse use = UseOf(model, outline, options, *memory);
    const Machine machine = MachineOf(options, given, gpu);
    text += FormatBytes(use.memory) + " of memory" +
            (options.tensor_parallel > 1 ? " on each device" : "") + "; sequences of " +
            FormatCount(use.context) + " positions, cache in " + std::string(Name(use.cache)) +
            "\n" + Describe(machine) + "\n\n" +
            OutlineTable(outline, use, machine, options.tensor_parallel, options.weights.layers) +
            R"(
Left out: the server itself and its workspace, prefill, sampling and scheduling, links between
devices, the rounding of sequences to blocks. The numbers are upper bounds of the machine.
)";
  } else if (memory) {
    const OutlineUse use = UseOf(model, outline, options, *memory);
    const int64_t bytes = OutlineSequenceBytes(outline, use.cache, use.context);
    text += "a sequence of " + FormatCount(use.context) + " positions takes " + FormatBytes(bytes) +
            " in " + std::string(Name(use.cache)) + "; " + FormatBytes(use.memory) +
            " without weights hold " + FormatCount(bytes > 0 ? use.memory / bytes : 0) + "\n";
  }
  std::fputs(text.c_str(), stdout);
}

// The plan of a model that is served, as each kind.
void PlanKinds(const PlanOptions& options, const PlannedModel& model, int64_t memory,
               const std::optional<Machine>& given, const std::optional<Gpu>& gpu) {
  ModelConfig config = *model.config;
  const int64_t context = options.context.value_or(config.max_position_embeddings);
  // As the server with --max-model-len: a window that is no shorter has no effect.
  if (config.HasWindows()) config.max_position_embeddings = context;
  const DeviceKind device = given ? given->device : gpu ? DeviceKind::kCuda : DeviceKind::kCpu;
  const WeightFormats dtypes = PlannedFormats(config, options, device);
  const CacheFormat cache = options.cache.value_or(DefaultCacheFormat(dtypes.layers));
  const std::vector<ModelConfig> kinds = EachKindOf(config, options.groups, options.rank);
  std::vector<KindPlan> plans;
  plans.reserve(kinds.size());
  for (const ModelConfig& kind : kinds) {
    plans.push_back(PlanKind(kind, dtypes, cache, memory, context, device));
  }
  // Measuring takes seconds: everything else is checked by now.
  const Machine machine = MachineOf(options, given, gpu);
  const kernels::Limits& limits = machine.limits;

  std::printf(
      "%s: %s, weights in %s, cache in %s\n"
      "%s"
      "%s; sequences of %s positions\n"
      "%s\n%s\n%s\n%s\n%s%s%s",
      options.model.c_str(), std::string(Name(config.attention)).c_str(),
      WeightsText(dtypes).c_str(), std::string(Name(cache)).c_str(),
      DescribeOutline(model.outline, 1).c_str(), DescribeMemory(memory, device).c_str(),
      FormatCount(context).c_str(), Describe(machine).c_str(),
      MadeWith(config, kinds, options).c_str(), MemoryAndWork(plans, context, machine).c_str(),
      Speeds(plans, context, limits).c_str(), Verdict(plans[2], plans[0], limits, context).c_str(),
      Verdict(plans[2], plans[1], limits, context).c_str(), LeftOut(device));
}

}  // namespace

void Plan(const PlanOptions& options) {
  const PlannedModel model = ReadPlannedModel(options.model);
  const checkpoint::ModelOutline outline = OnEachDevice(model.outline, options.tensor_parallel);
  const std::optional<Machine> given = GivenMachine(options.machine);
  std::optional<Gpu> gpu;
  if (!given && options.device != Name(DeviceKind::kCpu)) gpu = FindGpu(options.device);
  const std::optional<int64_t> memory = options.memory ? options.memory
                                        : gpu          ? std::optional(gpu->free_bytes)
                                        : given && given->memory_bytes > 0
                                            ? std::optional(given->memory_bytes)
                                            : std::nullopt;
  CheckContext(outline.context, options.context, memory.has_value());
  if (!options.write_machine.empty() && (!memory || !outline.weights || options.json)) {
    throw std::invalid_argument(
        "--write-machine: nothing is measured; allowed: with --memory and known weights, without "
        "--json");
  }
  if (options.json) {
    std::optional<OutlineUse> use;
    if (memory) use = UseOf(model, outline, options, *memory);
    std::printf("%s\n", OutlineJson(model, outline, options.tensor_parallel, use).dump(2).c_str());
    return;
  }
  if (memory && model.config && options.tensor_parallel == 1) {
    const DeviceKind device = given ? given->device : gpu ? DeviceKind::kCuda : DeviceKind::kCpu;
    std::string why;
    if (device == DeviceKind::kCpu || gpu || (why = WhyNotOnGpu(*model.config)).empty()) {
      PlanKinds(options, model, *memory, given, gpu);
      return;
    }
    PlanOutline(options, model, outline, "not served on a GPU: " + why, memory, given, gpu);
    return;
  }
  const std::string title =
      model.config ? std::string(Name(model.config->attention)) : "not served: " + model.not_served;
  PlanOutline(options, model, outline, title, memory, given, gpu);
}

}  // namespace triptych::tools
