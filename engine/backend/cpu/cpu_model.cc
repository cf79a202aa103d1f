#include "engine/backend/cpu/cpu_model.h"

#include <algorithm>
#include <utility>

#include "engine/backend/expert_load.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/residual_stream.h"

namespace triptych::cpu {
namespace {

// The cache of each slot of a group of layers. With several groups, the slots are alike.
std::vector<kernels::PagedCache> Slots(const ModelConfig& config, const CacheGeometry& geometry,
                                       const BackendOptions& options) {
  const CacheFormat format = options.cache_format;
  std::vector<kernels::PagedCache> slots;
  for (int64_t i = 0; i < geometry.slots(); ++i) {
    slots.push_back({.elements = nullptr,
                     .format = format,
                     .row_width = CacheRowElements(config, i) - config.NormedKeys(),
                     .block_positions = options.block_positions,
                     .rotation = CacheRotation(config, i, format),
                     .wide = WideNumbers(format, config.qk_rope_head_dim),
                     .inverse_norms = config.NormedKeys()});
  }
  return slots;
}

}  // namespace

CpuModel::CpuModel(const ModelConfig& config, CpuWeights weights, const BackendOptions& options,
                   std::shared_ptr<kernels::KernelContext> context)
    : CpuModel(config, std::make_shared<const CpuWeights>(std::move(weights)), options,
               std::move(context)) {}

CpuModel::CpuModel(const ModelConfig& config, std::shared_ptr<const CpuWeights> weights,
                   const BackendOptions& options, std::shared_ptr<kernels::KernelContext> context)
    : config_(config),
      weights_(std::move(weights)),
      options_(options),
      context_(std::move(context)),
      info_(MakeInfo(config, options, weights_->expand_from)),
      groups_(info_.geometry.Groups().count()),
      cache_(info_.blocks, Slots(config, info_.geometry, options)) {
  info_.cache_bytes = cache_.bytes();
  info_.verifies_drafts = true;
  for (const CpuWeights::Layer& layer : weights_->layers) {
    expanded_widths_.push_back(layer.attention->expanded_width());
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    places_.push_back({info_.geometry.GroupOf(i), info_.geometry.SlotOf(i)});
  }
}

std::unique_ptr<ModelBackend> CpuModel::WithOwnCache(int64_t blocks) const {
  BackendOptions options = options_;
  options.kv_cache_bytes = blocks * info_.geometry.BlockBytes();
  return std::unique_ptr<CpuModel>(new CpuModel(config_, weights_, options, context_));
}

std::unique_ptr<PromptScratch> CpuModel::MakePromptScratch(int64_t prompt) {
  if (prompt <= info_.expand_from.value_or(prompt)) return nullptr;
  return ExpandedPrompt::Make(prompt, expanded_widths_, MostScratchBytes(config_), expanded_bytes_);
}

std::span<const float> CpuModel::Step(const StepInput& step) {
  CheckStep(step, info_);
  CutIntoRuns(step);
  const int64_t tokens = step_.tokens(), rows = std::ssize(step.logit_rows);
  const int64_t width = config_.hidden_size, vocab = config_.vocab_size;
  if (std::ssize(logits_) < rows * vocab) logits_.resize(rows * vocab);

  kernels::KernelContext& context = *context_;
  const kernels::Workspace::Scope scope(context.workspace);
  float* const x = context.workspace.Floats(tokens * width);
  float* const normal = context.workspace.Floats(std::max(tokens, rows) * width);
  float* const branch = context.workspace.Floats(std::max(tokens, rows) * width);
  Embed(step, x);
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const CpuWeights::Layer& layer = weights_->layers[i];
    for (size_t run = 0; run < prompts_.size(); ++run) {
      step_.kept[run] = prompts_[run] != nullptr ? &prompts_[run]->layer(i) : nullptr;
      step_.runs[run].blocks = tables_[run] + places_[i].group;
    }
    if (config_.norm_inputs) Normalize(layer.attention_norm, x, tokens, normal);
    layer.attention->Attend(config_.norm_inputs ? normal : x, step_, cache(i), context, branch);
    AddBranch(layer.attention_output_norm, branch, tokens, normal, x);
    if (config_.NormsMlpInput()) Normalize(layer.mlp_norm, x, tokens, normal);
    layer.mlp->Apply(config_.norm_inputs ? normal : x, tokens, branch, context);
    AddBranch(layer.mlp_output_norm, branch, tokens, normal, x);
  }
  float* const wanted = branch;  // [rows, D]
  kernels::CopyRows(TensorFormat::kFloat32, x, step.logit_rows.data(), rows, width, wanted,
                    context);
  Normalize(weights_->final_norm, wanted, rows, normal);
  weights_->output.Apply(normal, rows, logits_.data(), context);
  if (config_.final_logit_softcapping > 0) {
    kernels::Softcap(logits_.data(), rows * vocab,
                     static_cast<float>(config_.final_logit_softcapping), context);
  }
  return {logits_.data(), static_cast<size_t>(rows * vocab)};
}

std::optional<ExpertLoad> CpuModel::expert_load() const {
  if (config_.experts.n_routed_experts == 0) return std::nullopt;
  ExpertLoad load;
  for (const CpuWeights::Layer& layer : weights_->layers) {
    AddExpertLoad(layer.mlp->expert_rows(), load);
  }
  return load;
}

void CpuModel::CutIntoRuns(const StepInput& step) {
  step_.positions.clear();
  step_.runs.clear();
  step_.expand.clear();
  prompts_.clear();
  tables_.clear();
  for (const StepInput::Sequence& sequence : step.sequences) {
    const int64_t begin = sequence.start, end = sequence.start + sequence.count;
    const int64_t expand_begin = std::clamp(info_.expand_from.value_or(end), begin, end);
    const int64_t expand_end = std::clamp(sequence.prompt, expand_begin, end);
    auto* const kept = static_cast<ExpandedPrompt*>(sequence.scratch);
    if (kept != nullptr) kept->Truncate(begin);
    const auto add = [&](int64_t from, int64_t to, bool expand) {
      if (from == to) return;
      step_.runs.push_back({sequence.blocks, from, to - from, groups_});
      tables_.push_back(sequence.blocks);
      step_.expand.push_back(expand);
      prompts_.push_back(expand ? kept : nullptr);
    };
    add(begin, expand_begin, false);
    add(expand_begin, expand_end, true);
    add(expand_end, end, false);
    for (int64_t position = begin; position < end; ++position) {
      step_.positions.push_back(position);
    }
  }
  step_.kept.resize(step_.runs.size());
}

void CpuModel::Embed(const StepInput& step, float* y) {
  const int64_t tokens = step_.tokens(), width = config_.hidden_size;
  const kernels::PackedLinear& embedding =
      weights_->embedding ? *weights_->embedding : weights_->output;
  embedding.CopyWeights(step.ids.data(), tokens, y, *context_);
  if (config_.embedding_multiplier != 1) {
    const auto multiplier = static_cast<float>(config_.embedding_multiplier);
    std::for_each(y, y + tokens * width, [=](float& element) { element *= multiplier; });
  }
  if (weights_->positions.empty()) return;
  kernels::AddRows(TensorFormat::kFloat32, weights_->positions.data(), step_.positions.data(),
                   tokens, width, y, *context_);
}

void CpuModel::Normalize(const CpuWeights::Norm& norm, const float* x, int64_t rows, float* y) {
  const int64_t width = config_.hidden_size;
  const auto eps = static_cast<float>(config_.norm_eps);
  switch (config_.norm) {
    case NormKind::kRmsNorm:
      kernels::RmsNormRows(x, width, rows, width, norm.weight.data(), eps, y, width, *context_);
      break;
    case NormKind::kLayerNorm: {
      const float* const bias = norm.bias.empty() ? nullptr : norm.bias.data();
      kernels::LayerNormRows(x, width, rows, width, norm.weight.data(), bias, eps, y, width,
                             *context_);
      break;
    }
  }
}

void CpuModel::AddBranch(const CpuWeights::Norm& norm, const float* branch, int64_t rows,
                         float* normal, float* x) {
  if (config_.norm_outputs) Normalize(norm, branch, rows, normal);
  kernels::Add(config_.norm_outputs ? normal : branch, rows * config_.hidden_size, x, *context_);
}

}  // namespace triptych::cpu
