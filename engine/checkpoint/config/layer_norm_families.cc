#include "engine/checkpoint/config/layer_norm_families.h"

#include <string>
#include <utility>

#include "engine/checkpoint/config/grouped_fields.h"
#include "engine/checkpoint/config/published_fields.h"
#include "engine/checkpoint/config/rope_scaling.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {

ModelConfig ParseCohereConfig(JsonFields& fields) {
  ModelConfig config = TakeGroupedSizes(fields);
  constexpr const char* kTrained = "model_max_length";  // where max_position_embeddings is shorter
  if (fields.Has(kTrained)) {
    config.max_position_embeddings = fields.Int(kTrained, config_limits::kPositions);
    fields.SetContextOrigin(kTrained);
  }
  RequireRopeTheta(fields);
  config.rope_interleave = true;
  TakeRope(fields, config);
  TakeLayerNorm(fields, "layer_norm_eps", /*bias=*/false, config);
  config.use_parallel_residual = true;
  TakeSwiglu(fields, config);
  config.attention_bias = fields.Bool("attention_bias", false);
  fields.Only("use_qk_norm", false);
  config.logit_multiplier = fields.Number("logit_scale", config_limits::kFactor, 0.0625);
  TakeHead(fields, /*tied=*/true, config);
  return config;
}

ModelConfig ParseStableLmConfig(JsonFields& fields) {
  RequireFields(fields, {"num_key_value_heads"});
  ModelConfig config = TakeGroupedSizes(fields);
  TakePartialRope(fields, /*share=*/0.25, config);
  TakeLayerNorm(fields, "layer_norm_eps", /*bias=*/true, config);
  config.use_parallel_residual = fields.Bool("use_parallel_residual", false);
  TakeSwiglu(fields, config);
  config.attention_bias = fields.Bool("use_qkv_bias", false);
  config.attention_output_bias = false;
  fields.Only("qk_layernorm", false);
  fields.Ignore("hidden_dropout");
  TakeHead(fields, /*tied=*/false, config);
  return config;
}

ModelConfig ParseStarcoder2Config(JsonFields& fields) {
  RequireFields(fields, {"num_key_value_heads"});
  ModelConfig config = TakeGroupedSizes(fields);
  TakeRope(fields, config);
  TakeLayerNorm(fields, "norm_epsilon", /*bias=*/true, config);
  config.mlp = MlpKind::kGelu;
  config.hidden_act = HiddenAct::kGelu;
  fields.Only("hidden_act", "gelu_pytorch_tanh");
  config.attention_bias = config.mlp_bias = fields.Bool("use_bias", true);
  fields.Only("norm_type", "layer_norm");
  fields.Only("mlp_type", "default");
  for (const char* field : {"activation_function", "attention_softmax_in_fp32", "embedding_dropout",
                            "layer_norm_epsilon", "residual_dropout",
                            "scale_attention_softmax_in_fp32", "scale_attn_weights"}) {
    fields.Ignore(field);  // not read
  }
  SetWindow(TakeWindow(fields, /*default_window=*/0), {}, config);
  TakeHead(fields, /*tied=*/true, config);
  return config;
}

TensorMap Starcoder2Tensors(const ModelConfig& config, const TensorSource&) {
  TensorMap map{.origins = {}, .left_out = TensorsBeside(config)};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string mlp = LayerPrefix(layer) + "mlp.";
    for (const auto& [to, from] : {std::pair{"up_proj", "c_fc"}, {"down_proj", "c_proj"}}) {
      for (const char* part : {".weight", ".bias"}) {
        map.origins.emplace(mlp + to + part, TensorOrigin{.tensor = mlp + from + part});
      }
    }
  }
  return map;
}

}  // namespace triptych::checkpoint
