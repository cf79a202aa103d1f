// Model families as they are published, computed in float64 by their full definitions: a
// config.json and the tensors of its file by their own names and in their own layout, a whole
// sequence at once. Independent of the engine, which has to give the same once it has loaded them.
// Definitions: the papers, and the modelling code that the publishers name in their config.json.
//
// What a config's fields mean. (x): what a field that is absent means; a field that is null means
// the same unless said otherwise.
//
// All but gpt2
//   vocab_size, hidden_size D, intermediate_size, num_hidden_layers L, num_attention_heads H:
//     required here; families have defaults of their own.
//   hidden_act (silu): of the gate. rms_norm_eps (1e-6).
//   tie_word_embeddings (false; minicpm3: true): the head is the embedding.
//   max_position_embeddings: where a scaling of rotations needs it.
//   rope_theta (10000): pair i of d elements turns by theta^(-2i/d) from position to position.
//   rope_scaling (null): {rope_type or, older, type (default), ...}, or since version 5 of
//     transformers rope_parameters, the same with rope_theta inside.
//     default  nothing.
//     linear   factor: turns are divided by it.
//     llama3   factor, low_freq_factor, high_freq_factor, original_max_position_embeddings
//              (max_position_embeddings).
//     yarn     factor, original_max_position_embeddings (max_position_embeddings), beta_fast (32),
//              beta_slow (1), truncate (true), attention_factor (from mscale and mscale_all_dim,
//              where both are given, else from factor).
//     longrope short_factor, long_factor: [d/2]; original_max_position_embeddings
//              (max_position_embeddings), factor (max_position_embeddings / original...),
//              attention_factor (from factor).
//     dynamic  is not here: up to max_position_embeddings it is the same as none.
// llama
//   num_key_value_heads G (H), head_dim (D / H), attention_bias (false: of q, k, v and o),
//   mlp_bias (false). Head h reads group h / (H / G); rotary pairs are (i, i + d/2).
// mistral: as llama, without any bias, and
//   num_key_value_heads (8; null: H).
//   sliding_window (4096; null: none) W: position i sees positions i - W + 1 to i.
// qwen2: as llama, with biases of q, k and v, none elsewhere, and
//   num_key_value_heads (32; null: H).
//   use_sliding_window (false), and with it sliding_window (4096; null: none) of the layers that
//   layer_types calls sliding_attention (those from max_window_layers (28) on).
// qwen3: as qwen2, with the biases of llama's attention_bias, and
//   head_dim (128). RMS norms over each query and key head, of weights q_norm and k_norm, come
//   before rotation.
// deepseek_v2, deepseek_v3: without experts, so n_routed_experts (null), or first_k_dense_replace
//   (0) of at least L.
//   q_lora_rank (1536; null: none), kv_lora_rank (512), qk_nope_head_dim (128),
//   qk_rope_head_dim (64), v_head_dim (128). The norms of both latents have an eps of 1e-6,
//   whatever rms_norm_eps is.
//   attention_bias (false): of q_a_proj, kv_a_proj_with_mqa and o_proj.
//   mlp_bias (false): deepseek_v2 alone.
//   Rotary pairs are (2i, 2i + 1), unless deepseek_v3's rope_interleave (true) is false.
//   mscale_all_dim (0) of rope_scaling: scores are multiplied by (0.1 mscale_all_dim ln(factor)
//   + 1)^2.
// minicpm3: as deepseek_v2, with pairs (i, i + d/2), and
//   q_lora_rank (768), kv_lora_rank (256), qk_nope_head_dim (64), qk_rope_head_dim (32),
//   v_head_dim (D / H).
//   scale_emb of embeddings, scale_depth / sqrt(L) of what each layer adds, dim_model_base / D of
//   what the head gets: required, since code that is published differs in what their absence means.
// gpt2
//   vocab_size, n_positions, n_embd D, n_layer, n_head: required here.
//   n_inner (4 D), activation_function (gelu_new), layer_norm_epsilon (1e-5),
//   scale_attn_weights (true), scale_attn_by_inverse_layer_idx (false: layer l's scores are divided
//   by l + 1), tie_word_embeddings (true). Matrices are [in, out]; names may begin with
//   `transformer.`.
//
// What else changes what is computed, and has no definition here:
//   all        quantization_config, is_encoder_decoder, an architecture that is no causal language
//              model, activations that Activate does not know.
//   rotary     partial_rotary_factor other than 1; rope_parameters by kinds of layers; rope_scaling
//              beside rope_parameters; other types; of mscale and mscale_all_dim one alone, and
//              longrope whose tables differ where max_position_embeddings is beyond the original:
//              published code disagrees about both.
//   mistral    layer_types other than full_attention.
//   qwen2      use_mrope.
//   deepseek   num_key_value_heads other than H; layers of experts.
//   minicpm3   v_head_dim other than D / H, which its publisher's code does not read.
//   gpt2       add_cross_attention, pruned_heads.
// What changes nothing:
//   all        auto_map, _name_or_path, transformers_version, torch_dtype, dtype, bos_token_id,
//              eos_token_id, pad_token_id, use_cache, initializer_range, dropouts, pretraining_tp,
//              output_*, label names.
//   llama      sliding_window, rope_interleaved.
//   mistral    attention_bias, mlp_bias: not read, as in qwen2.
//   qwen       sliding_window and max_window_layers without use_sliding_window; mlp_bias.
//   deepseek   head_dim; mlp_bias of deepseek_v3; of experts moe_*, n_shared_experts, n_group,
//              topk_*, norm_topk_prob, routed_scaling_factor, scoring_func, num_experts_per_tok,
//              aux_loss_alpha, seq_aux, ep_size; num_nextn_predict_layers, of which there are
//              tensors of layers L and on.
//   gpt2       n_ctx, reorder_and_upcast_attn, embd_pdrop, attn_pdrop, resid_pdrop, summary_*,
//              task_specific_params.
// Tensors that files have beside: rotary_emb.inv_freq of old llama, h.N.attn.bias and masked_bias
// of gpt2, lm_head.weight where it is tied.
#ifndef TRIPTYCH_TESTS_SUPPORT_PUBLISHED_MODELS_H_
#define TRIPTYCH_TESTS_SUPPORT_PUBLISHED_MODELS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/json.h"

namespace triptych::published {

using Tensors = std::map<std::string, at::Tensor>;

// Logits [length, vocab_size] float64 of a whole sequence, with the tensors' numbers as they are,
// whatever their dtype. Tensors that the definition does not name are not looked at. Throws
// nlohmann::json::exception and std::out_of_range for a field and a tensor that are missing,
// std::invalid_argument for a value that no definition here knows.
at::Tensor Logits(const Json& config, const Tensors& tensors, const std::vector<int64_t>& ids);

// How the pairs of `dim` elements turn in a sequence of `length`.
struct Rotary {
  at::Tensor frequencies;  // [dim / 2] float64, in radians a position
  double magnitude = 1;    // of the cosines and sines
};
Rotary RotaryOf(const Json& config, int64_t dim, int64_t length);

// By its name in configs, element by element. Throws std::invalid_argument.
at::Tensor Activate(const std::string& name, const at::Tensor& x);

}  // namespace triptych::published

#endif  // TRIPTYCH_TESTS_SUPPORT_PUBLISHED_MODELS_H_
