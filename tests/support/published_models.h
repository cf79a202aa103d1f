// Reference implementation of published model families in float64, by their full definitions. Takes
// a config.json and its file's tensors with their published names and layout; computes a whole
// sequence at once. Independent of the engine, which must give the same logits once it has loaded
// the model. Definitions: the papers, and the modelling code that the publishers name in their
// config.json.
//
// Meaning of a config's fields. (x): default of an absent field; null means the default too, unless
// said otherwise.
//
// All except gpt2
//   vocab_size, hidden_size D, intermediate_size, num_hidden_layers L, num_attention_heads H:
//     required here; families have different defaults.
//   hidden_act (silu): activation of the gate. rms_norm_eps (1e-6).
//   tie_word_embeddings (false; minicpm3, youtu, plm: true): the head is the embedding.
//   max_position_embeddings: needed by some kinds of rope_scaling.
//   rope_theta (10000): pair i of d elements turns by theta^(-2i/d) from position to position.
//   rope_scaling (null): {rope_type or, older, type (default), ...}, or since version 5 of
//     transformers rope_parameters, the same with rope_theta inside.
//     default  no scaling.
//     linear   factor: divides the turns.
//     llama3   factor, low_freq_factor, high_freq_factor, original_max_position_embeddings
//              (max_position_embeddings).
//     yarn     factor, original_max_position_embeddings (max_position_embeddings), beta_fast (32),
//              beta_slow (1), truncate (true), attention_factor (from mscale and mscale_all_dim,
//              if both are given, else from factor).
//     longrope short_factor, long_factor: [d/2]; original_max_position_embeddings
//              (max_position_embeddings), factor (max_position_embeddings / original...),
//              attention_factor (from factor).
//     dynamic  not implemented: up to max_position_embeddings it equals no scaling.
// llama
//   num_key_value_heads G (H), head_dim (D / H), attention_bias (false: of q, k, v and o),
//   mlp_bias (false). Head h reads group h / (H / G); rotary pairs are (i, i + d/2).
// mistral: as llama, without any bias, and
//   num_key_value_heads (8; null: H).
//   sliding_window (4096; null: none) W: position i sees positions i - W + 1 to i.
// qwen2: as llama, with biases of q, k and v, none elsewhere, and
//   num_key_value_heads (32; null: H).
//   use_sliding_window (false); if true, sliding_window (4096; null: none) applies to the layers
//   that layer_types calls sliding_attention (default: those from max_window_layers (28)).
// qwen3: as qwen2, with biases by llama's attention_bias, and
//   head_dim (128). RMS norms over each query and key head, with weights q_norm and k_norm, precede
//   rotation.
// deepseek_v2, deepseek_v3: without experts only, so n_routed_experts is absent (null), or
//   first_k_dense_replace (0) is at least L.
//   q_lora_rank (1536; null: none), kv_lora_rank (512), qk_nope_head_dim (128),
//   qk_rope_head_dim (64), v_head_dim (128). The norms of both latents have an eps of 1e-6,
//   regardless of rms_norm_eps. attention_bias (false): biases of q_a_proj, kv_a_proj_with_mqa and
//   o_proj. mlp_bias (false): deepseek_v2 only. Rotary pairs are (2i, 2i + 1), unless deepseek_v3's
//   rope_interleave (true) is false. mscale_all_dim (0) in rope_scaling: scores are multiplied by
//   (0.1 mscale_all_dim ln(factor)
//   + 1)^2.
//   qk_latent_layernorm (absent), of models that TransMLA converts: whether latents are normed. If
//   it is there, attention_bias means biases of q_proj and kv_a_proj_with_mqa, not of o_proj.
// minicpm3: as deepseek_v2, with pairs (i, i + d/2), and
//   q_lora_rank (768), kv_lora_rank (256), qk_nope_head_dim (64), qk_rope_head_dim (32),
//   v_head_dim (D / H).
//   scale_emb multiplies embeddings, scale_depth / sqrt(L) each layer's output, dim_model_base / D
//   the head's input: required, because published code differs in their defaults.
// plm: as deepseek_v3 without experts, and
//   hidden_act (relu2). The MLP has no gate: down_proj(hidden_act(up_proj(x))), without bias.
//   q_lora_rank (null). mscale_all_dim does not change scores.
// phi3: as llama, without any bias, and
//   rms_norm_eps (1e-5). qkv_proj is q, k and v; gate_up_proj is gate and up.
//   partial_rotary_factor (1): the first int(factor * d) elements of a head turn.
//   original_max_position_embeddings: of longrope, if rope_scaling has none.
//   sliding_window (null: none): as mistral's.
// granite: as llama, and
//   embedding_multiplier (1), residual_multiplier (1: of each layer's output), logits_scaling (1:
//   divides logits), attention_multiplier (1: of scores, instead of 1 / sqrt(d)).
// smollm3: as llama, with num_key_value_heads (4; null: H), tie_word_embeddings (true), and
//   no_rope_layers: 1 for layers that rotate. Without it, every no_rope_layer_interval-th (4) layer
//   does not. use_sliding_window (false); if true, sliding_window (null: none) applies to the
//   layers that layer_types calls sliding_attention (default: those that do not rotate).
// gemma: as llama, without mlp_bias, and
//   head_dim: required here. num_key_value_heads (16). tie_word_embeddings (true).
//   hidden_activation (gelu_pytorch_tanh), regardless of hidden_act. Embeddings are multiplied by
//   sqrt(D), rounded to torch_dtype; norms' weights are stored less 1.
// gemma2: as gemma, with norms before and after attention and MLP: input_layernorm,
//   post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm, and
//   num_key_value_heads (4). query_pre_attn_scalar (256): scores are divided by its root.
//   attn_logit_softcapping (50; null: none) c: a score s becomes c tanh(s / c).
//   final_logit_softcapping (30; null: none): the same of logits. sliding_window (4096; null: none)
//   applies to the layers that layer_types calls sliding_attention (default: the first and every
//   second one from there).
// gemma3_text: as gemma2, with both soft-caps null by default, and
//   Norms, stored less 1, over each query and key head, with weights q_norm and k_norm, precede
//   rotation. Every sliding_window_pattern-th (6) layer is full by default. Sliding layers turn by
//   rope_local_base_freq (10000) instead of rope_theta, without rope_scaling. rope_parameters may
//   have sliding_attention and full_attention, each with its own rope_theta.
// olmo2: as llama, without mlp_bias, and
//   rms_norm_eps (1e-5). No norms of inputs, but of the outputs of attention and MLP, and of all
//   queries and all keys before rotation.
// starcoder2: as llama, with layer norms, an MLP of c_fc and c_proj, and
//   hidden_act (gelu_pytorch_tanh), norm_epsilon (1e-5), use_bias (true: of every matrix),
//   num_key_value_heads (2; null: H), sliding_window (null: none), tie_word_embeddings (true).
// stablelm: as llama, with layer norms, and
//   layer_norm_eps (1e-5), use_qkv_bias (false), num_key_value_heads (32; null: H),
//   partial_rotary_factor (0.25), use_parallel_residual (false: attention and MLP read the same
//   norm's output).
// cohere: as llama, without mlp_bias, with layer norms without bias, pairs (2i, 2i + 1), a parallel
//   residual, and
//   layer_norm_eps (1e-5), logit_scale (0.0625), tie_word_embeddings (true).
// gpt2
//   vocab_size, n_positions, n_embd D, n_layer, n_head: required here.
//   n_inner (4 D), activation_function (gelu_new), layer_norm_epsilon (1e-5),
//   scale_attn_weights (true), scale_attn_by_inverse_layer_idx (false: layer l's scores are divided
//   by l + 1), tie_word_embeddings (true). Matrices are [in, out]; names can begin with
//   `transformer.`.
//
// Fields that change the computation and are not implemented:
//   all        quantization_config, is_encoder_decoder, architectures other than causal language
//              models, activations that Activate does not know.
//   rotary     partial_rotary_factor other than 1, except where it is listed above; rope_parameters
//              by kinds of layers, except gemma3_text's; rope_scaling together with
//              rope_parameters; other types. Published code disagrees on only one of mscale and
//              mscale_all_dim, and on longrope with two different tables if max_position_embeddings
//              is above the original.
//   mistral    layer_types other than full_attention.
//   qwen2      use_mrope.
//   deepseek   num_key_value_heads other than H; layers of experts.
//   minicpm3   v_head_dim other than D / H: its publisher's code does not read it.
//   gpt2       add_cross_attention, pruned_heads.
//   cohere     use_qk_norm.
//   stablelm   qk_layernorm.
//   gemma, gemma2, gemma3_text
//              use_bidirectional_attention.
// Fields that change nothing:
//   gemma2, gemma3_text
//              cache_implementation; sliding_window_size.
//   all        auto_map, _name_or_path, transformers_version, torch_dtype, dtype, bos_token_id,
//              eos_token_id, pad_token_id, use_cache, initializer_range, dropouts, pretraining_tp,
//              output_*, label names.
//   llama      sliding_window, rope_interleaved.
//   mistral    attention_bias, mlp_bias: not read, as in qwen2.
//   qwen       sliding_window and max_window_layers without use_sliding_window; mlp_bias.
//   deepseek   head_dim; mlp_bias of deepseek_v3; experts' fields: moe_*, n_shared_experts,
//   n_group,
//              topk_*, norm_topk_prob, routed_scaling_factor, scoring_func, num_experts_per_tok,
//              aux_loss_alpha, seq_aux, ep_size; num_nextn_predict_layers, whose tensors belong to
//              layers from L.
//   gpt2       n_ctx, reorder_and_upcast_attn, embd_pdrop, attn_pdrop, resid_pdrop, summary_*,
//              task_specific_params.
// Additional tensors in files: rotary_emb.inv_freq in old llama files, h.N.attn.bias and
// masked_bias in gpt2's, lm_head.weight if it is tied.
#ifndef TRIPTYCH_TESTS_SUPPORT_PUBLISHED_MODELS_H_
#define TRIPTYCH_TESTS_SUPPORT_PUBLISHED_MODELS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/base/json.h"
#include "tests/support/published_parts.h"

namespace triptych::published {

// Logits [length, vocab_size] float64 of a whole sequence, from tensors of any dtype, whose numbers
// are used unrounded. Ignores tensors that the definition does not name. Throws
// nlohmann::json::exception for a missing field, std::out_of_range for a missing tensor,
// std::invalid_argument for an unknown value.
at::Tensor Logits(const Json& config, const Tensors& tensors, const std::vector<int64_t>& ids);

}  // namespace triptych::published

#endif  // TRIPTYCH_TESTS_SUPPORT_PUBLISHED_MODELS_H_
