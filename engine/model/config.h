// Config of a model, and the cache geometry that it implies.
//
// Field names and meanings are those of published configs where one exists.
// engine/checkpoint/config/config_file.h reads them, validate_config.h checks them.
#ifndef TRIPTYCH_ENGINE_MODEL_CONFIG_H_
#define TRIPTYCH_ENGINE_MODEL_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/formats.h"
#include "engine/kv_cache/geometry.h"

namespace triptych {

enum class AttentionKind { kMha, kGqa, kMla };
enum class PositionEmbedding { kLearned, kSinusoidal, kRope, kNone };
enum class NormKind { kRmsNorm, kLayerNorm };
enum class MlpKind { kGelu, kSwiglu, kGeglu, kRelu2 };
enum class HiddenAct { kGelu, kGeluExact, kSilu, kRelu2 };
// Scores of a router's logits: over all experts of a token together, or each by itself.
enum class ScoringFunc { kSoftmax, kSigmoid };
// Choice of a token's experts by their scores: the best of all; the best of the groups whose best
// expert is best; or, by score plus correction bias, the best of the groups whose two best experts
// have the largest sum.
enum class TopkMethod { kGreedy, kGroupLimitedGreedy, kNoauxTc };
// The key/value head g that query head h reads: modular, g = h mod G; contiguous, g = h / (H/G).
// Contiguous checkpoints are permuted to modular at load.
enum class HeadGrouping { kModular, kContiguous };
// A sliding layer's query attends the last sliding_window positions, its own included.
enum class LayerType { kFull, kSliding };

// The names of these choices in config.json and in flags.
std::string_view Name(AttentionKind kind);
std::string_view Name(PositionEmbedding positions);
std::string_view Name(NormKind norm);
std::string_view Name(MlpKind mlp);
std::string_view Name(HiddenAct act);
std::string_view Name(ScoringFunc scores);
std::string_view Name(TopkMethod method);
std::string_view Name(HeadGrouping grouping);
std::string_view Name(LayerType type);

// ModelConfig::Window of a layer whose queries attend all positions up to their own.
inline constexpr int64_t kNoWindow = std::numeric_limits<int64_t>::max();

// A text whose beginning a model was trained on; its end is held out.
struct TrainingText {
  std::string sha256;   // of the file, 64 hexadecimal digits
  double held_out = 0;  // the held-out fraction of its tokens, at the end
};

// The maximum in a config.json.
inline constexpr size_t kMaxTrainingTexts = 64;

// The format of matrices that a checkpoint stores as integers: "quantization_config" in its
// config.json.
struct Quantization {
  WeightFormat format = WeightFormat::kInt8;  // one of integers; "bits": 8 or 4
  bool embeddings = true;                     // the embedding and the output matrix, too
};

inline constexpr double kLeastScoreSum = 1e-20;

// Mixture of experts in place of the MLP of some layers (engine/definitions.md#experts). Fields of
// a config.json, by their names there.
struct ExpertsConfig {
  int64_t n_routed_experts = 0;       // E; 0: every MLP is dense, and the other fields do not apply
  int64_t num_experts_per_tok = 0;    // K
  int64_t moe_intermediate_size = 0;  // width inside an expert
  // Width inside the MLP that every token takes besides its experts; 0: none.
  int64_t shared_expert_intermediate_size = 0;
  bool shared_expert_gate = false;  // multiplies its output by the sigmoid of a product with x
  ScoringFunc scoring_func = ScoringFunc::kSoftmax;  // softmax, sigmoid
  TopkMethod topk_method = TopkMethod::kGreedy;      // greedy, group_limited_greedy, noaux_tc
  // Equal groups of consecutive experts, and those of them that a token chooses from; 1 with
  // greedy.
  int64_t n_group = 1;
  int64_t topk_group = 1;
  // Divides the scores of a token's experts by their sum plus kLeastScoreSum.
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1;  // of the experts' weighted sum
  // 1 for each layer with experts, 0 for each with a dense MLP; empty: all have experts.
  std::vector<int64_t> sparse_layers = {};
};

// The fields of a config.json of model_type "triptych", by their names there.
//
// Required: the sizes from vocab_size to max_position_embeddings, except head_dim and (except under
// GQA) num_key_value_heads; attention, position_embedding, norm, mlp, torch_dtype; kv_lora_rank
// under MLA. The comment of a choice lists its values.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;        // D
  int64_t intermediate_size = 0;  // width inside the MLP
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;  // H
  int64_t num_key_value_heads = 0;  // G; H under MHA, and under MLA unless qk_norm is true
  int64_t head_dim = 0;             // d_qk, and the default of d_v; by default D / H
  int64_t max_position_embeddings = 0;

  AttentionKind attention = AttentionKind::kMha;  // mha, gqa, mla
  // r of each layer; empty unless MLA. A number in the file is the rank of every layer.
  std::vector<int64_t> kv_lora_rank;
  // The next fields are for MLA only.
  int64_t qk_rope_head_dim = 0;  // d_R; required by rotary positions, otherwise 0
  int64_t v_head_dim = 0;        // d_v; 0: head_dim
  bool kv_a_layernorm = false;   // RMS norm on the latent, which is cached after it
  // The width that queries are projected from, after an RMS norm; 0: from D, without a norm.
  int64_t q_lora_rank = 0;
  std::optional<double> latent_norm_eps;  // of the norms of MLA; absent: norm_eps
  // MHA and GQA: RMS norms of every head's query and key before rotation, one for all queries and
  // one for all keys. MLA: the norms of engine/definitions.md#normed-keys, with latent_norm_eps.
  bool qk_norm = false;
  // MHA and GQA with qk_norm: one RMS norm over all heads' queries together, and one over all keys.
  bool qk_norm_all_heads = false;
  // Factor of the scores, besides 1 / sqrt(d_qk + d_R).
  double attention_score_factor = 1;
  bool scale_attn_by_inverse_layer_idx = false;         // multiplies by 1 / (layer + 1)
  HeadGrouping head_grouping = HeadGrouping::kModular;  // modular, contiguous
  // The next three fields are for MHA and GQA only. Positions that a sliding layer's query attends;
  // 0: there is no such layer.
  int64_t sliding_window = 0;
  // sliding_attention, full_attention of each layer; empty: all are sliding if there is a window.
  std::vector<LayerType> layer_types;
  double attn_logit_softcapping = 0;  // c: a score s becomes c tanh(s / c); 0: it stays

  // learned, sinusoidal, rope, none. The next seven fields are for rope only.
  PositionEmbedding position_embedding = PositionEmbedding::kLearned;
  // At position p, pair i of width d turns by p * theta^(-2i/d) / rope_factors[i].
  double rope_theta = 10000.0;
  std::vector<double> rope_factors;  // one for each pair; empty: all 1
  double rope_attention_factor = 1;  // factor of rotated queries and keys
  // theta of sliding layers, which have neither rope_factors nor rope_attention_factor; 0: they
  // turn as the others do.
  double rope_local_base_freq = 0;
  // Rotary pairs are (2i, 2i+1); false: (i, i + d/2), permuted at load.
  bool rope_interleave = true;
  // MHA and GQA only: the first elements of a head are rotated, this number of them; 0: all.
  int64_t rotary_dim = 0;
  // MHA and GQA only: 1 for each layer that rotates, 0 for each that does not; empty: all rotate.
  std::vector<int64_t> no_rope_layers;
  NormKind norm = NormKind::kRmsNorm;  // rms_norm, layer_norm
  double norm_eps = 1e-5;
  bool norm_bias = false;     // layer_norm only
  bool norm_inputs = true;    // of attention and the MLP
  bool norm_outputs = false;  // of attention and the MLP, before they are added
  // Attention and the MLP read the same normed input; their outputs are added together.
  bool use_parallel_residual = false;
  MlpKind mlp = MlpKind::kSwiglu;  // gelu, swiglu, geglu, relu2
  // silu with mlp swiglu; gelu (tanh approximation, the default) with mlp gelu or geglu; gelu_exact
  // with mlp gelu; relu2 (max(z, 0)^2) with mlp relu2.
  HiddenAct hidden_act = HiddenAct::kSilu;
  bool mlp_bias = false;        // without experts only
  ExpertsConfig experts;        // its fields stand next to the others in a config.json
  bool attention_bias = false;  // of q, k and v; under MLA of q
  bool latent_bias = false;     // MLA only: of kv_a_proj_with_mqa and q_a_proj
  std::optional<bool> attention_output_bias;  // of o; absent: attention_bias
  double embedding_multiplier = 1;            // of token embeddings before the first layer
  double logit_multiplier = 1;
  double final_logit_softcapping = 0;  // c: a logit x becomes c tanh(x / c); 0: it stays
  bool tie_word_embeddings = false;
  TensorFormat torch_dtype = TensorFormat::kFloat32;  // float32, bfloat16
  // The integers of stored weights; loaded weights are numbers again.
  std::optional<Quantization> quantization;
  // If another program quantized the checkpoint: the formats nearest to its own, the default for
  // serving. Its tensors are read as numbers. Not a field of the file.
  std::optional<WeightFormats> served_formats;
  // The known texts that the model, its teachers and the choice of its ranks saw. No two are of the
  // same file.
  std::vector<TrainingText> training_texts;

  // Elements of one query or key: head_dim, plus d_R under MLA.
  int64_t QueryDim() const { return head_dim + qk_rope_head_dim; }
  // Keys whose inverse norms are in a row of MLA: G with qk_norm, else 0.
  int64_t NormedKeys() const {
    return attention == AttentionKind::kMla && qk_norm ? num_key_value_heads : 0;
  }
  // Elements of one value.
  int64_t ValueDim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  // Rotated elements of a head; 0 unless positions are rotary.
  int64_t RotaryDim() const {
    if (position_embedding != PositionEmbedding::kRope) return 0;
    if (attention == AttentionKind::kMla) return qk_rope_head_dim;
    return rotary_dim > 0 ? rotary_dim : head_dim;
  }
  // Elements of a head that backends turn by a table: all of them under MHA and GQA, those beyond
  // RotaryDim() by the angle 0. 0 unless positions are rotary.
  int64_t RotaryTableDim() const {
    if (position_embedding != PositionEmbedding::kRope) return 0;
    return attention == AttentionKind::kMla ? qk_rope_head_dim : head_dim;
  }
  bool Rotates(int64_t layer) const {
    return position_embedding == PositionEmbedding::kRope &&
           (no_rope_layers.empty() || no_rope_layers.at(layer) != 0);
  }
  bool Slides(int64_t layer) const {
    return sliding_window > 0 &&
           (layer_types.empty() || layer_types.at(layer) == LayerType::kSliding);
  }
  // Positions that a query of a layer attends. A window as long as the context is none.
  int64_t Window(int64_t layer) const {
    return Slides(layer) && sliding_window < max_position_embeddings ? sliding_window : kNoWindow;
  }
  // Whether some layer's Window is shorter than the context.
  bool HasWindows() const;
  // Whether a layer turns by rope_local_base_freq.
  bool TurnsLocally(int64_t layer) const { return rope_local_base_freq > 0 && Slides(layer); }
  // Whether some elements of keys, or the keys of some layers, are not rotated.
  bool RotatesInPart() const { return rotary_dim > 0 || !no_rope_layers.empty(); }
  bool NormsMlpInput() const { return norm_inputs && !use_parallel_residual; }
  bool GatesMlp() const { return mlp == MlpKind::kSwiglu || mlp == MlpKind::kGeglu; }
  bool HasExperts(int64_t layer) const {
    return experts.n_routed_experts > 0 &&
           (experts.sparse_layers.empty() || experts.sparse_layers.at(layer) != 0);
  }
  double ScoreFactor(int64_t layer) const {
    return scale_attn_by_inverse_layer_idx ? attention_score_factor / static_cast<double>(layer + 1)
                                           : attention_score_factor;
  }
  double LatentNormEps() const { return latent_norm_eps.value_or(norm_eps); }
  bool OutputBias() const { return attention_output_bias.value_or(attention_bias); }
};

// The default formats for serving: those of a checkpoint's stored weights, or the nearest ones.
WeightFormats StoredFormats(const ModelConfig& config);

// --- Cost of a position in the cache --------------------------------------------------------
// The only source of every reported byte (engine/definitions.md#cache-bytes).

// Bytes of the inverse norm of a key, a float32 in rows of every format.
inline constexpr int64_t kInverseNormBytes = 4;

// Numbers in one cache row of a layer: G*(d_qk + d_v) for grouped attention, r + d_R for MLA, and
// NormedKeys() inverse norms.
int64_t CacheRowElements(const ModelConfig& config, int64_t layer);
// Numbers in one cache row of every layer.
std::vector<int64_t> CacheRowElements(const ModelConfig& config);
// The sum over the layers.
int64_t ElementsPerPosition(const ModelConfig& config);
// Bytes of one cache row of a layer.
int64_t CacheRowBytes(const ModelConfig& config, int64_t layer, CacheFormat format);
// Numbers of a layer's cache row that are rotated together before they are rounded.
int64_t CacheRotation(const ModelConfig& config, int64_t layer, CacheFormat format);
// Elements of the row that MHA with H heads would need: H*(d_qk + d_R) + H*d_v.
int64_t MhaRowElements(const ModelConfig& config);
// The bytes of a model's positions, by layer.
CacheGeometry MakeCacheGeometry(const ModelConfig& config, CacheFormat format,
                                int64_t block_positions);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_CONFIG_H_
