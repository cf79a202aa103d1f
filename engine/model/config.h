// The shape of a decoder and the cache geometry it implies. Torch-free. Field names and meanings
// are those of published configs where one exists; engine/checkpoint/config/config_file.h reads
// them.
#ifndef TRIPTYCH_ENGINE_MODEL_CONFIG_H_
#define TRIPTYCH_ENGINE_MODEL_CONFIG_H_

#include <cstddef>
#include <cstdint>
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
enum class MlpKind { kGelu, kSwiglu };
enum class HiddenAct { kGelu, kGeluExact, kSilu };
// Which key/value head g query head h reads: modular, g = h mod G; contiguous, g = h / (H/G).
// Contiguous checkpoints are permuted to modular at load.
enum class HeadGrouping { kModular, kContiguous };

// The names that these choices have in config.json and in flags.
std::string_view Name(AttentionKind kind);
std::string_view Name(PositionEmbedding positions);
std::string_view Name(NormKind norm);
std::string_view Name(MlpKind mlp);
std::string_view Name(HiddenAct act);
std::string_view Name(HeadGrouping grouping);

// A text that a model was trained on: all but the end of it.
struct TrainingText {
  std::string sha256;   // of the file, 64 hexadecimal digits
  double held_out = 0;  // the fraction of its tokens, at the end, that was not trained on
};

// As many as a config.json may name.
inline constexpr size_t kMaxTrainingTexts = 64;

// Matrices that a checkpoint stores as integers: "quantization_config" in its config.json.
struct Quantization {
  WeightFormat format = WeightFormat::kInt8;  // one of integers; "bits": 8 or 4
  bool embeddings = true;                     // the embedding and the output matrix, too
};

// The fields of a config.json of model_type "triptych" by their names there. Required are the sizes
// from vocab_size to max_position_embeddings but head_dim and, unless under GQA,
// num_key_value_heads; attention, position_embedding, norm, mlp, torch_dtype; under MLA
// kv_lora_rank. Beside a choice stands what it may be.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;        // D
  int64_t intermediate_size = 0;  // width inside the MLP
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;  // H
  int64_t num_key_value_heads = 0;  // G; H under MHA and MLA
  int64_t head_dim = 0;             // d_qk, and d_v unless that is given; D / H unless given
  int64_t max_position_embeddings = 0;

  AttentionKind attention = AttentionKind::kMha;  // mha, gqa, mla
  // r of each layer; empty unless MLA. A number in the file is every layer's.
  std::vector<int64_t> kv_lora_rank;
  // MLA only, all of these.
  int64_t qk_rope_head_dim = 0;  // d_R, with rotary positions only, which require it
  int64_t v_head_dim = 0;        // d_v; 0: head_dim
  bool kv_a_layernorm = false;   // RMS norm on the latent, which is cached after it
  // The width that queries are projected from, by way of an RMS norm; 0: from D, without one.
  int64_t q_lora_rank = 0;
  std::optional<double> latent_norm_eps;  // of those two norms; absent: norm_eps
  // Not MLA: RMS norms of every head's query and key before they are rotated, one for all queries
  // and one for all keys.
  bool qk_norm = false;
  // What multiplies the scores beside 1 / sqrt(d_qk + d_R).
  double attention_score_factor = 1;
  bool scale_attn_by_inverse_layer_idx = false;         // and 1 / (layer + 1)
  HeadGrouping head_grouping = HeadGrouping::kModular;  // modular, contiguous

  // learned, sinusoidal, rope, none; the next four fields only with rope.
  PositionEmbedding position_embedding = PositionEmbedding::kLearned;
  // Pair i of a width d turns by p * theta^(-2i/d) / factor i at position p.
  double rope_theta = 10000.0;
  std::vector<double> rope_factors;  // of each pair; empty: all 1
  double rope_attention_factor = 1;  // what multiplies all that is rotated
  // Rotary pairs are (2i, 2i+1); false: (i, i + d/2), permuted at load.
  bool rope_interleave = true;
  NormKind norm = NormKind::kRmsNorm;  // rms_norm, layer_norm
  double norm_eps = 1e-5;
  bool norm_bias = false;          // layer_norm only
  MlpKind mlp = MlpKind::kSwiglu;  // gelu, swiglu
  // With swiglu silu; with gelu gelu (tanh approximation, the default) or gelu_exact.
  HiddenAct hidden_act = HiddenAct::kSilu;
  bool mlp_bias = false;
  bool attention_bias = false;  // q, k and v; under MLA q
  bool latent_bias = false;  // MLA: of what latents, decoupled keys and low-rank queries come from
  std::optional<bool> attention_output_bias;  // o; absent: attention_bias
  double embedding_multiplier = 1;            // of token embeddings as the layers read them
  double logit_multiplier = 1;
  bool tie_word_embeddings = false;
  TensorFormat torch_dtype = TensorFormat::kFloat32;  // float32, bfloat16
  // Of what is stored; what was loaded is numbers again.
  std::optional<Quantization> quantization;
  // What it was made from, as far as that is known: the texts that it, its teachers and the choice
  // of its ranks saw. No two of the same file.
  std::vector<TrainingText> training_texts;

  // Elements of one query or key: head_dim, plus d_R under MLA.
  int64_t QueryDim() const { return head_dim + qk_rope_head_dim; }
  // Elements of one value.
  int64_t ValueDim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  // Elements of a head that are rotated; 0 unless positions are rotary.
  int64_t RotaryDim() const {
    if (position_embedding != PositionEmbedding::kRope) return 0;
    return attention == AttentionKind::kMla ? qk_rope_head_dim : head_dim;
  }
  double ScoreFactor(int64_t layer) const {
    return scale_attn_by_inverse_layer_idx ? attention_score_factor / static_cast<double>(layer + 1)
                                           : attention_score_factor;
  }
  double LatentNormEps() const { return latent_norm_eps.value_or(norm_eps); }
  bool OutputBias() const { return attention_output_bias.value_or(attention_bias); }
};

// What a checkpoint's weights are stored in, which is what they are served in unless a server is
// told otherwise.
WeightFormats StoredFormats(const ModelConfig& config);

// --- What a position costs in the cache -----------------------------------------------------
// The one source of every byte reported (engine/definitions.md#cache-bytes).

// Elements of one cache row of a layer: G*(d_qk + d_v) for grouped attention, r + d_R for MLA.
int64_t CacheRowElements(const ModelConfig& config, int64_t layer);
// Elements of one cache row of every layer.
std::vector<int64_t> CacheRowElements(const ModelConfig& config);
// The sum over the layers.
int64_t ElementsPerPosition(const ModelConfig& config);
// Bytes of one cache row of a layer.
int64_t CacheRowBytes(const ModelConfig& config, int64_t layer, CacheFormat format);
// Elements of the row that MHA with as many heads would need: H*(d_qk + d_R) + H*d_v.
int64_t MhaRowElements(const ModelConfig& config);
// The bytes that a model's positions take, by layer.
CacheGeometry MakeCacheGeometry(const ModelConfig& config, CacheFormat format,
                                int64_t block_positions);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_CONFIG_H_
