#include "engine/backend/tensors/tensor_model.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIndexing.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <stdexcept>

#include "engine/attention/dense.h"
#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/base/ceil_div.h"
#include "engine/decoder/layer_weights.h"

namespace triptych {
namespace {

// LibTorch's operations run on the calling thread alone while this lives: its threads burn their
// CPUs between operations, which a busy machine does not forgive.
class OneThread {
 public:
  OneThread() : threads_(at::get_num_threads()) {
    if (threads_ != 1) at::set_num_threads(1);
  }
  ~OneThread() {
    if (threads_ != 1) at::set_num_threads(threads_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

template <typename Values>
at::Tensor ToDevice(const Values& values, at::Device device) {
  return at::tensor(at::ArrayRef(values.data(), values.size()), at::kLong).to(device);
}

// A view of a cache as [blocks, block_positions, row_width].
at::Tensor AsRows(const at::Tensor& cache) { return cache.transpose(1, 2); }

}  // namespace

struct TensorModel::TensorStep {
  struct Sequence {
    at::Tensor blocks;  // [blocks] int64, those of positions 0 to length - 1
    int64_t length;     // with the new tokens
    int64_t count;      // of new tokens
  };

  TensorStep(const StepInput& step, int64_t block_positions, at::Device device);

  at::Tensor ids;                   // [tokens] int64
  at::Tensor positions;             // [tokens] int64, of each token in its sequence
  at::Tensor blocks;                // [tokens] int64, of each token's row
  at::Tensor offsets;               // [tokens] int64, of each token's row in its block
  at::Tensor logit_rows;            // [rows] int64
  std::vector<Sequence> sequences;  // in the order of their tokens
};

TensorModel::TensorStep::TensorStep(const StepInput& step, int64_t block_positions,
                                    at::Device device) {
  std::vector<int64_t> all_positions, row_blocks, row_offsets;
  for (const StepInput::Sequence& sequence : step.sequences) {
    const int64_t length = sequence.start + sequence.count;
    for (int64_t p = sequence.start; p < length; ++p) {
      all_positions.push_back(p);
      row_blocks.push_back(sequence.blocks[p / block_positions]);
      row_offsets.push_back(p % block_positions);
    }
    const std::vector<int64_t> held(sequence.blocks,
                                    sequence.blocks + CeilDiv(length, block_positions));
    sequences.push_back({ToDevice(held, device), length, sequence.count});
  }
  ids = ToDevice(step.ids, device);
  positions = ToDevice(all_positions, device);
  blocks = ToDevice(row_blocks, device);
  offsets = ToDevice(row_offsets, device);
  logit_rows = ToDevice(step.logit_rows, device);
}

TensorModel::TensorModel(const ModelConfig& config, const Weights& weights, ComputeType compute,
                         const BackendOptions& options)
    : frame_(config, weights, compute), info_(MakeInfo(config, options, std::nullopt)) {
  const Rotary rotary = MakeRotary(config, frame_.device());
  const at::TensorOptions rows =
      at::device(frame_.device()).dtype(ToScalarType(options.cache_format));
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.attention == AttentionKind::kMla) {
      const LatentShape shape = LatentShapeOf(config, layer);
      attention_.push_back(std::make_unique<ReducedLatentAttention>(
          shape, Reduce(shape, FindLatent(weights, layer), SmallerForm(shape, config.hidden_size)),
          rotary));
    } else {
      attention_.push_back(std::make_unique<GroupedAttention>(config.num_attention_heads,
                                                              config.num_key_value_heads,
                                                              FindGrouped(weights, layer), rotary));
    }
    cache_.push_back(
        at::empty({info_.blocks, CacheRowElements(config, layer), options.block_positions}, rows));
    info_.cache_bytes += static_cast<int64_t>(cache_.back().storage().nbytes());
  }
}

std::span<const float> TensorModel::Step(const StepInput& step) {
  const OneThread one_thread;
  try {
    logits_ = Logits(step).to(at::kCPU, at::kFloat).contiguous();
  } catch (const c10::Error& e) {  // whose what() is pages of backtrace
    throw std::runtime_error(e.what_without_backtrace());
  }
  return {logits_.data_ptr<float>(), static_cast<size_t>(logits_.numel())};
}

at::Tensor TensorModel::Logits(const StepInput& step) {
  CheckStep(step, info_);
  const at::NoGradGuard no_grad;
  const TensorStep on_device(step, info_.geometry.block_positions, frame_.device());
  const auto attend = [&](int64_t layer, const at::Tensor& normal) {
    const CachedAttention& attention = *attention_[layer];
    WriteRows(attention.Rows(normal, on_device.positions), on_device, layer);
    return attention.Output(
        Attend(attention.Queries(normal, on_device.positions), on_device, layer));
  };
  const at::Tensor hidden =
      frame_.Hidden(on_device.ids, on_device.positions, attend, std::plus<>());
  return frame_.Logits(hidden.index_select(0, on_device.logit_rows));
}

void TensorModel::WriteRows(const at::Tensor& rows, const TensorStep& step, int64_t layer) {
  at::Tensor& cache = cache_[layer];
  AsRows(cache).index_put_({step.blocks, step.offsets}, rows.to(cache.scalar_type()));
}

at::Tensor TensorModel::Attend(const at::Tensor& q, const TensorStep& step, int64_t layer) const {
  const PagedRowLayout layout = attention_[layer]->layout();
  std::vector<at::Tensor> out;
  int64_t token = 0;
  for (const TensorStep::Sequence& sequence : step.sequences) {
    const at::Tensor context = AsRows(cache_[layer])
                                   .index_select(0, sequence.blocks)
                                   .flatten(0, 1)
                                   .narrow(0, 0, sequence.length)
                                   .to(q.scalar_type())
                                   .unsqueeze(0);            // [1, length, row_width]
    const auto heads = [&](int64_t offset, int64_t width) {  // [1, length, G, width]
      return context.narrow(2, offset, layout.groups * width).unflatten(2, {layout.groups, width});
    };
    out.push_back(AttendDense(q.narrow(0, token, sequence.count).unsqueeze(0),
                              heads(0, layout.key_width),
                              heads(layout.value_offset, layout.value_width),
                              attention_[layer]->scale(), /*causal=*/true)
                      .squeeze(0));
    token += sequence.count;
  }
  return at::cat(out);
}

}  // namespace triptych
