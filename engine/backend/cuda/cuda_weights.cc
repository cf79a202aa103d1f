#include "engine/backend/cuda/cuda_weights.h"

#include "engine/model/latent_shape.h"

namespace triptych {
namespace {

CudaMatrix Shape(int64_t outputs, int64_t inputs) {
  return {.outputs = outputs, .inputs = inputs, .elements = {}};
}

CudaVector Ones(int64_t size) { return {.size = size, .elements = {}, .constant = 1}; }
CudaVector Zeros(int64_t size) { return {.size = size, .elements = {}}; }
CudaVector Bias(bool present, int64_t size) { return Zeros(present ? size : 0); }

CudaNorm Norm(const ModelConfig& config) {
  const int64_t width = config.hidden_size;
  return {.weight = Ones(width), .bias = Bias(config.norm_bias, width)};
}

void AddGrouped(const ModelConfig& config, CudaLayerWeights& layer) {
  const int64_t d = config.head_dim, width = config.hidden_size;
  const int64_t projected = (config.num_attention_heads + 2 * config.num_key_value_heads) * d;
  layer.in = Shape(projected, width);
  layer.in_bias = Bias(config.attention_bias, projected);
  if (config.qk_norm) {
    const bool all = config.qk_norm_all_heads;
    layer.q_norm = Ones(all ? config.num_attention_heads * d : d);
    layer.k_norm = Ones(all ? config.num_key_value_heads * d : d);
  }
  layer.o = Shape(width, config.num_attention_heads * d);
}

void AddLatent(const ModelConfig& config, int64_t index, CudaLayerWeights& layer) {
  const LatentShape shape = LatentShapeOf(config, index);
  const int64_t width = config.hidden_size, heads = shape.heads;
  const bool factored = SmallerForm(shape, width) == ReducedForm::kFactored;
  const int64_t queries = heads * ((factored ? shape.d_qk : shape.rank) + shape.d_rope);
  const bool low_rank = shape.query_rank > 0;
  const int64_t projected = (low_rank ? shape.query_rank : queries) + shape.rank + shape.d_rope +
                            shape.normed_keys * shape.d_qk;
  layer.in = Shape(projected, width);
  layer.in_bias = Bias(config.latent_bias || (config.attention_bias && !low_rank), projected);
  if (low_rank) {
    layer.query_norm = Ones(shape.query_rank);
    layer.query_up = Shape(queries, shape.query_rank);
    layer.query_up_bias = Bias(config.attention_bias, queries);
  }
  if (config.kv_a_layernorm) layer.latent_norm = Ones(shape.rank);
  if (factored) {
    layer.uk = Shape(heads * shape.rank, shape.d_qk);
    layer.uv = Shape(heads * shape.d_v, shape.rank);
  }
  layer.o = Shape(width, heads * (factored ? shape.d_v : shape.rank));
}

// `inner`: 0 if there is no such MLP.
void AddMlp(const ModelConfig& config, int64_t inner, CudaMatrix& in, CudaMatrix& down) {
  if (inner == 0) return;
  in = Shape(config.GatesMlp() ? 2 * inner : inner, config.hidden_size);
  down = Shape(config.hidden_size, inner);
}

void AddExperts(const ModelConfig& config, CudaLayerWeights& layer) {
  const ExpertsConfig& experts = config.experts;
  const int64_t count = experts.n_routed_experts;
  layer.router = Zeros(count * config.hidden_size);
  layer.router_bias = Bias(experts.topk_method == TopkMethod::kNoauxTc, count);
  layer.shared_gate = Bias(experts.shared_expert_gate, config.hidden_size);
  AddMlp(config, experts.shared_expert_intermediate_size, layer.mlp_in, layer.mlp_down);
}

int64_t BytesOf(const CudaMatrix& matrix) { return 2 * matrix.outputs * matrix.inputs; }

}  // namespace

CudaLayerWeights LayerShapes(const ModelConfig& config, int64_t index) {
  CudaLayerWeights layer;
  const int64_t width = config.hidden_size;
  if (config.norm_inputs) layer.attention_norm = Norm(config);
  if (config.NormsMlpInput()) layer.mlp_norm = Norm(config);
  if (config.norm_outputs) layer.attention_output_norm = layer.mlp_output_norm = Norm(config);
  if (config.attention == AttentionKind::kMla) {
    AddLatent(config, index, layer);
  } else {
    AddGrouped(config, layer);
  }
  layer.o_bias = Bias(config.OutputBias(), width);
  if (config.HasExperts(index)) {
    AddExperts(config, layer);
    return layer;
  }
  AddMlp(config, config.intermediate_size, layer.mlp_in, layer.mlp_down);
  layer.mlp_in_bias = Bias(config.mlp_bias, layer.mlp_in.outputs);
  layer.mlp_down_bias = Bias(config.mlp_bias, width);
  return layer;
}

CudaExpert ExpertShapes(const ModelConfig& config) {
  CudaExpert expert;
  AddMlp(config, config.experts.moe_intermediate_size, expert.in, expert.down);
  return expert;
}

int64_t DeviceBytes(const CudaLayerWeights& layer) {
  int64_t bytes = 0;
  for (const CudaMatrix* matrix : {&layer.in, &layer.query_up, &layer.uk, &layer.uv, &layer.o,
                                   &layer.mlp_in, &layer.mlp_down}) {
    bytes += BytesOf(*matrix);
  }
  for (const CudaVector* vector :
       {&layer.in_bias, &layer.q_norm, &layer.k_norm, &layer.query_norm, &layer.query_up_bias,
        &layer.latent_norm, &layer.o_bias, &layer.mlp_in_bias, &layer.mlp_down_bias, &layer.router,
        &layer.router_bias, &layer.shared_gate}) {
    bytes += 4 * vector->size;
  }
  for (const CudaNorm* norm : {&layer.attention_norm, &layer.attention_output_norm, &layer.mlp_norm,
                               &layer.mlp_output_norm}) {
    bytes += 4 * (norm->weight.size + norm->bias.size);
  }
  return bytes;
}

int64_t DeviceBytes(const CudaExpert& expert) { return BytesOf(expert.in) + BytesOf(expert.down); }

}  // namespace triptych
