#include "tests/backend/cuda/references.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace triptych {
namespace {

// Reads or writes the given fields.
template <typename Stream>
class BinaryArchive {
 public:
  explicit BinaryArchive(Stream& stream) : stream_(stream) {}

  template <typename... T>
  void operator()(T&... values) {
    (Field(values), ...);
  }

 private:
  static constexpr bool kReads = std::is_base_of_v<std::istream, Stream>;

  template <typename T>
  void Field(T& value) {
    if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
      auto number = static_cast<int64_t>(value);
      Bytes(&number, sizeof number);
      value = static_cast<T>(number);
    } else if constexpr (std::is_arithmetic_v<T>) {
      Bytes(&value, sizeof value);
    } else {
      Visit(*this, value);
    }
  }
  template <typename T>
  void Field(std::optional<T>& value) {
    bool present = value.has_value();
    T inner = value.value_or(T{});
    (*this)(present, inner);
    if (present) value = inner;
  }
  void Field(std::string& value) { Elements(value); }
  template <typename T>
  void Field(std::vector<T>& values) {
    Elements(values);
  }

  template <typename Container>
  void Elements(Container& values) {
    auto size = static_cast<int64_t>(values.size());
    Bytes(&size, sizeof size);
    if (kReads) values.resize(size);
    if constexpr (std::is_arithmetic_v<typename Container::value_type>) {
      Bytes(values.data(), values.size() * sizeof(typename Container::value_type));
    } else {
      for (auto& value : values) Field(value);
    }
  }

  void Bytes(void* bytes, size_t size) {
    if constexpr (kReads) {
      stream_.read(static_cast<char*>(bytes), static_cast<std::streamsize>(size));
    } else {
      stream_.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
    }
    if (!stream_) throw std::runtime_error("the file of references is truncated or not writable");
  }

  Stream& stream_;
};

template <typename Archive>
void Visit(Archive& archive, ModelConfig& c) {
  archive(c.vocab_size, c.hidden_size, c.intermediate_size, c.num_hidden_layers,
          c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.max_position_embeddings,
          c.attention, c.kv_lora_rank, c.qk_rope_head_dim, c.v_head_dim, c.kv_a_layernorm,
          c.q_lora_rank, c.latent_norm_eps, c.qk_norm, c.attention_score_factor,
          c.scale_attn_by_inverse_layer_idx, c.position_embedding, c.rope_theta, c.rope_factors,
          c.rope_attention_factor, c.norm, c.norm_eps, c.norm_bias, c.mlp, c.hidden_act, c.mlp_bias,
          c.attention_bias, c.latent_bias, c.attention_output_bias, c.embedding_multiplier,
          c.logit_multiplier, c.tie_word_embeddings, c.rotary_dim, c.no_rope_layers,
          c.use_parallel_residual, c.norm_inputs, c.norm_outputs, c.qk_norm_all_heads,
          c.sliding_window, c.layer_types, c.attn_logit_softcapping, c.final_logit_softcapping,
          c.rope_local_base_freq, c.experts);
}

template <typename Archive>
void Visit(Archive& archive, CudaMatrix& matrix) {
  archive(matrix.outputs, matrix.inputs, matrix.elements);
}

template <typename Archive>
void Visit(Archive& archive, CudaVector& vector) {
  archive(vector.elements);
  vector.size = static_cast<int64_t>(vector.elements.size());
}

template <typename Archive>
void Visit(Archive& archive, CudaNorm& norm) {
  archive(norm.weight, norm.bias);
}

template <typename Archive>
void Visit(Archive& archive, CudaLayerWeights& layer) {
  archive(layer.attention_norm, layer.in, layer.in_bias, layer.q_norm, layer.k_norm,
          layer.query_norm, layer.query_up, layer.query_up_bias, layer.latent_norm, layer.uk,
          layer.uv, layer.o, layer.o_bias, layer.mlp_norm, layer.mlp_in, layer.mlp_in_bias,
          layer.mlp_down, layer.mlp_down_bias, layer.attention_output_norm, layer.mlp_output_norm,
          layer.router, layer.router_bias, layer.shared_gate);
}

template <typename Archive>
void Visit(Archive& archive, CudaExpert& expert) {
  archive(expert.in, expert.down);
}

template <typename Archive>
void Visit(Archive& archive, ExpertsConfig& c) {
  archive(c.n_routed_experts, c.num_experts_per_tok, c.moe_intermediate_size,
          c.shared_expert_intermediate_size, c.shared_expert_gate, c.scoring_func, c.topk_method,
          c.n_group, c.topk_group, c.norm_topk_prob, c.routed_scaling_factor, c.sparse_layers);
}

template <typename Archive>
void Visit(Archive& archive, CudaSharedWeights& shared) {
  archive(shared.positions, shared.rotation, shared.local_rotation, shared.final_norm);
}

template <typename Archive>
void Visit(Archive& archive, HeldCudaWeights& weights) {
  weights.Visit(archive);
}

template <typename Archive>
void Visit(Archive& archive, ReferenceSequence& sequence) {
  archive(sequence.ids, sequence.prompt, sequence.logits);
}

template <typename Archive>
void Visit(Archive& archive, Reference& reference) {
  archive(reference.name, reference.config, reference.weights, reference.sequences);
}

std::filesystem::path ReferencesPath() {
  const char* const path = std::getenv("TRIPTYCH_CUDA_REFERENCES");
  return path != nullptr ? path : TRIPTYCH_DEFAULT_CUDA_REFERENCES;
}

std::map<std::string, Reference> ReadReferences() {
  const std::filesystem::path path = ReferencesPath();
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read " + path.string() +
                             ", which make_cuda_references writes");
  }
  std::vector<Reference> references;
  BinaryArchive archive(file);
  archive(references);
  std::map<std::string, Reference> by_name;
  for (Reference& reference : references) {
    by_name.emplace(reference.name, std::move(reference));
  }
  return by_name;
}

}  // namespace

HeldCudaWeights::HeldCudaWeights(const ModelConfig& config, CudaWeightSource& source)
    : shared_(source.Shared()), embedding_(source.Embedding()), output_(source.Output()) {
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(source.Layer(i));
    std::vector<CudaExpert>& experts = experts_.emplace_back();
    const int64_t count = config.HasExperts(i) ? config.experts.n_routed_experts : 0;
    for (int64_t expert = 0; expert < count; ++expert) experts.push_back(source.Expert(i, expert));
  }
}

void WriteReferences(const std::filesystem::path& path, std::vector<Reference>& references) {
  std::vector<std::string> names(kReferenceNames.begin(), kReferenceNames.end());
  names.insert(names.end(), kShippedNames.begin(), kShippedNames.end());
  const bool named = std::equal(
      names.begin(), names.end(), references.begin(), references.end(),
      [](const std::string& name, const Reference& reference) { return reference.name == name; });
  if (!named) throw std::runtime_error("the references do not match the expected names");
  std::ofstream file(path, std::ios::binary);
  BinaryArchive archive(file);
  archive(references);
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

const Reference& FindReference(const std::string& name) {
  static const std::map<std::string, Reference> references = ReadReferences();
  return references.at(name);
}

}  // namespace triptych
