#include "engine/backend/cuda/cuda_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda/attention_kernels.h"
#include "engine/backend/cuda/device_memory.h"
#include "engine/backend/cuda/device_weights.h"
#include "engine/backend/cuda/experts.h"
#include "engine/backend/cuda/host_results.h"
#include "engine/backend/cuda/likely_tokens.h"
#include "engine/backend/cuda/matmul.h"
#include "engine/backend/cuda/row_kernels.h"
#include "engine/backend/cuda/step_buffers.h"
#include "engine/backend/cuda/workspace.h"
#include "engine/backend/expert_load.h"
#include "engine/base/error.h"
#include "engine/model/latent_shape.h"

namespace triptych {
namespace {

using namespace cuda;  // NOLINT: this folder's own

constexpr int64_t kMostStepTokens = 32768;
static_assert(kMostStepTokens + 64 <= kMostGridRows);  // padding adds at most 63 rows
constexpr size_t kMostGraphs = 128;
constexpr int kMostGraphRows = 512;
// Products of fewer rows take as long: an H100 multiplies some 260 rows in the time in which it
// reads a matrix. The launches of a mixed step, which has no graph, also cost the same for all
// rows.
constexpr int64_t kLeastPrefillRows = 256;

// Makes a device the current one of the calling thread.
int Select(int device) {
  Check(cudaSetDevice(device));
  return device;
}

}  // namespace

void CheckServedByCuda(const ModelConfig& config, const BackendOptions& options) {
  if (options.max_step_tokens > kMostStepTokens) {
    throw LoadError("a step of " + std::to_string(options.max_step_tokens) +
                    " tokens (--max-batch-tokens) is too long for the CUDA backend; allowed: at "
                    "most " +
                    std::to_string(kMostStepTokens) + "; --device cpu serves it");
  }
  constexpr int kMostHeads = kMostGridRows;
  constexpr int64_t kMostWidth = 12000;  // of a query and a value in shared memory
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const AttentionLayout layout = LayoutOf(config, i, /*block_positions=*/1);
    const int64_t width = int64_t{layout.key_width} + layout.value_width;
    if (layout.heads > kMostHeads || width > kMostWidth) {
      throw LoadError("layer " + std::to_string(i) + ": " + std::to_string(layout.heads) +
                      " heads whose keys and values have " + std::to_string(width) +
                      " elements; the CUDA backend allows at most " + std::to_string(kMostHeads) +
                      " and " + std::to_string(kMostWidth) + "; --device cpu serves it");
    }
  }
}

class CudaModel::Impl {
 public:
  Impl(const ModelConfig& config, CudaWeightSource& weights, const BackendOptions& options,
       int device, const std::function<void(int64_t)>& on_layer);

  std::span<const float> Step(const StepInput& step);
  std::span<const LikelyTokens> likely() const { return host_results_.likely(); }
  std::span<const float> FetchLogits(std::span<const int64_t> likely_rows);
  const BackendInfo& info() const { return info_; }
  std::optional<ExpertLoad> expert_load() const;
  float device_milliseconds() const { return milliseconds_; }
  int64_t weight_bytes_read(int64_t tokens) const;

 private:
  // Names of the kernels that serve the model.
  std::string DescribeKernels() const;
  bool latent() const { return config_.attention == AttentionKind::kMla; }
  DeviceArray<float> Upload(const CudaVector& vector);
  DeviceMatrix Upload(const CudaMatrix& matrix);
  // Memory for `count` matrices of a shape.
  DeviceMatrix Allocate(const CudaMatrix& shape, int64_t count);
  // Copies or makes up the elements of matrix `index` of those.
  void Fill(const CudaMatrix& matrix, int64_t index, DeviceMatrix& to);
  DeviceNorm Upload(const CudaNorm& norm);
  DeviceLayer UploadLayer(const CudaLayerWeights& from, int64_t index);
  void UploadExperts(CudaWeightSource& weights, int64_t index, DeviceLayer& layer);
  ExpertRouter RouterOf(const DeviceLayer& layer) const;
  void PrepareMatmuls();

  // Enqueues the layers of a step. REQUIRES: the step's buffers are sent.
  void EnqueueLayers(const StepShape& shape);
  // Enqueues the logits of rows first to first + count - 1 of the requested ones, and their likely
  // tokens if `find_likely`.
  void EnqueueLogits(int first, int count, bool find_likely);
  void AttendGrouped(const DeviceLayer& layer, const StepShape& shape);
  void AttendLatent(const DeviceLayer& layer, const StepShape& shape);
  // Attends the step's expanded rows of MLA. REQUIRES: their queries and latents are written.
  void AttendExpanded(const DeviceLayer& layer);
  void Attend(const DeviceLayer& layer, const StepShape& shape);
  void Mlp(const DeviceLayer& layer, const StepShape& shape);
  // Writes the activated inputs of mlp_down to the workspace.
  void ActivateMlp(const DeviceLayer& layer, const StepShape& shape);
  void Experts(const DeviceLayer& layer, const StepShape& shape);
  NormParameters ParametersOf(const DeviceNorm& norm) const;
  // Without weights, only rounds. REQUIRES: weights, or no order.
  void Normalize(const DeviceNorm& norm, const int32_t* order, int rows, BFloat16* y);
  // A branch, attention or the MLP, adds its output to branch_sum(): the residual stream, or zeros
  // whose norm is added to the residual stream when the branch ends.
  void BeginBranch(const StepShape& shape);
  void EndBranch(const DeviceNorm& output_norm, const StepShape& shape);
  float* branch_sum() const {
    return config_.norm_outputs ? workspace_.branch.get() : workspace_.residual.get();
  }
  // branch_sum() += x w^T + bias
  void AddToBranch(const DeviceMatrix& matrix, const DeviceArray<float>& bias, const BFloat16* x,
                   const StepShape& shape);
  // Multiplies decode rows and prefill rows, each by the algorithm of their kind.
  void Multiply(const DeviceMatrix& matrix, const BFloat16* x, void* y, const StepShape& shape);

  const ModelConfig config_;
  const int device_;
  BackendInfo info_;
  const int64_t max_step_tokens_;
  Stream stream_;
  Event begin_, end_;
  Matmuls matmuls_;
  DeviceArray<float> positions_;
  DeviceArray<float> rotation_, local_rotation_;
  DeviceNorm final_norm_;
  DeviceMatrix embedding_;  // undefined if tied to output_
  DeviceMatrix output_;
  std::vector<DeviceArray<BFloat16>> caches_;      // of each slot of the cache's geometry
  std::vector<DeviceArray<float>> inverse_norms_;  // likewise; [0] unless keys are normed
  std::vector<DeviceLayer> layers_;

  StepBuffers buffers_;
  Workspace workspace_;
  HostResults host_results_;
  PinnedArray<float> fetched_logits_;
  PinnedArray<int64_t> fetched_totals_;              // as in the workspace
  std::vector<std::atomic<int64_t>> expert_totals_;  // those of the last step, for any thread
  std::map<StepShape, Graph> graphs_;
  float milliseconds_ = 0;
};

CudaModel::Impl::Impl(const ModelConfig& config, CudaWeightSource& weights,
                      const BackendOptions& options, int device,
                      const std::function<void(int64_t)>& on_layer)
    : config_(config),
      device_(Select(device)),
      info_(MakeInfo(config, options, ExpandFrom(config, options))),
      max_step_tokens_(options.max_step_tokens),
      stream_(MakeStream()),
      begin_(MakeEvent()),
      end_(MakeEvent()),
      matmuls_(stream_.get()),
      buffers_(SizeWorkspace(config, options).expansion,
               static_cast<int>(info_.geometry.Groups().count())) {
  if (options.cache_format != CacheFormat::kBFloat16) {
    throw LoadError("the CUDA backend supports only a cache in bfloat16, not " +
                    std::string(Name(options.cache_format)));
  }
  CheckServedByCuda(config, options);
  const int64_t block_positions = info_.geometry.block_positions;
  const int64_t cache_rows = info_.blocks * block_positions;  // of a slot
  if (cache_rows > std::numeric_limits<int32_t>::max()) {
    throw LoadError("a KV cache of " + std::to_string(cache_rows) +
                    " positions is too large for the CUDA backend; allowed: at most " +
                    std::to_string(std::numeric_limits<int32_t>::max()));
  }
  info_.prompt_rows_differ = true;
  info_.least_prefill_rows = kLeastPrefillRows;
  info_.likely_tokens = LikelyTokenCount(config.vocab_size);
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, device_));
  info_.device_memory.emplace().device = "cuda:" + std::to_string(device_) + ", " + properties.name;
  PrepareGroupedPrefill();
  PrepareLatentAttention();
  PrepareExpandedPrefill();
  PrepareExperts();
  {
    const CudaSharedWeights shared = weights.Shared();
    positions_ = Upload(shared.positions);
    rotation_ = Upload(shared.rotation);
    local_rotation_ = Upload(shared.local_rotation);
    final_norm_ = Upload(shared.final_norm);
  }
  embedding_ = Upload(weights.Embedding());
  output_ = Upload(weights.Output());
  output_.shape = Dense(output_.inputs, output_.outputs, MatmulOutput::kFloat32);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(UploadLayer(weights.Layer(i), i));
    if (config.HasExperts(i)) UploadExperts(weights, i, layers_.back());
    if (on_layer) on_layer(i + 1);
  }
  Check(cudaDeviceSynchronize());  // copies from pageable memory may be pending
  PrepareMatmuls();                // allocates trial buffers, so before the cache takes the rest
  // Layers of different groups share the memory of a slot: they have other blocks.
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i), slot = info_.geometry.SlotOf(layer);
    if (slot == std::ssize(caches_)) {
      caches_.emplace_back(cache_rows * layers_[i].layout.row_width);
      inverse_norms_.emplace_back(cache_rows * layers_[i].layout.normed_keys);
      info_.cache_bytes += caches_.back().bytes() + inverse_norms_.back().bytes();
    }
    layers_[i].cache = caches_[slot].get();
    layers_[i].inverse_norms = inverse_norms_[slot].get();
    layers_[i].group = static_cast<int>(info_.geometry.GroupOf(layer));
  }
  const WorkspaceSizes sizes = SizeWorkspace(config, options);
  workspace_ = Workspace(sizes);
  if (sizes.expert_totals > 0) {
    const DeviceArray<int64_t>& totals = workspace_.expert_totals;
    Check(cudaMemsetAsync(totals.get(), 0, totals.bytes(), stream_.get()));
    fetched_totals_ = PinnedArray<int64_t>(totals.size());
    expert_totals_ = std::vector<std::atomic<int64_t>>(totals.size());
    int64_t* next = totals.get();
    for (DeviceLayer& layer : layers_) {
      if (!layer.experts_in.defined()) continue;
      layer.expert_totals = next;
      next += config.experts.n_routed_experts;
    }
  }
  info_.device_memory->workspace_bytes = sizes.bytes();
  info_.device_memory->kernels = DescribeKernels();
}

DeviceArray<float> CudaModel::Impl::Upload(const CudaVector& vector) {
  DeviceArray<float> array =
      vector.elements.empty() ? DeviceArray<float>(std::vector<float>(vector.size, vector.constant))
                              : DeviceArray<float>(vector.elements);
  info_.device_memory->weight_bytes += array.bytes();
  return array;
}

DeviceNorm CudaModel::Impl::Upload(const CudaNorm& norm) {
  return {Upload(norm.weight), Upload(norm.bias)};
}

DeviceMatrix CudaModel::Impl::Upload(const CudaMatrix& matrix) {
  DeviceMatrix to = Allocate(matrix, 1);
  Fill(matrix, 0, to);
  return to;
}

DeviceMatrix CudaModel::Impl::Allocate(const CudaMatrix& shape, int64_t count) {
  DeviceMatrix to{.outputs = shape.outputs,
                  .inputs = shape.inputs,
                  .elements = DeviceArray<BFloat16>(count * shape.outputs * shape.inputs),
                  .shape = {}};
  info_.device_memory->weight_bytes += to.elements.bytes();
  return to;
}

void CudaModel::Impl::Fill(const CudaMatrix& matrix, int64_t index, DeviceMatrix& to) {
  const int64_t size = matrix.outputs * matrix.inputs;
  BFloat16* const elements = to.elements.get() + index * size;
  if (!matrix.elements.empty()) {
    Check(cudaMemcpy(elements, matrix.elements.data(), size * sizeof(BFloat16),
                     cudaMemcpyHostToDevice));
  } else {
    FillRandom(elements, size, static_cast<uint64_t>(matrix.outputs + index),
               1 / std::sqrt(static_cast<float>(matrix.inputs)), stream_.get());
  }
}

DeviceLayer CudaModel::Impl::UploadLayer(const CudaLayerWeights& from, int64_t index) {
  DeviceLayer to;
  to.attention_norm = Upload(from.attention_norm);
  to.attention_output_norm = Upload(from.attention_output_norm);
  to.in = Upload(from.in);
  to.in_bias = Upload(from.in_bias);
  to.q_norm = Upload(from.q_norm);
  to.k_norm = Upload(from.k_norm);
  to.query_norm = Upload(from.query_norm);
  to.query_up = Upload(from.query_up);
  to.query_up_bias = Upload(from.query_up_bias);
  to.latent_norm = Upload(from.latent_norm);
  to.uk = Upload(from.uk);
  to.uv = Upload(from.uv);
  to.o = Upload(from.o);
  to.o_bias = Upload(from.o_bias);
  to.mlp_norm = Upload(from.mlp_norm);
  to.mlp_in = Upload(from.mlp_in);
  to.mlp_in_bias = Upload(from.mlp_in_bias);
  to.mlp_down = Upload(from.mlp_down);
  to.mlp_down_bias = Upload(from.mlp_down_bias);
  to.router = Upload(from.router);
  to.router_bias = Upload(from.router_bias);
  to.shared_gate = Upload(from.shared_gate);
  to.mlp_output_norm = Upload(from.mlp_output_norm);

  if (config_.Rotates(index)) {
    to.rotation = config_.TurnsLocally(index) ? local_rotation_.get() : rotation_.get();
  }
  to.cap = static_cast<float>(config_.attn_logit_softcapping);
  to.window = static_cast<int>(std::min<int64_t>(config_.Window(index), kEveryPosition));
  to.layout = LayoutOf(config_, index, info_.geometry.block_positions);
  if (latent()) {
    const LatentShape shape = LatentShapeOf(config_, index);
    to.scale = static_cast<float>(shape.reduced_scale());
    if (to.uk.defined()) {
      to.uk.shape = {.inputs = shape.d_qk,
                     .outputs = shape.rank,
                     .output = MatmulOutput::kBFloat16,
                     .transposed = false,
                     .heads = shape.heads,
                     .x_stride = shape.heads * shape.d_qk,
                     .y_stride = shape.heads * to.layout.key_width,
                     .x_head_stride = shape.d_qk,
                     .y_head_stride = to.layout.key_width};
      to.uv.shape = {.inputs = shape.rank,
                     .outputs = shape.d_v,
                     .output = MatmulOutput::kBFloat16,
                     .transposed = false,
                     .heads = shape.heads,
                     .x_stride = shape.heads * shape.rank,
                     .y_stride = shape.heads * shape.d_v,
                     .x_head_stride = shape.rank,
                     .y_head_stride = shape.d_v};
      to.expands = info_.expand_from && ExpandsPrompts(config_, index, to.layout.block_positions);
      to.expand_keys = {.inputs = shape.rank,
                        .outputs = shape.d_qk,
                        .output = MatmulOutput::kBFloat16,
                        .transposed = true,
                        .heads = shape.heads,
                        .x_stride = to.layout.row_width,
                        .y_stride = shape.heads * shape.d_qk,
                        .x_head_stride = 0,
                        .y_head_stride = shape.d_qk};
      to.expand_values = Dense(shape.rank, shape.heads * shape.d_v, MatmulOutput::kBFloat16);
      to.expand_values.x_stride = to.layout.row_width;
    }
  } else {
    to.scale = static_cast<float>(config_.ScoreFactor(index) /
                                  std::sqrt(static_cast<double>(config_.head_dim)));
  }
  for (DeviceMatrix* matrix : {&to.in, &to.query_up}) {
    matrix->shape = Dense(matrix->inputs, matrix->outputs, MatmulOutput::kFloat32);
  }
  for (DeviceMatrix* matrix : {&to.o, &to.mlp_down}) {
    matrix->shape = Dense(matrix->inputs, matrix->outputs, MatmulOutput::kAddFloat32);
  }
  to.mlp_in.shape = Dense(to.mlp_in.inputs, to.mlp_in.outputs, MatmulOutput::kBFloat16);
  if (config_.HasExperts(index)) to.mlp_down.shape.output = MatmulOutput::kFloat32;
  return to;
}

void CudaModel::Impl::UploadExperts(CudaWeightSource& weights, int64_t index, DeviceLayer& layer) {
  const int64_t count = config_.experts.n_routed_experts;
  const CudaExpert shapes = ExpertShapes(config_);
  DeviceMatrix& in = layer.experts_in = Allocate(shapes.in, count);
  DeviceMatrix& down = layer.experts_down = Allocate(shapes.down, count);
  in.shape = Dense(in.inputs, in.outputs, MatmulOutput::kBFloat16);
  down.shape = Dense(down.inputs, down.outputs, MatmulOutput::kFloat32);
  for (int64_t i = 0; i < count; ++i) {
    const CudaExpert expert = weights.Expert(index, i);
    Fill(expert.in, i, in);
    Fill(expert.down, i, down);
  }
}

ExpertRouter CudaModel::Impl::RouterOf(const DeviceLayer& layer) const {
  const ExpertsConfig& experts = config_.experts;
  return {.matrix = layer.router.get(),
          .bias = layer.router_bias.get(),
          .width = static_cast<int>(config_.hidden_size),
          .experts = static_cast<int>(experts.n_routed_experts),
          .choices = static_cast<int>(experts.num_experts_per_tok),
          .sigmoid = experts.scoring_func == ScoringFunc::kSigmoid,
          .groups = static_cast<int>(experts.n_group),
          .chosen_groups = static_cast<int>(experts.topk_group),
          .best_of_group = experts.topk_method == TopkMethod::kNoauxTc ? 2 : 1,
          .normalize = experts.norm_topk_prob,
          .scale = static_cast<float>(experts.routed_scaling_factor)};
}

void CudaModel::Impl::PrepareMatmuls() {
  // Only a few rows of any step need logits.
  matmuls_.Prepare(RowKind::kDecode, output_.shape, output_.elements.get());
  for (const DeviceLayer& layer : layers_) {
    for (const DeviceMatrix* matrix : {&layer.in, &layer.query_up, &layer.uk, &layer.uv, &layer.o,
                                       &layer.mlp_in, &layer.mlp_down}) {
      if (!matrix->defined()) continue;
      for (const RowKind kind : {RowKind::kDecode, RowKind::kPrefill}) {
        matmuls_.Prepare(kind, matrix->shape, matrix->elements.get());
      }
    }
    if (!layer.expands) continue;
    matmuls_.Prepare(RowKind::kPrefill, layer.expand_keys, layer.uk.elements.get());
    matmuls_.Prepare(RowKind::kPrefill, layer.expand_values, layer.uv.elements.get());
  }
}

std::span<const float> CudaModel::Impl::Step(const StepInput& step) {
  CheckStep(step, info_);
  if (step.ids.empty()) return {};
  const auto tokens = static_cast<int64_t>(step.ids.size());
  if (tokens > max_step_tokens_) {
    throw std::out_of_range("a step of " + std::to_string(tokens) +
                            " tokens; allowed: " + std::to_string(max_step_tokens_));
  }
  Select(device_);
  cudaStream_t const stream = stream_.get();
  const StepShape& shape = buffers_.Write(step, info_.geometry.block_positions);
  host_results_.Reserve(static_cast<int64_t>(step.likely_rows.size()),
                        static_cast<int64_t>(step.logit_rows.size()), config_.vocab_size);
  if (buffers_.Send(stream) || graphs_.size() >= kMostGraphs) graphs_.clear();

  const auto enqueue = [&] {
    EnqueueLayers(shape);
    if (shape.logit_rows > 0 && shape.logit_rows <= kLogitRows) {
      EnqueueLogits(0, shape.logit_rows, shape.finds_likely);
    }
  };
  cudaGraphExec_t graph = nullptr;
  if (shape.prefill_rows == 0 && shape.decode_rows <= kMostGraphRows) {
    auto found = graphs_.find(shape);
    if (found == graphs_.end()) found = graphs_.emplace(shape, Capture(stream, enqueue)).first;
    graph = found->second.get();
  }
  Check(cudaEventRecord(begin_.get(), stream));
  if (graph != nullptr) {
    Check(cudaGraphLaunch(graph, stream));
  } else {
    enqueue();
  }
  Check(cudaEventRecord(end_.get(), stream));
  const auto rows = static_cast<int64_t>(step.likely_rows.size() + step.logit_rows.size());
  for (int64_t first = 0; first < rows; first += kLogitRows) {
    const int64_t count = std::min(kLogitRows, rows - first);
    if (shape.logit_rows > kLogitRows) {
      EnqueueLogits(static_cast<int>(first), static_cast<int>(count), shape.finds_likely);
    }
    host_results_.EnqueueCopy(workspace_, first, count, stream);
  }
  if (!expert_totals_.empty()) {
    const DeviceArray<int64_t>& totals = workspace_.expert_totals;
    Check(cudaMemcpyAsync(fetched_totals_.get(), totals.get(), totals.bytes(),
                          cudaMemcpyDeviceToHost, stream));
  }
  Check(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < expert_totals_.size(); ++i) {
    expert_totals_[i].store(fetched_totals_.get()[i], std::memory_order_relaxed);
  }
  Check(cudaEventElapsedTime(&milliseconds_, begin_.get(), end_.get()));
  return host_results_.Finish();
}

std::span<const float> CudaModel::Impl::FetchLogits(std::span<const int64_t> likely_rows) {
  Select(device_);
  cudaStream_t const stream = stream_.get();
  const int64_t vocab = config_.vocab_size, rows = std::ssize(likely_rows);
  if (fetched_logits_.size() < rows * vocab) {
    fetched_logits_ = {};
    fetched_logits_ = PinnedArray<float>(rows * vocab);
  }
  for (int64_t i = 0; i < rows; ++i) {
    // With more than kLogitRows rows the workspace does not hold them all; these are then computed
    // again, to the same bits.
    const bool there = buffers_.shape().logit_rows <= kLogitRows;
    if (!there) EnqueueLogits(static_cast<int>(likely_rows[i]), 1, false);
    Check(cudaMemcpyAsync(fetched_logits_.get() + i * vocab,
                          workspace_.logits.get() + (there ? likely_rows[i] * vocab : 0),
                          static_cast<size_t>(vocab) * sizeof(float), cudaMemcpyDeviceToHost,
                          stream));
  }
  Check(cudaStreamSynchronize(stream));
  return {fetched_logits_.get(), static_cast<size_t>(rows * vocab)};
}

void CudaModel::Impl::EnqueueLayers(const StepShape& shape) {
  const DeviceMatrix& tokens = embedding_.defined() ? embedding_ : output_;
  Embed({.tokens = tokens.elements.get(),
         .positions = positions_.get(),
         .multiplier = static_cast<float>(config_.embedding_multiplier),
         .width = static_cast<int>(config_.hidden_size)},
        buffers_.ids(), buffers_.positions(), shape.rows(), workspace_.residual.get(),
        stream_.get());
  for (const DeviceLayer& layer : layers_) {
    Normalize(layer.attention_norm, nullptr, shape.rows(), workspace_.normal.get());
    Multiply(layer.in, workspace_.normal.get(), workspace_.projected.get(), shape);
    BeginBranch(shape);
    latent() ? AttendLatent(layer, shape) : AttendGrouped(layer, shape);
    EndBranch(layer.attention_output_norm, shape);
    if (!config_.use_parallel_residual) {
      Normalize(layer.mlp_norm, nullptr, shape.rows(), workspace_.normal.get());
    }
    BeginBranch(shape);
    Mlp(layer, shape);
    EndBranch(layer.mlp_output_norm, shape);
  }
}

void CudaModel::Impl::EnqueueLogits(int first, int count, bool find_likely) {
  Normalize(final_norm_, buffers_.logit_rows() + first, count, workspace_.logit_inputs.get());
  matmuls_.Run(RowKind::kDecode, output_.shape, output_.elements.get(),
               workspace_.logit_inputs.get(), count, workspace_.logits.get());
  if (config_.final_logit_softcapping > 0) {
    CapLogits(workspace_.logits.get(), static_cast<float>(config_.final_logit_softcapping),
              count * config_.vocab_size, stream_.get());
  }
  if (!find_likely) return;
  FindLikelyTokens(workspace_.logits.get(), buffers_.scales() + first,
                   static_cast<int>(config_.vocab_size), count,
                   {.tokens = workspace_.likely_tokens.get(),
                    .logits = workspace_.likely_logits.get(),
                    .log_sum_exps = workspace_.log_sum_exps.get(),
                    .weight_sums = workspace_.weight_sums.get()},
                   stream_.get());
}

void CudaModel::Impl::Normalize(const DeviceNorm& norm, const int32_t* order, int rows,
                                BFloat16* y) {
  const float* const x = workspace_.residual.get();
  const int64_t width = config_.hidden_size;
  if (norm.weight.size() == 0) {
    Round(x, rows * width, y, stream_.get());
    return;
  }
  cuda::Normalize(ParametersOf(norm), x, width, nullptr, order, rows, y, stream_.get());
}

NormParameters CudaModel::Impl::ParametersOf(const DeviceNorm& norm) const {
  return {.kind = config_.norm,
          .weight = norm.weight.get(),
          .bias = norm.bias.get(),
          .eps = static_cast<float>(config_.norm_eps),
          .width = static_cast<int>(config_.hidden_size)};
}

void CudaModel::Impl::BeginBranch(const StepShape& shape) {
  if (!config_.norm_outputs) return;
  const auto bytes = static_cast<size_t>(shape.rows() * config_.hidden_size) * sizeof(float);
  Check(cudaMemsetAsync(branch_sum(), 0, bytes, stream_.get()));
}

void CudaModel::Impl::EndBranch(const DeviceNorm& output_norm, const StepShape& shape) {
  if (!config_.norm_outputs) return;
  AddNormalized(ParametersOf(output_norm), branch_sum(), shape.rows(), workspace_.residual.get(),
                stream_.get());
}

void CudaModel::Impl::Multiply(const DeviceMatrix& matrix, const BFloat16* x, void* y,
                               const StepShape& shape) {
  const MatmulShape& product = matrix.shape;
  const BFloat16* const w = matrix.elements.get();
  if (shape.decode_rows > 0) {
    matmuls_.Run(RowKind::kDecode, product, w, x, shape.decode_rows, y);
  }
  if (shape.prefill_rows == 0) return;
  const int64_t element = product.output == MatmulOutput::kBFloat16 ? 2 : 4;
  matmuls_.Run(RowKind::kPrefill, product, w, x + shape.decode_rows * product.x_stride,
               shape.prefill_rows,
               static_cast<char*>(y) + shape.decode_rows * product.y_stride * element);
}

void CudaModel::Impl::AddToBranch(const DeviceMatrix& matrix, const DeviceArray<float>& bias,
                                  const BFloat16* x, const StepShape& shape) {
  Multiply(matrix, x, branch_sum(), shape);
  if (bias.size() > 0) {
    AddBias(branch_sum(), bias.get(), static_cast<int>(matrix.outputs), shape.rows(),
            stream_.get());
  }
}

void CudaModel::Impl::AttendGrouped(const DeviceLayer& layer, const StepShape& shape) {
  const GroupedRows grouped{
      .projected = workspace_.projected.get(),
      .bias = layer.in_bias.get(),
      .q_norm = layer.q_norm.get(),
      .k_norm = layer.k_norm.get(),
      .norm_eps = static_cast<float>(config_.norm_eps),
      .factors = config_.qk_norm_all_heads ? workspace_.head_factors.get() : nullptr,
      .rotation = layer.rotation,
      .heads = layer.layout.heads,
      .groups = layer.layout.groups,
      .width = layer.layout.key_width,
      .queries = workspace_.queries.get(),
      .cache = layer.cache};
  if (config_.qk_norm_all_heads) {
    MeasureAllHeads(grouped, shape.rows(), workspace_.head_factors.get(), stream_.get());
  }
  WriteGrouped(grouped, buffers_.locations(layer.group), shape.rows(), stream_.get());
  Attend(layer, shape);
  AddToBranch(layer.o, layer.o_bias, workspace_.attended.get(), shape);
}

void CudaModel::Impl::AttendLatent(const DeviceLayer& layer, const StepShape& shape) {
  const int rank = layer.layout.value_width, d_rope = layer.layout.key_width - rank;
  const int heads = layer.layout.heads, rows = shape.rows();
  // The outputs of `in`: the queries (or q_a), the latent and its decoupled key, normed keys.
  const int64_t in_width = layer.in.outputs, normed_keys = layer.layout.normed_keys;
  const int64_t keys_width = normed_keys * config_.head_dim;
  const int64_t query_width = in_width - rank - d_rope - keys_width;
  const float* const projected = workspace_.projected.get();
  const float* const in_bias = layer.in_bias.get();
  WriteLatents({.projected = projected + query_width,
                .stride = in_width,
                .bias = in_bias != nullptr ? in_bias + query_width : nullptr,
                .norm = layer.latent_norm.get(),
                .norm_eps = static_cast<float>(config_.LatentNormEps()),
                .rotation = layer.rotation,
                .rank = rank,
                .d_rope = d_rope,
                .cache = layer.cache},
               buffers_.locations(), rows, stream_.get());
  if (normed_keys > 0) {
    WriteInverseNorms({.projected = projected + in_width - keys_width,
                       .stride = in_width,
                       .bias = in_bias != nullptr ? in_bias + in_width - keys_width : nullptr,
                       .norm_eps = static_cast<float>(config_.LatentNormEps()),
                       .keys = static_cast<int>(normed_keys),
                       .width = static_cast<int>(config_.head_dim),
                       .block_positions = layer.layout.block_positions,
                       .inverse_norms = layer.inverse_norms},
                      buffers_.locations(), rows, stream_.get());
  }

  BFloat16* const queries = workspace_.queries.get();
  const bool factored = layer.uk.defined();
  LatentQueries reduced{.projected = projected,
                        .stride = in_width,
                        .bias = in_bias,
                        .normed = normed_keys > 0,
                        .norm_eps = static_cast<float>(config_.LatentNormEps()),
                        .rotation = layer.rotation,
                        .heads = heads,
                        .content_width = static_cast<int>(factored ? layer.uk.inputs : rank),
                        .d_rope = d_rope,
                        .content = factored ? workspace_.content.get() : queries,
                        .content_stride = factored ? layer.uk.inputs : layer.layout.key_width,
                        .rotary = queries + rank,
                        .rotary_stride = layer.layout.key_width};
  if (layer.query_up.defined()) {
    cuda::Normalize({.kind = NormKind::kRmsNorm,
                     .weight = layer.query_norm.get(),
                     .bias = nullptr,
                     .eps = static_cast<float>(config_.LatentNormEps()),
                     .width = static_cast<int>(query_width)},
                    projected, in_width, in_bias, nullptr, rows, workspace_.low_rank.get(),
                    stream_.get());
    Multiply(layer.query_up, workspace_.low_rank.get(), workspace_.projected_queries.get(), shape);
    reduced.projected = workspace_.projected_queries.get();
    reduced.stride = layer.query_up.outputs;
    reduced.bias = layer.query_up_bias.get();
  }
  WriteLatentQueries(reduced, buffers_.locations(), rows, stream_.get());
  StepShape by_latents = shape;
  if (layer.expands) {
    by_latents.prefill_rows -= shape.expanded_rows;
    AttendExpanded(layer);
  }
  if (by_latents.rows() > 0) {
    if (factored) Multiply(layer.uk, workspace_.content.get(), queries, by_latents);
    Attend(layer, by_latents);
    if (factored) {
      Multiply(layer.uv, workspace_.attended.get(), workspace_.values.get(), by_latents);
    }
  }
  AddToBranch(layer.o, layer.o_bias, factored ? workspace_.values.get() : workspace_.attended.get(),
              shape);
}

void CudaModel::Impl::AttendExpanded(const DeviceLayer& layer) {
  const AttentionLayout& layout = layer.layout;
  const auto d_qk = static_cast<int>(layer.expand_keys.outputs), rank = layout.value_width;
  const int d_v = static_cast<int>(layer.expand_values.outputs) / layout.heads;
  const BFloat16* const latents = workspace_.latents.get();
  const ExpandedRows rows{.runs = buffers_.runs(),
                          .content = workspace_.content.get(),
                          .rotary = workspace_.queries.get() + rank,
                          .rotary_stride = layout.key_width,
                          .latents = latents,
                          .keys = workspace_.expanded_keys.get(),
                          .values = workspace_.expanded_values.get(),
                          .state = workspace_.split_sums.get(),
                          .out = workspace_.values.get(),
                          .heads = layout.heads,
                          .latent_width = layout.row_width,
                          .scale = layer.scale};
  for (const ExpansionPass& pass : buffers_.passes()) {
    GatherLatents(layout, layer.cache, buffers_.blocks(), buffers_.runs(), pass,
                  workspace_.latents.get(), stream_.get());
    matmuls_.Run(RowKind::kPrefill, layer.expand_keys, layer.uk.elements.get(), latents,
                 pass.positions, workspace_.expanded_keys.get());
    matmuls_.Run(RowKind::kPrefill, layer.expand_values, layer.uv.elements.get(), latents,
                 pass.positions, workspace_.expanded_values.get());
    ExpandedPrefill(rows, d_qk, d_v, pass, stream_.get());
  }
}

void CudaModel::Impl::Attend(const DeviceLayer& layer, const StepShape& shape) {
  const AttentionLayout& layout = layer.layout;
  const auto rows = [&](int first, int count) {
    return AttentionRows{
        .queries = workspace_.queries.get() + int64_t{first} * layout.heads * layout.key_width,
        .cache = layer.cache,
        .blocks = buffers_.blocks(),
        .positions = buffers_.positions() + first,
        .tables = buffers_.tables(layer.group) + first,
        .out = workspace_.attended.get() + int64_t{first} * layout.heads * layout.value_width,
        .rows = count,
        .scale = layer.scale,
        .cap = layer.cap,
        .window = layer.window,
        .inverse_norms = layer.inverse_norms};
  };
  // Attends rows first to end - 1 by a split-KV kernel, in batches that the workspace has room for.
  const auto split = [&](int first, int end, int splits, const auto& attend) {
    const auto most = static_cast<int>(std::min<int64_t>(
        workspace_.split_stats.size() / (int64_t{layout.heads} * splits), kMostGridRows));
    for (; first < end; first += most) {
      attend(rows(first, std::min(most, end - first)),
             Splits{splits, workspace_.split_sums.get(), workspace_.split_stats.get()});
    }
  };
  const int decode_rows = shape.decode_rows, end = shape.rows();
  cudaStream_t const stream = stream_.get();
  if (SupportsLatentAttention(layout)) {
    if (decode_rows > 0) {
      split(0, decode_rows, LatentSplits(shape.longest_context),
            [&](const AttentionRows& some, const Splits& splits) {
              LatentAttention(layout, some, splits, false, stream);
            });
    }
    split(decode_rows, end, 1, [&](const AttentionRows& some, const Splits& splits) {
      LatentAttention(layout, some, splits, true, stream);
    });
    return;
  }
  if (decode_rows > 0) {
    if (SupportsGroupedDecode(layout)) {
      split(0, decode_rows, GroupedSplits(shape.longest_context, layer.window),
            [&](const AttentionRows& some, const Splits& splits) {
              GroupedDecode(layout, some, splits, stream);
            });
    } else {
      GeneralAttention(layout, rows(0, decode_rows), stream);
    }
  }
  if (decode_rows == end) return;
  if (SupportsGroupedPrefill(layout)) {
    GroupedPrefill(layout, rows(0, end),
                   {buffers_.runs(layer.group), shape.runs, shape.longest_run}, stream);
  } else {
    GeneralAttention(layout, rows(decode_rows, end - decode_rows), stream);
  }
}

void CudaModel::Impl::Mlp(const DeviceLayer& layer, const StepShape& shape) {
  if (layer.experts_in.defined()) {
    Experts(layer, shape);
    return;
  }
  ActivateMlp(layer, shape);
  AddToBranch(layer.mlp_down, layer.mlp_down_bias, workspace_.activated.get(), shape);
}

void CudaModel::Impl::ActivateMlp(const DeviceLayer& layer, const StepShape& shape) {
  Multiply(layer.mlp_in, workspace_.normal.get(), workspace_.mlp_in.get(), shape);
  Activate(config_.hidden_act, config_.GatesMlp(), workspace_.mlp_in.get(), layer.mlp_in_bias.get(),
           static_cast<int>(layer.mlp_down.inputs), shape.rows(), workspace_.activated.get(),
           stream_.get());
}

void CudaModel::Impl::Experts(const DeviceLayer& layer, const StepShape& shape) {
  const bool shares = layer.mlp_in.defined();
  if (shares) {
    ActivateMlp(layer, shape);
    Multiply(layer.mlp_down, workspace_.activated.get(), workspace_.shared_outputs.get(), shape);
  }
  cudaStream_t const stream = stream_.get();
  const ExpertRouter router = RouterOf(layer);
  const RoutedRows routed = workspace_.routed();
  const BFloat16* const x = workspace_.normal.get();
  BFloat16* const in = workspace_.mlp_in.get();
  BFloat16* const activated = workspace_.activated.get();
  const int rows = shape.rows(), choices = rows * router.choices;
  RouteRows(router, x, buffers_.positions(), rows, workspace_.router_logits.get(), routed,
            layer.expert_totals, stream);
  MultiplyByExperts(layer.experts_in.shape, router, layer.experts_in.elements.get(), x,
                    router.choices, routed, rows, in, stream);
  Activate(config_.hidden_act, config_.GatesMlp(), in, nullptr,
           static_cast<int>(layer.experts_down.inputs), choices, activated, stream);
  MultiplyByExperts(layer.experts_down.shape, router, layer.experts_down.elements.get(), activated,
                    1, routed, rows, workspace_.expert_outputs.get(), stream);
  AddExperts({.outputs = workspace_.expert_outputs.get(),
              .shared = shares ? workspace_.shared_outputs.get() : nullptr,
              .gate = layer.shared_gate.get(),
              .x = x},
             router, routed, buffers_.positions(), rows, branch_sum(), stream);
}

std::optional<ExpertLoad> CudaModel::Impl::expert_load() const {
  if (config_.experts.n_routed_experts == 0) return std::nullopt;
  const auto experts = static_cast<size_t>(config_.experts.n_routed_experts);
  const std::span totals(expert_totals_);
  ExpertLoad load;
  for (size_t first = 0; first < totals.size(); first += experts) {
    AddExpertLoad(totals.subspan(first, experts), load);
  }
  return load;
}

int64_t CudaModel::Impl::weight_bytes_read(int64_t tokens) const {
  int64_t bytes = output_.elements.bytes();
  double of_experts = 0;
  for (const DeviceLayer& layer : layers_) {
    for (const DeviceMatrix* matrix : {&layer.in, &layer.query_up, &layer.uk, &layer.uv, &layer.o,
                                       &layer.mlp_in, &layer.mlp_down}) {
      bytes += matrix->elements.bytes();
    }
    bytes += layer.router.bytes() + layer.shared_gate.bytes();
    of_experts += static_cast<double>(layer.experts_in.elements.bytes() +
                                      layer.experts_down.elements.bytes());
  }
  if (of_experts == 0) return bytes;
  const double part = ExpectedExperts(config_.experts, static_cast<double>(tokens)) /
                      static_cast<double>(config_.experts.n_routed_experts);
  return bytes + std::llround(of_experts * part);
}

std::string CudaModel::Impl::DescribeKernels() const {
  const AttentionLayout& layout = layers_[0].layout;
  const std::string attention = SupportsLatentAttention(layout) ? "latent"
                                : SupportsGroupedDecode(layout) ? "grouped"
                                                                : "general";
  const char* const prompts = info_.expand_from ? ", prompts expanded" : "";
  std::string text =
      attention + " attention" + prompts + ", " + std::to_string(matmuls_.prepared_for_cublaslt()) +
      " of " + std::to_string(matmuls_.prepared()) + " products by cuBLASLt " + CublasLtVersion();
  for (const DeviceLayer& layer : layers_) {
    if (!layer.experts_in.defined()) continue;
    const int by_tensor_cores = (TensorCoresMultiply(layer.experts_in.shape) ? 1 : 0) +
                                (TensorCoresMultiply(layer.experts_down.shape) ? 1 : 0);
    // Layers with experts have equal shapes.
    return text + ", " + std::to_string(by_tensor_cores) +
           " of 2 products of experts by tensor cores";
  }
  return text;
}

CudaModel::CudaModel(const ModelConfig& config, CudaWeightSource& weights,
                     const BackendOptions& options, int device,
                     const std::function<void(int64_t)>& on_layer)
    : impl_(std::make_unique<Impl>(config, weights, options, device, on_layer)) {}
CudaModel::~CudaModel() = default;

template <typename Compute>
std::span<const float> CudaModel::OrLost(const Compute& compute) {
  try {
    return compute();
  } catch (const CudaError& e) {
    // After a kernel fault, every later CUDA call of this process reports it again.
    if (cudaDeviceSynchronize() == cudaSuccess) throw;
    throw DeviceLost(impl_->info().device_memory->device + ": " + e.what());
  }
}

std::span<const float> CudaModel::Step(const StepInput& step) {
  return OrLost([&] { return impl_->Step(step); });
}
std::span<const float> CudaModel::FetchLogits(std::span<const int64_t> likely_rows) {
  return OrLost([&] { return impl_->FetchLogits(likely_rows); });
}
std::span<const LikelyTokens> CudaModel::likely() const { return impl_->likely(); }
const BackendInfo& CudaModel::info() const { return impl_->info(); }
std::optional<ExpertLoad> CudaModel::expert_load() const { return impl_->expert_load(); }
float CudaModel::device_milliseconds() const { return impl_->device_milliseconds(); }
int64_t CudaModel::weight_bytes_read(int64_t tokens) const {
  return impl_->weight_bytes_read(tokens);
}

}  // namespace triptych
