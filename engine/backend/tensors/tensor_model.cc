#include "engine/backend/tensors/tensor_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIndexing.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>

#include "engine/attention/dense.h"
#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/base/ceil_div.h"
#include "engine/decoder/layer_weights.h"
#include "engine/kv_cache/block_table.h"

namespace triptych {
namespace {

// While this lives, LibTorch's operators run on the calling thread only. Its worker threads spin
// between operators, which is costly on a busy machine.
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

int64_t BlocksOf(const StepInput::Sequence& sequence, int64_t block_positions) {
  return CeilDiv(sequence.start + sequence.count, block_positions);
}

// Most positions of a batch, except that a single sequence may have more. Rows are copied; on a CPU
// the copies should fit in its caches.
int64_t MostBatchPositions(at::Device device) { return int64_t{1} << (device.is_cpu() ? 13 : 18); }

// Groups sequences, as indices, into batches that are attended together. Padding at most doubles a
// sequence's blocks and its new tokens. A batch has at most `most_positions` positions, except for
// one sequence that has more.
std::vector<std::vector<int64_t>> BatchesOf(std::span<const StepInput::Sequence> sequences,
                                            int64_t block_positions, int64_t most_positions) {
  using Kind = std::pair<int, int>;
  std::map<Kind, std::vector<int64_t>> of_kind;
  std::vector<std::vector<int64_t>> batches;
  for (int64_t i = 0; i < std::ssize(sequences); ++i) {
    const int64_t blocks = BlocksOf(sequences[i], block_positions);
    const Kind kind{std::bit_width(static_cast<uint64_t>(sequences[i].count - 1)),
                    std::bit_width(static_cast<uint64_t>(blocks - 1))};
    std::vector<int64_t>& batch = of_kind[kind];
    batch.push_back(i);
    const int64_t longest = (int64_t{1} << kind.second) * block_positions;
    if ((std::ssize(batch) + 1) * longest > most_positions) {
      batches.push_back(std::exchange(batch, {}));
    }
  }
  for (auto& [kind, batch] : of_kind) {
    if (!batch.empty()) batches.push_back(std::move(batch));
  }
  return batches;
}

// A view of a cache as [blocks, block_positions, row_width].
at::Tensor AsRows(const at::Tensor& cache) { return cache.transpose(1, 2); }

}  // namespace

struct TensorModel::TensorStep {
  // Sequences that are attended together, padded to the longest and to the most new tokens.
  struct Batch {
    at::Tensor blocks;  // [groups, sequences, blocks] int64
    // [groups, sequences, positions, 1] bool: beyond a sequence's end, or in no block
    at::Tensor unused;
    at::Tensor tokens;  // [sequences, queries] int64; padded with a sequence's last one
    at::Tensor last;    // [sequences, queries] int64: the position of each
  };

  TensorStep(const StepInput& step, int64_t block_positions, int64_t groups, at::Device device);

  at::Tensor ids;              // [tokens] int64
  at::Tensor positions;        // [tokens] int64, of each token in its sequence
  at::Tensor blocks;           // [groups, tokens] int64, of each token's row
  at::Tensor offsets;          // [tokens] int64, of each token's row in its block
  at::Tensor logit_rows;       // [rows] int64
  std::vector<Batch> batches;  // each sequence is in one
  at::Tensor attended;         // [tokens] int64: its index in the concatenated batches
};

TensorModel::TensorStep::TensorStep(const StepInput& step, int64_t block_positions, int64_t groups,
                                    at::Device device) {
  std::vector<int64_t> all_positions, row_blocks, row_offsets, first_tokens;
  for (const StepInput::Sequence& sequence : step.sequences) {
    first_tokens.push_back(std::ssize(all_positions));
    for (int64_t p = sequence.start; p < sequence.start + sequence.count; ++p) {
      all_positions.push_back(p);
      row_offsets.push_back(p % block_positions);
    }
  }
  for (int64_t group = 0; group < groups; ++group) {
    for (const StepInput::Sequence& sequence : step.sequences) {
      for (int64_t p = sequence.start; p < sequence.start + sequence.count; ++p) {
        row_blocks.push_back(sequence.blocks[p / block_positions * groups + group]);
      }
    }
  }
  ids = ToDevice(step.ids, device);
  positions = ToDevice(all_positions, device);
  blocks = ToDevice(row_blocks, device).view({groups, -1});
  offsets = ToDevice(row_offsets, device);
  logit_rows = ToDevice(step.logit_rows, device);

  std::vector<int64_t> places(all_positions.size());
  int64_t places_before = 0;
  for (const std::vector<int64_t>& members :
       BatchesOf(step.sequences, block_positions, MostBatchPositions(device))) {
    int64_t queries = 0, held = 0;
    for (const int64_t i : members) {
      queries = std::max(queries, step.sequences[i].count);
      held = std::max(held, BlocksOf(step.sequences[i], block_positions));
    }
    std::vector<int64_t> tables, tokens, last, lengths;
    for (const int64_t i : members) {
      const StepInput::Sequence& sequence = step.sequences[i];
      for (int64_t query = 0; query < queries; ++query) {
        const int64_t token = std::min(query, sequence.count - 1);
        if (token == query) places[first_tokens[i] + token] = places_before + std::ssize(tokens);
        tokens.push_back(first_tokens[i] + token);
        last.push_back(sequence.start + token);
      }
      lengths.push_back(sequence.start + sequence.count);
    }
    places_before += std::ssize(tokens);
    for (int64_t group = 0; group < groups; ++group) {
      for (const int64_t i : members) {
        const int64_t own = BlocksOf(step.sequences[i], block_positions);
        for (int64_t b = 0; b < held; ++b) {
          tables.push_back(step.sequences[i].blocks[std::min(b, own - 1) * groups + group]);
        }
      }
    }
    const int64_t count = std::ssize(members);
    const at::Tensor columns = at::arange(held * block_positions, positions.options());
    const at::Tensor held_blocks = ToDevice(tables, device).view({groups, count, held});
    const at::Tensor absent =
        (held_blocks == BlockTable::kNone).repeat_interleave(block_positions, 2);
    const at::Tensor beyond = columns >= ToDevice(lengths, device).unsqueeze(1);
    batches.push_back({.blocks = held_blocks.clamp_min(0),
                       .unused = absent.logical_or(beyond).unsqueeze(3),
                       .tokens = ToDevice(tokens, device).view({count, queries}),
                       .last = ToDevice(last, device).view({count, queries})});
  }
  attended = ToDevice(places, device);
}

TensorModel::TensorModel(const ModelConfig& config, const Weights& weights, ComputeType compute,
                         const BackendOptions& options)
    : frame_(config, weights, compute), info_(MakeInfo(config, options, std::nullopt)) {
  const LayerRotary rotary = MakeRotary(config, frame_.device());
  const at::TensorOptions rows =
      at::device(frame_.device()).dtype(ToScalarType(options.cache_format));
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.attention == AttentionKind::kMla) {
      const LatentShape shape = LatentShapeOf(config, layer);
      attention_.push_back(std::make_unique<ReducedLatentAttention>(
          shape, Reduce(shape, FindLatent(weights, layer), SmallerForm(shape, config.hidden_size)),
          rotary.shared));
    } else {
      attention_.push_back(std::make_unique<GroupedAttention>(
          config.num_attention_heads, config.num_key_value_heads, FindGrouped(weights, layer),
          GroupedOptionsOf(config, layer, rotary)));
    }
  }
  for (int64_t slot = 0; slot < info_.geometry.slots(); ++slot) {
    const auto add = [&](std::vector<at::Tensor>& to, int64_t width, at::TensorOptions made) {
      to.push_back(at::empty({info_.blocks, width, options.block_positions}, made));
      info_.cache_bytes += static_cast<int64_t>(to.back().storage().nbytes());
    };
    const int64_t norms = config.NormedKeys();
    add(cache_, CacheRowElements(config, slot) - norms, rows);
    if (norms > 0) add(norms_, norms, rows.dtype(at::kFloat));
  }
  if (frame_.device().is_cuda()) {
    DeviceMemory& memory = info_.device_memory.emplace();
    memory.device = frame_.device().str();
    memory.kernels = "operators of LibTorch";  // which allocate their workspace as they run
    for (const auto& [name, tensor] : weights) {
      memory.weight_bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }
}

std::span<const float> TensorModel::Step(const StepInput& step) {
  const OneThread one_thread;
  try {
    logits_ = Logits(step).to(at::kCPU, at::kFloat).contiguous();
  } catch (const c10::Error& e) {  // its what() ends in a long backtrace
    throw std::runtime_error(e.what_without_backtrace());
  }
  return {logits_.data_ptr<float>(), static_cast<size_t>(logits_.numel())};
}

at::Tensor TensorModel::Logits(const StepInput& step) {
  CheckStep(step, info_);
  const at::NoGradGuard no_grad;
  const TensorStep on_device(step, info_.geometry.block_positions, info_.geometry.Groups().count(),
                             frame_.device());
  const auto attend = [&](int64_t layer, const at::Tensor& normal) {
    const CachedAttention& attention = *attention_[layer];
    WriteRows(attention.Rows(normal, on_device.positions), on_device, layer);
    return attention.Output(
        Attend(attention.Queries(normal, on_device.positions), on_device, layer));
  };
  const at::Tensor hidden =
      frame_.Hidden(frame_.Embed(on_device.ids, on_device.positions), attend, std::plus<>());
  return frame_.Logits(hidden.index_select(0, on_device.logit_rows));
}

void TensorModel::WriteRows(const at::Tensor& rows, const TensorStep& step, int64_t layer) {
  const at::Tensor blocks = step.blocks[info_.geometry.GroupOf(layer)];
  const auto write = [&](at::Tensor& own, int64_t first) {
    AsRows(own).index_put_({blocks, step.offsets},
                           rows.narrow(1, first, own.size(1)).to(own.scalar_type()));
  };
  write(cache(layer), 0);
  if (!norms_.empty()) write(norms_[info_.geometry.SlotOf(layer)], cache(layer).size(1));
}

at::Tensor TensorModel::Attend(const at::Tensor& q, const TensorStep& step, int64_t layer) const {
  const int64_t group = info_.geometry.GroupOf(layer), slot = info_.geometry.SlotOf(layer);
  std::vector<at::Tensor> out;  // each [sequences * queries, H * value_width]
  for (const TensorStep::Batch& batch : step.batches) {
    // [sequences, positions, row_width]; unwritten rows may hold any value
    const at::Tensor unused = batch.unused[group];
    const auto read = [&](const at::Tensor& own) {
      return AsRows(own)
          .index_select(0, batch.blocks[group].flatten())
          .reshape({unused.size(0), unused.size(1), -1})
          .to(q.scalar_type())
          .masked_fill_(unused, 0);
    };
    at::Tensor context = read(cache_[slot]);
    if (!norms_.empty()) context = at::cat({context, read(norms_[slot])}, -1);
    const auto [keys, values] = attention_[layer]->KeysAndValues(context);
    const at::Tensor queries =
        q.index_select(0, batch.tokens.flatten()).unflatten(0, batch.tokens.sizes());
    out.push_back(
        AttendPadded(queries, keys, values, attention_[layer]->scores(), batch.last).flatten(0, 1));
  }
  return at::cat(out).index_select(0, step.attended);
}

}  // namespace triptych
