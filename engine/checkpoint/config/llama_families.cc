#include "engine/checkpoint/config/llama_families.h"

#include <string>

#include "engine/checkpoint/config/grouped_fields.h"
#include "engine/checkpoint/config/published_fields.h"
#include "engine/checkpoint/config/rope_scaling.h"

namespace triptych::checkpoint {
namespace {

// Every field except biases, windows and norms of queries and keys.
ModelConfig TakeLlamaCommon(JsonFields& fields) {
  ModelConfig config = TakeGroupedSizes(fields);
  TakeRope(fields, config);
  TakeRmsNorm(fields, config);
  TakeSwiglu(fields, config);
  TakeHead(fields, /*tied=*/false, config);
  return config;
}

}  // namespace

ModelConfig ParseLlamaConfig(JsonFields& fields) {
  ModelConfig config = TakeLlamaCommon(fields);
  config.attention_bias = fields.Bool("attention_bias", false);
  config.mlp_bias = fields.Bool("mlp_bias", false);
  // transformers' Llama does not read them.
  for (const char* field : {"max_sequence_length", "rope_interleaved", "sliding_window"}) {
    fields.Ignore(field);
  }
  return config;
}

ModelConfig ParseMistralConfig(JsonFields& fields) {
  RequireFields(fields, {"num_key_value_heads"});
  const auto default_window = static_cast<int64_t>(DefaultOf(fields, "sliding_window", 4096));
  ModelConfig config = TakeLlamaCommon(fields);
  for (const char* field : {"attention_bias", "mlp_bias"}) fields.Ignore(field);  // no biases ever
  TakeLayerTypes(fields, config);  // not read: a window is every layer's
  SetWindow(TakeWindow(fields, default_window), {}, config);
  return config;
}

ModelConfig ParseQwen2Config(JsonFields& fields) {
  RequireFields(fields, {"num_key_value_heads"});
  const auto default_window = static_cast<int64_t>(DefaultOf(fields, "sliding_window", 4096));
  ModelConfig config = TakeLlamaCommon(fields);
  config.attention_bias = true;
  config.attention_output_bias = false;
  fields.Only("use_mrope", false);
  for (const char* field : {"attention_bias", "mlp_bias"}) fields.Ignore(field);  // always as above
  TakeLayerWindows(fields, default_window, config);
  return config;
}

ModelConfig ParseQwen3Config(JsonFields& fields) {
  RequireFields(fields, {"num_key_value_heads", "head_dim"});
  const auto default_window = static_cast<int64_t>(DefaultOf(fields, "sliding_window", 4096));
  ModelConfig config = TakeLlamaCommon(fields);
  config.qk_norm = true;
  config.attention_bias = fields.Bool("attention_bias", false);
  fields.Ignore("mlp_bias");  // never any
  TakeLayerWindows(fields, default_window, config);
  return config;
}

TensorMap LlamaTensors(const ModelConfig& config, const TensorSource&) {
  return {.origins = {}, .left_out = TensorsBeside(config)};
}

}  // namespace triptych::checkpoint
