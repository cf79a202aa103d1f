#include "engine/tools/plan/capacity.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "engine/backend/cpu/cost_model.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/server_bytes.h"
#include "engine/base/ceil_div.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/model/conversion_spec.h"

namespace triptych::tools {
namespace {

// Width of the decoupled keys of a rotary model that becomes MLA, in the proportion of published
// models; else 0.
int64_t RotaryKeyWidth(const ModelConfig& config) {
  if (config.attention == AttentionKind::kMla ||
      config.position_embedding != PositionEmbedding::kRope) {
    return 0;
  }
  return 2 * CeilDiv(config.head_dim, int64_t{4});
}

// The most groups with rows no wider than the latent's; at least one.
int64_t MatchedGroups(const ModelConfig& config, const ModelConfig& latent) {
  for (int64_t groups = config.num_key_value_heads; groups > 1; --groups) {
    if (config.num_key_value_heads % groups != 0) continue;
    if (ElementsPerPosition(WithGroups(config, AttentionKind::kGqa, groups)) <=
        ElementsPerPosition(latent)) {
      return groups;
    }
  }
  return 1;
}

double CoreSeconds(const KindPlan& plan, const kernels::Limits& limits, double positions) {
  return kernels::LeastSeconds(
      limits, AttentionFlops(plan, limits),
      positions * static_cast<double>(plan.info.geometry.BytesPerPosition()),
      positions * static_cast<double>(plan.cost.core_flops));
}

double ProductSeconds(const KindPlan& plan, const kernels::Limits& limits, int64_t batch) {
  const auto all = static_cast<double>(plan.cost.product_flops);
  const auto of_output = static_cast<double>(plan.cost.output_flops);
  const auto of_experts = static_cast<double>(plan.cost.expert_flops);
  const double seconds =
      (all - of_output - of_experts) / kernels::PeakFlops(limits, plan.dtypes.layers) +
      of_output / kernels::PeakFlops(limits, plan.dtypes.embeddings) +
      of_experts / kernels::PeakFlops(limits, plan.dtypes.experts);
  const auto tokens = static_cast<double>(batch);
  return kernels::LeastSeconds(limits, all / seconds,
                               cpu::ReadBytes(plan.config, plan.cost, tokens), tokens * all);
}

}  // namespace

std::vector<ModelConfig> EachKindOf(const ModelConfig& config, std::optional<int64_t> groups,
                                    std::optional<int64_t> rank) {
  const auto check = [](const char* flag, std::optional<int64_t> value, bool allowed,
                        const std::string& what) {
    if (!value || allowed) return;
    throw std::invalid_argument(std::string(flag) + ": " + std::to_string(*value) +
                                "; allowed: " + what);
  };
  const int64_t stored = config.num_key_value_heads;
  check("--groups", groups, groups > 0 && *groups <= stored && stored % *groups == 0,
        "divisors of the model's " + std::to_string(stored) + " key/value heads");
  int64_t most = FullRank(config, RotaryKeyWidth(config));
  for (const int64_t own : config.kv_lora_rank) most = std::max(most, own);
  check("--rank", rank, rank > 0 && *rank <= most, "1 to " + std::to_string(most));

  ModelConfig mla = config;
  if (config.attention != AttentionKind::kMla) {
    // Norms that no conversion keeps are left out.
    mla.qk_norm = HasInverseNorms(config);
    mla.qk_norm_all_heads = false;
    mla = ConvertedShape(mla, {.attention = AttentionKind::kMla,
                               .rank = rank.value_or(0),
                               .rope_head_dim = RotaryKeyWidth(config)});
  } else if (rank) {
    mla = WithLatents(config, std::vector<int64_t>(config.num_hidden_layers, *rank));
  }
  const int64_t shared = groups.value_or(
      config.attention == AttentionKind::kGqa ? stored : MatchedGroups(config, mla));
  const auto grouped = [&](AttentionKind kind, int64_t heads) {
    if (kind == config.attention && heads == stored) return config;
    return ConvertedShape(config, {.attention = kind, .groups = heads});
  };
  return {grouped(AttentionKind::kMha, config.num_attention_heads),
          grouped(AttentionKind::kGqa, shared), mla};
}

KindPlan PlanKind(const ModelConfig& config, const WeightFormats& dtypes, CacheFormat cache,
                  int64_t memory, int64_t context, DeviceKind device) {
  std::optional<int64_t> expand_from;
  if (device == DeviceKind::kCpu) expand_from = cpu::ExpandFrom(config, {});
  KindPlan plan{.config = config,
                .dtypes = dtypes,
                .device = device,
                .cost = cpu::CountStep(config, dtypes, expand_from)};
  BackendOptions backend{.cache_format = cache};
  switch (device) {
    case DeviceKind::kCpu:
      plan.server_bytes = kServerBytes;
      if (expand_from) plan.prompt_bytes = MostScratchBytes(config);
      break;
    case DeviceKind::kCuda: {
      backend.max_step_tokens = kDefaultGpuBatchTokens;
      const CudaModelBytes bytes = CountCudaModelBytes(config, backend);
      plan.cost.weight_bytes = bytes.weights;
      // Matrices are not padded on a GPU: two bytes and two FLOP (a multiply-add) for each weight.
      plan.cost.read_bytes = plan.cost.product_flops;
      plan.server_bytes = bytes.workspace;
      break;
    }
  }
  const int64_t block_bytes =
      MakeCacheGeometry(config, cache, backend.block_positions).BlockBytes();
  const int64_t rest = plan.cost.weight_bytes + plan.prompt_bytes + plan.server_bytes;
  if (memory - rest < block_bytes) {
    throw std::invalid_argument(
        "--memory: " + std::to_string(memory) + " bytes do not suffice for " +
        std::string(Name(config.attention)) + ": weights take " +
        std::to_string(plan.cost.weight_bytes) +
        (device == DeviceKind::kCuda ? ", the workspace " : ", the server itself ") +
        std::to_string(plan.server_bytes) + ", expanded prompts " +
        std::to_string(plan.prompt_bytes) + " and a block of the cache " +
        std::to_string(block_bytes));
  }
  plan.cache_bytes = backend.kv_cache_bytes = memory - rest;
  plan.info = MakeInfo(config, backend, expand_from);
  plan.info.cache_bytes = plan.info.blocks * block_bytes;
  // Decoding sequences: windows hold no more than a block besides their positions.
  plan.sequences = plan.info.blocks / plan.info.geometry.Groups().MostBlocks(
                                          context, /*chunk=*/1, backend.block_positions);
  return plan;
}

double AttentionFlops(const KindPlan& plan, const kernels::Limits& limits) {
  switch (plan.device) {
    case DeviceKind::kCpu:
      return limits.float32_flops;
    case DeviceKind::kCuda:
      return limits.bfloat16_flops;
  }
  return 0;
}

double AttendedPositions(const KindPlan& plan, double context) {
  const LayerGroups groups = plan.info.geometry.Groups();
  const auto full = static_cast<double>(groups.full);
  const auto windowed = static_cast<double>(groups.windowed);
  return (full * context + windowed * std::min(context, static_cast<double>(groups.window))) /
         (full + windowed);
}

double StepSeconds(const KindPlan& plan, const kernels::Limits& limits, int64_t batch,
                   double context) {
  return ProductSeconds(plan, limits, batch) +
         CoreSeconds(plan, limits, static_cast<double>(batch) * AttendedPositions(plan, context));
}

Crossover FindCrossover(const KindPlan& a, const KindPlan& b, const kernels::Limits& limits,
                        int64_t batch, int64_t context) {
  const auto gain = [&](double positions) {
    return StepSeconds(b, limits, batch, positions) - StepSeconds(a, limits, batch, positions);
  };
  // The time of a step is linear in the positions up to a window, and from there on.
  std::vector<double> ends = {static_cast<double>(context)};
  for (const KindPlan* plan : {&a, &b}) {
    const auto window = static_cast<double>(plan->info.geometry.window);
    if (window > 1 && window < static_cast<double>(context)) ends.push_back(window);
  }
  std::sort(ends.begin(), ends.end());
  Crossover crossover{.at_first = gain(1) > 0};
  double begin = 1;
  for (const double end : ends) {
    const double first = gain(begin), last = gain(end);
    if ((first > 0) != (last > 0)) {
      crossover.positions = begin + first / (first - last) * (end - begin);
      break;
    }
    begin = end;
  }
  return crossover;
}

}  // namespace triptych::tools
