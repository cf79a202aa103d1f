// Fields of published config.json files, each with its model.
#ifndef TRIPTYCH_TESTS_SUPPORT_PUBLISHED_CONFIGS_H_
#define TRIPTYCH_TESTS_SUPPORT_PUBLISHED_CONFIGS_H_

#include <vector>

#include "engine/base/json.h"

namespace triptych::published {

// A config with some fields set.
inline Json With(Json config, const Json& fields) {
  config.update(fields);
  return config;
}

inline Json Without(Json config, const std::vector<const char*>& fields) {
  for (const char* field : fields) config.erase(field);
  return config;
}

// meta-llama/Llama-2-7b-hf
inline Json Llama2() {
  return Json::parse(R"({
    "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "tie_word_embeddings": false, "torch_dtype": "float16",
    "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000})");
}

// huggyllama/llama-7b
inline Json Llama1() {
  return With(Without(Llama2(), {"num_key_value_heads", "pretraining_tp", "rope_scaling"}),
              {{"max_position_embeddings", 2048},
               {"max_sequence_length", 2048},
               {"pad_token_id", 0},
               {"rms_norm_eps", 1e-6},
               {"transformers_version", "4.28.0.dev0"}});
}

// TinyLlama/TinyLlama-1.1B-Chat-v1.0
inline Json TinyLlama() {
  return With(Llama2(), {{"attention_bias", false},
                         {"hidden_size", 2048},
                         {"intermediate_size", 5632},
                         {"max_position_embeddings", 2048},
                         {"num_hidden_layers", 22},
                         {"num_key_value_heads", 4},
                         {"rope_theta", 10000.0},
                         {"torch_dtype", "bfloat16"}});
}

// meta-llama/Llama-3.2-1B
inline Json Llama32() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})");
}

// meta-llama/Llama-3.1-8B
inline Json Llama31() {
  Json config = With(Without(Llama32(), {"head_dim"}), {{"eos_token_id", 128001},
                                                        {"hidden_size", 4096},
                                                        {"intermediate_size", 14336},
                                                        {"num_hidden_layers", 32},
                                                        {"tie_word_embeddings", false}});
  config["rope_scaling"]["factor"] = 8.0;
  return config;
}

// meta-llama/Meta-Llama-3-8B
inline Json Llama3() {
  return With(Without(Llama31(), {"mlp_bias"}),
              {{"max_position_embeddings", 8192}, {"rope_scaling", nullptr}});
}

// HuggingFaceTB/SmolLM2-135M
inline Json SmolLm2() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576,
    "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
    "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
    "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": true, "vocab_size": 49152})");
}

// HuggingFaceTB/SmolLM-135M
inline Json SmolLm() {
  return With(SmolLm2(), {{"max_position_embeddings", 2048}, {"rope_theta", 10000.0}});
}

// mistralai/Mistral-7B-v0.1
inline Json Mistral() {
  return Json::parse(R"({
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})");
}

// mistralai/Mistral-7B-Instruct-v0.3
inline Json Mistral03() {
  return With(Mistral(), {{"attention_dropout", 0.0},
                          {"rope_theta", 1000000.0},
                          {"sliding_window", nullptr},
                          {"vocab_size", 32768}});
}

// Qwen/Qwen2.5-0.5B
inline Json Qwen25() {
  return Json::parse(R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
    "use_sliding_window": false, "vocab_size": 151936})");
}

// Qwen/Qwen2-0.5B
inline Json Qwen2() {
  return With(Without(Qwen25(), {"use_mrope"}),
              {{"max_position_embeddings", 131072}, {"sliding_window", 131072}});
}

// Qwen/Qwen3-0.6B
inline Json Qwen3() {
  return Json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

// openai-community/gpt2
inline Json Gpt2() {
  return Json::parse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
    "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
    "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
    "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 50257})");
}

// openai-community/gpt2-xl
inline Json Gpt2Xl() {
  return With(Gpt2(), {{"n_embd", 1600},
                       {"n_head", 25},
                       {"n_layer", 48},
                       {"n_special", 0},
                       {"output_past", true},
                       {"predict_special_tokens", true}});
}

// deepseek-ai/DeepSeek-V2-Lite
inline Json DeepSeekV2Lite() {
  return Json::parse(R"({
    "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV2Config"}, "aux_loss_alpha": 0.001,
    "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1,
    "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
                     "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
                     "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
    "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
    "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true,
    "v_head_dim": 128, "vocab_size": 102400})");
}

// The same without its experts.
inline Json DeepSeekDense() { return With(DeepSeekV2Lite(), {{"n_routed_experts", nullptr}}); }

// openbmb/MiniCPM3-4B
inline Json MiniCpm3() {
  Json config = Json::parse(R"({
    "architectures": ["MiniCPM3ForCausalLM"], "bos_token_id": 1, "eos_token_id": [2, 73440],
    "initializer_range": 0.1, "hidden_act": "silu", "hidden_size": 2560,
    "intermediate_size": 6400, "max_position_embeddings": 32768, "model_type": "minicpm3",
    "num_attention_heads": 40, "num_hidden_layers": 62, "num_key_value_heads": 40,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "q_lora_rank": 768, "kv_lora_rank": 256,
    "rms_norm_eps": 1e-05, "torch_dtype": "bfloat16", "transformers_version": "4.41.0",
    "use_cache": true, "vocab_size": 73448, "scale_emb": 12, "dim_model_base": 256,
    "scale_depth": 1.4, "rope_scaling": {
      "type": "longrope", "original_max_position_embeddings": 32768,
      "long_factor": [
        1.0591234137867171, 1.1241891283591912, 1.2596935748670968, 1.5380380402321725,
        2.093982484148734, 3.1446935121267696, 4.937952647693647, 7.524541999994549,
        10.475458000005451, 13.062047352306353, 14.85530648787323, 15.906017515851266,
        16.461961959767827, 16.740306425132907, 16.87581087164081, 16.940876586213285]}})");
  config["rope_scaling"]["short_factor"] = config["rope_scaling"]["long_factor"];
  return config;
}

// PLM-Team/PLM-1.8B, by the defaults of its configuration class
inline Json Plm() {
  return Json::parse(R"({
    "architectures": ["PLMForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "hidden_act": "relu2", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "kv_lora_rank": 512, "max_position_embeddings": 4096,
    "model_type": "plm", "num_attention_heads": 16, "num_hidden_layers": 32,
    "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 100000.0, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 151936})");
}

// microsoft/Phi-3-mini-4k-instruct
inline Json Phi3Mini() {
  return Json::parse(R"({
    "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 1,
    "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096,
    "model_type": "phi3", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "pad_token_id": 32000,
    "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
    "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.2", "use_cache": true, "vocab_size": 32064})");
}

// ibm-granite/granite-3.1-2b-instruct
inline Json Granite() {
  return Json::parse(R"({
    "architectures": ["GraniteForCausalLM"], "attention_bias": false, "attention_dropout": 0.1,
    "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0,
    "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "logits_scaling": 8.0, "max_position_embeddings": 131072,
    "mlp_bias": false, "model_type": "granite", "num_attention_heads": 32,
    "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 0,
    "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 5000000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.47.0.dev0", "use_cache": true, "vocab_size": 49155})");
}

// HuggingFaceTB/SmolLM3-3B
inline Json SmolLm3() {
  Json config = Json::parse(R"({
    "architectures": ["SmolLM3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": null, "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 65536,
    "max_window_layers": 28, "mlp_bias": false, "model_type": "smollm3",
    "no_rope_layer_interval": 4, "num_attention_heads": 16, "num_hidden_layers": 36,
    "num_key_value_heads": 4, "pad_token_id": 128004, "pretraining_tp": 2,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0,
    "sliding_window": null, "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0",
    "use_cache": false, "use_sliding_window": false, "vocab_size": 128256})");
  for (int layer = 1; layer <= 36; ++layer) {
    config["no_rope_layers"].push_back(layer % 4 == 0 ? 0 : 1);
    config["layer_types"].push_back("full_attention");
  }
  return config;
}

// google/gemma-2b
inline Json Gemma() {
  return Json::parse(R"({
    "architectures": ["GemmaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 16384, "max_position_embeddings": 8192, "model_type": "gemma",
    "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1,
    "pad_token_id": 0, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
    "torch_dtype": "bfloat16", "transformers_version": "4.38.1", "use_cache": true,
    "vocab_size": 256000})");
}

// google/gemma-2-2b
inline Json Gemma2() {
  return Json::parse(R"({
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2304, "initializer_range": 0.02, "intermediate_size": 9216,
    "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8,
    "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
    "sliding_window": 4096, "torch_dtype": "float32", "transformers_version": "4.42.4",
    "use_cache": true, "vocab_size": 256000})");
}

// google/gemma-3-1b-it
inline Json Gemma3() {
  return Json::parse(R"({
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
    "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})");
}

// bigcode/starcoder2-3b
inline Json Starcoder2() {
  return Json::parse(R"({
    "architectures": ["Starcoder2ForCausalLM"], "attention_dropout": 0.1,
    "attention_softmax_in_fp32": true, "bos_token_id": 0, "embedding_dropout": 0.1,
    "eos_token_id": 0, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072,
    "initializer_range": 0.018042, "intermediate_size": 12288, "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 16384, "mlp_type": "default", "model_type": "starcoder2",
    "norm_epsilon": 1e-05, "norm_type": "layer_norm", "num_attention_heads": 24,
    "num_hidden_layers": 30, "num_key_value_heads": 2, "residual_dropout": 0.1,
    "rope_theta": 999999.4420358813, "scale_attention_softmax_in_fp32": true,
    "scale_attn_weights": true, "sliding_window": 4096, "torch_dtype": "float32",
    "transformers_version": "4.37.0.dev0", "use_bias": true, "use_cache": true,
    "vocab_size": 49152})");
}

// stabilityai/stablelm-2-1_6b
inline Json StableLm2() {
  return Json::parse(R"({
    "architectures": ["StableLmForCausalLM"], "bos_token_id": 100257, "eos_token_id": 100257,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 5632, "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
    "model_type": "stablelm", "num_attention_heads": 32, "num_hidden_layers": 24,
    "num_key_value_heads": 32, "partial_rotary_factor": 0.25, "rope_theta": 10000,
    "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.38.0",
    "use_cache": true, "use_qkv_bias": true, "vocab_size": 100352})");
}

// allenai/OLMo-2-0425-1B
inline Json Olmo2() {
  return Json::parse(R"({
    "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096,
    "model_type": "olmo2", "num_attention_heads": 16, "num_hidden_layers": 16,
    "num_key_value_heads": 16, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
    "torch_dtype": "float32", "transformers_version": "4.47.0", "use_cache": true,
    "vocab_size": 100352})");
}

// CohereForAI/aya-23-8B
inline Json Aya() {
  return Json::parse(R"({
    "architectures": ["CohereForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 5, "eos_token_id": 255001, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "layer_norm_eps": 1e-05,
    "logit_scale": 0.0625, "max_position_embeddings": 8192, "model_type": "cohere",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "pad_token_id": 0, "rope_theta": 10000, "torch_dtype": "float16",
    "transformers_version": "4.40.0.dev0", "use_cache": true, "use_qk_norm": false,
    "vocab_size": 256000})");
}

// deepseek-ai/DeepSeek-V3
inline Json DeepSeekV3() {
  return Json::parse(R"({
    "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001,
    "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3,
    "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02,
    "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
    "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "pretraining_tp": 1,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                            "weight_block_size": [128, 128]},
    "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
                     "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
                     "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
    "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true,
    "v_head_dim": 128, "vocab_size": 129280})");
}

// moonshotai/Moonlight-16B-A3B
inline Json Moonlight() {
  return With(Without(DeepSeekV3(), {"quantization_config", "ep_size"}),
              {{"first_k_dense_replace", 1},
               {"hidden_size", 2048},
               {"intermediate_size", 11264},
               {"max_position_embeddings", 8192},
               {"moe_intermediate_size", 1408},
               {"n_group", 1},
               {"n_routed_experts", 64},
               {"n_shared_experts", 2},
               {"num_attention_heads", 16},
               {"num_experts_per_tok", 6},
               {"num_hidden_layers", 27},
               {"num_key_value_heads", 16},
               {"num_nextn_predict_layers", 0},
               {"q_lora_rank", nullptr},
               {"rms_norm_eps", 1e-5},
               {"rope_scaling", nullptr},
               {"rope_theta", 50000.0},
               {"routed_scaling_factor", 2.446},
               {"topk_group", 1},
               {"vocab_size", 163840}});
}

// zai-org/GLM-4.7-Flash
inline Json Glm47Flash() {
  return Json::parse(R"({
    "architectures": ["Glm4MoeLiteForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "pad_token_id": 154820, "eos_token_id": [154820, 154827, 154829], "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 10240, "max_position_embeddings": 202752,
    "model_type": "glm4_moe_lite", "moe_intermediate_size": 1536, "topk_method": "noaux_tc",
    "norm_topk_prob": true, "num_attention_heads": 20, "n_group": 1, "topk_group": 1,
    "n_routed_experts": 64, "n_shared_experts": 1, "routed_scaling_factor": 1.8,
    "num_experts_per_tok": 4, "first_k_dense_replace": 1, "num_hidden_layers": 47,
    "num_key_value_heads": 20, "num_nextn_predict_layers": 1, "partial_rotary_factor": 1.0,
    "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
    "tie_word_embeddings": false, "dtype": "bfloat16", "transformers_version": "5.0.0rc0",
    "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
    "v_head_dim": 256, "vocab_size": 154880})");
}

// mistralai/Mixtral-8x7B-v0.1
inline Json Mixtral() {
  return Json::parse(R"({
    "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
    "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
    "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.36.0.dev0", "use_cache": true, "vocab_size": 32000})");
}

// allenai/OLMoE-1B-7B-0924
inline Json Olmoe() {
  return Json::parse(R"({
    "architectures": ["OlmoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "clip_qkv": null, "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 1024, "max_position_embeddings": 4096,
    "model_type": "olmoe", "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 64,
    "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16,
    "output_router_logits": false, "pad_token_id": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 50304})");
}

// Qwen/Qwen1.5-MoE-A2.7B
inline Json Qwen15Moe() {
  return Json::parse(R"({
    "architectures": ["Qwen2MoeForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
    "model_type": "qwen2_moe", "num_attention_heads": 16, "num_hidden_layers": 24,
    "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.39.0.dev0", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936, "decoder_sparse_step": 1, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60,
    "norm_topk_prob": false, "output_router_logits": false, "router_aux_loss_coef": 0.001})");
}

// Qwen/Qwen3-30B-A3B
inline Json Qwen3Moe() {
  return Json::parse(R"({
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
    "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

// ibm-granite/granite-3.0-1b-a400m-base
inline Json GraniteMoe() {
  return Json::parse(R"({
    "architectures": ["GraniteMoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.1,
    "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0,
    "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 4096,
    "model_type": "granitemoe", "num_attention_heads": 16, "num_experts_per_tok": 8,
    "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
    "output_router_logits": false, "pad_token_id": 0, "residual_multiplier": 0.22,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000,
    "router_aux_loss_coef": 0.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.46.0.dev0", "use_cache": true, "vocab_size": 49155})");
}

// All supported configs.
inline std::vector<Json> Every() {
  return {Llama1(),  Llama2(),         Llama3(),     Llama31(),       Llama32(),    TinyLlama(),
          SmolLm(),  SmolLm2(),        Mistral(),    Mistral03(),     Qwen2(),      Qwen25(),
          Qwen3(),   Gpt2(),           Gpt2Xl(),     DeepSeekDense(), MiniCpm3(),   Phi3Mini(),
          Granite(), SmolLm3(),        Gemma(),      Starcoder2(),    StableLm2(),  Olmo2(),
          Aya(),     DeepSeekV2Lite(), DeepSeekV3(), Moonlight(),     Glm47Flash(), Mixtral(),
          Olmoe(),   Qwen15Moe(),      Qwen3Moe(),   GraniteMoe(),    Gemma2(),     Gemma3(),
          Plm()};
}

}  // namespace triptych::published

#endif  // TRIPTYCH_TESTS_SUPPORT_PUBLISHED_CONFIGS_H_
