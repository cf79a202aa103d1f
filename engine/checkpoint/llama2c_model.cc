#include "engine/checkpoint/llama2c_model.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/checkpoint/tensors/file_tensors.h"
#include "engine/model/config.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

using Header = std::array<int32_t, 7>;

Header ReadHeader(const InputFile& file) {
  Header header;
  if (file.size() < sizeof(header)) {
    throw LoadError(file.name() + ": " + std::to_string(file.size()) +
                    " bytes is too short for llama2.c's header");
  }
  // Files and supported machines are little-endian.
  file.ReadAt(0, std::as_writable_bytes(std::span(header)));
  return header;
}

ModelConfig ConfigOf(const Header& header, const std::string& source) {
  const auto [dim, hidden_dim, layers, heads, groups, vocab, positions] = header;
  ModelConfig config;
  config.vocab_size = vocab < 0 ? -int64_t{vocab} : int64_t{vocab};
  config.hidden_size = dim;
  config.intermediate_size = hidden_dim;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.num_key_value_heads = groups;
  config.head_dim = heads > 0 ? dim / heads : 0;
  config.max_position_embeddings = positions;
  config.attention = groups == heads ? AttentionKind::kMha : AttentionKind::kGqa;
  config.head_grouping = HeadGrouping::kContiguous;
  config.position_embedding = PositionEmbedding::kRope;
  config.rope_theta = 10000;
  config.rope_interleave = true;
  config.norm = NormKind::kRmsNorm;
  config.norm_eps = 1e-5;
  config.mlp = MlpKind::kSwiglu;
  config.hidden_act = HiddenAct::kSilu;
  config.tie_word_embeddings = vocab > 0;
  config.torch_dtype = TensorFormat::kFloat32;
  Validate(config, {.file = source,
                    .names = {{"hidden_size", "dim"},
                              {"intermediate_size", "hidden_dim"},
                              {"num_hidden_layers", "n_layers"},
                              {"num_attention_heads", "n_heads"},
                              {"num_key_value_heads", "n_kv_heads"},
                              {"head_dim", "dim / n_heads"},
                              {"max_position_embeddings", "seq_len"}}});
  if (dim % heads != 0) {
    throw LoadError(source + ": n_heads is " + std::to_string(heads) +
                    "; it must divide dim = " + std::to_string(dim));
  }
  return config;
}

class Llama2cTensors final : public FileTensors {
 public:
  explicit Llama2cTensors(const std::filesystem::path& path) : FileTensors(path) {
    config_ = ConfigOf(ReadHeader(file()), name());
    const int64_t width = config_.hidden_size, inner = config_.intermediate_size;
    const int64_t keys = config_.num_key_value_heads * config_.head_dim;
    Add("model.embed_tokens.weight", {config_.vocab_size, width});
    AddLayers("input_layernorm", {width});
    AddLayers("self_attn.q_proj", {width, width});
    AddLayers("self_attn.k_proj", {keys, width});
    AddLayers("self_attn.v_proj", {keys, width});
    AddLayers("self_attn.o_proj", {width, width});
    AddLayers("post_attention_layernorm", {width});
    AddLayers("mlp.gate_proj", {inner, width});
    AddLayers("mlp.down_proj", {width, inner});
    AddLayers("mlp.up_proj", {inner, width});
    Add("model.norm.weight", {width});
    // Cosines and sines.
    end_ += 2 * sizeof(float) *
            static_cast<uint64_t>(config_.max_position_embeddings * (config_.head_dim / 2));
    if (!config_.tie_word_embeddings) Add("lm_head.weight", {config_.vocab_size, width});
    if (file().size() == end_) return;
    throw LoadError(name() + ": is " + std::to_string(file().size()) +
                    " bytes; a model of its header takes " + std::to_string(end_));
  }

  const ModelConfig& config() const { return config_; }

 private:
  // No size overflows: the config's bounds are far below.
  void Add(const std::string& tensor, std::vector<int64_t> shape) {
    Entry entry;
    entry.dtype = "F32";
    entry.begin = end_;
    entry.bytes = sizeof(float);
    for (const int64_t extent : shape) entry.bytes *= static_cast<uint64_t>(extent);
    entry.shape = std::move(shape);
    end_ += entry.bytes;
    entries().emplace(tensor, std::move(entry));
  }

  void AddLayers(const std::string& tensor, const std::vector<int64_t>& shape) {
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      Add(LayerPrefix(layer) + tensor + ".weight", shape);
    }
  }

  ModelConfig config_;
  uint64_t end_ = sizeof(Header);
};

}  // namespace

OpenedCheckpoint OpenLlama2c(const std::filesystem::path& file) {
  auto tensors = std::make_unique<const Llama2cTensors>(file);
  ModelConfig config = tensors->config();
  return {.path = file, .config = std::move(config), .tensors = std::move(tensors)};
}

}  // namespace triptych::checkpoint
