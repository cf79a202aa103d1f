#include "engine/backend/cpu/step_cost.h"

#include <string>
#include <vector>

#include "engine/backend/cpu/cost_model.h"
#include "engine/backend/expert_load.h"
#include "engine/base/error.h"
#include "engine/kernels/packed_format.h"
#include "engine/kernels/packed_linear.h"
#include "engine/kernels/row_layout.h"
#include "engine/model/latent_shape.h"

namespace triptych::cpu {
namespace {

class StepCounter {
 public:
  explicit StepCounter(WeightFormat format) : format_(format) {}

  // Sets the format of the matrices counted next; first that of the layers.
  void Use(WeightFormat format) { format_ = format; }

  // Counts a matrix that is held, but not read as a whole by every step.
  void Hold(const kernels::PackedLinear::Shape& matrix) {
    constexpr int64_t kMost = int64_t{1} << 48;  // so that sums over a model fit in int64
    if (static_cast<double>(matrix.groups) * static_cast<double>(matrix.outputs) *
            static_cast<double>(matrix.inputs) >
        static_cast<double>(kMost)) {
      throw LoadError("a matrix has " + std::to_string(matrix.groups) + " x " +
                      std::to_string(matrix.outputs) + " x " + std::to_string(matrix.inputs) +
                      " weights; allowed: at most " + std::to_string(kMost));
    }
    cost_.weight_bytes += Bytes(matrix);
  }
  void Multiply(const kernels::PackedLinear::Shape& matrix) {
    Hold(matrix);
    cost_.read_bytes += Bytes(matrix);
    cost_.product_flops += 2 * matrix.groups * matrix.outputs * matrix.inputs;
  }
  // Counts one matrix of each expert; a token multiplies by `choices` of them.
  void Route(const kernels::PackedLinear::Shape& experts, int64_t choices) {
    Hold(experts);
    cost_.expert_bytes += Bytes(experts) / experts.groups;
    const int64_t flops = 2 * choices * experts.outputs * experts.inputs;
    cost_.expert_flops += flops;
    cost_.product_flops += flops;
  }
  void HoldFloats(int64_t count) {
    cost_.weight_bytes += count * static_cast<int64_t>(sizeof(float));
  }
  void Attend(const kernels::PagedRowLayout& layout) {
    cost_.core_flops += 2 * layout.heads * (layout.key_width + layout.value_width);
  }

  StepCost& cost() { return cost_; }

 private:
  int64_t Bytes(const kernels::PackedLinear::Shape& matrix) const {
    return kernels::PackedBytes(format_, matrix.groups, matrix.outputs, matrix.inputs);
  }

  WeightFormat format_;
  StepCost cost_;
};

void CountGrouped(const ModelConfig& config, StepCounter& counter) {
  const int64_t width = config.hidden_size, d = config.head_dim;
  const int64_t heads = config.num_attention_heads, groups = config.num_key_value_heads;
  counter.Multiply({1, (heads + 2 * groups) * d, width});
  counter.Multiply({1, width, heads * d});
  if (config.qk_norm) {
    counter.HoldFloats(config.qk_norm_all_heads ? (heads + groups) * d : 2 * d);
  }
  counter.Attend(kernels::GroupedRowLayout(heads, groups, d, d));
}

void CountLatent(const ModelConfig& config, const LatentShape& shape, bool expand,
                 StepCounter& counter) {
  const int64_t width = config.hidden_size, heads = shape.heads, rank = shape.rank;
  const int64_t row = rank + shape.d_rope;
  // The projections of x to queries, low-rank or not, and to the cache row.
  const auto project = [&](int64_t queries) {
    const int64_t low = shape.query_rank;
    counter.Multiply({1, (low > 0 ? low : queries) + row + shape.normed_keys * shape.d_qk, width});
    if (low == 0) return;
    counter.HoldFloats(low);
    counter.Multiply({1, queries, low});
  };
  switch (SmallerForm(shape, width)) {
    case ReducedForm::kFactored:
      project(heads * (shape.d_qk + shape.d_rope));
      counter.Multiply({heads, rank, shape.d_qk});
      counter.Multiply({heads, shape.d_v, rank});
      counter.Multiply({1, width, heads * shape.d_v});
      if (expand && ExpandingCanPay(shape)) counter.Hold({heads, shape.d_qk, rank});
      break;
    case ReducedForm::kPremultiplied:
      project(heads * row);
      counter.Multiply({1, width, heads * rank});
      break;
  }
  if (config.kv_a_layernorm) counter.HoldFloats(rank);
  counter.Attend(kernels::LatentRowLayout(heads, rank, shape.d_rope));
}

void CountMlp(const ModelConfig& config, int64_t inner, StepCounter& counter) {
  counter.Multiply({1, (config.GatesMlp() ? 2 : 1) * inner, config.hidden_size});
  counter.Multiply({1, config.hidden_size, inner});
}

void CountExperts(const ModelConfig& config, const WeightFormats& formats, StepCounter& counter) {
  const ExpertsConfig& experts = config.experts;
  const int64_t width = config.hidden_size, inner = experts.moe_intermediate_size;
  const int64_t count = experts.n_routed_experts, choices = experts.num_experts_per_tok;
  const int64_t shared = experts.shared_expert_intermediate_size;
  if (shared > 0) CountMlp(config, shared, counter);
  counter.Use(formats.experts);
  counter.Route({count, (config.GatesMlp() ? 2 : 1) * inner, width}, choices);
  counter.Route({count, width, inner}, choices);
  counter.Use(WeightFormat::kFloat32);
  counter.Multiply({1, count, width});
  if (experts.topk_method == TopkMethod::kNoauxTc) counter.HoldFloats(count);
  if (experts.shared_expert_gate) counter.Multiply({1, 1, width});
  counter.Use(formats.layers);
}

void CountPositions(const ModelConfig& config, StepCounter& counter) {
  const int64_t positions = config.max_position_embeddings;
  switch (config.position_embedding) {
    case PositionEmbedding::kLearned:
    case PositionEmbedding::kSinusoidal:
      counter.HoldFloats(positions * config.hidden_size);
      break;
    case PositionEmbedding::kRope:
      counter.HoldFloats(positions * config.RotaryTableDim() *
                         (config.rope_local_base_freq > 0 ? 2 : 1));
      break;
    case PositionEmbedding::kNone:
      break;
  }
}

}  // namespace

StepCost CountStep(const ModelConfig& config, const WeightFormats& formats,
                   std::optional<int64_t> expand_from) {
  StepCounter counter(formats.layers);
  const int64_t width = config.hidden_size;
  const int64_t norm = config.norm_bias ? 2 * width : width;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.attention == AttentionKind::kMla) {
      CountLatent(config, LatentShapeOf(config, layer), expand_from.has_value(), counter);
    } else {
      CountGrouped(config, counter);
    }
    if (config.HasExperts(layer)) {
      CountExperts(config, formats, counter);
    } else {
      CountMlp(config, config.intermediate_size, counter);
    }
    const int norms = (config.norm_inputs ? 1 : 0) + (config.NormsMlpInput() ? 1 : 0) +
                      (config.norm_outputs ? 2 : 0);
    counter.HoldFloats(norms * norm);
  }
  counter.Use(formats.embeddings);
  const int64_t of_layers = counter.cost().product_flops;
  counter.Multiply({1, config.vocab_size, width});
  counter.cost().output_flops = counter.cost().product_flops - of_layers;
  if (!config.tie_word_embeddings) counter.Hold({1, config.vocab_size, width});
  counter.HoldFloats(norm);
  CountPositions(config, counter);
  return counter.cost();
}

double ReadBytes(const ModelConfig& config, const StepCost& cost, double tokens) {
  const auto read = static_cast<double>(cost.read_bytes);
  if (config.experts.n_routed_experts == 0) return read;
  return read + static_cast<double>(cost.expert_bytes) * ExpectedExperts(config.experts, tokens);
}

}  // namespace triptych::cpu
