// A model in a GGUF file has the weights that it has where it is published: the order of rows, what
// is fused and what is turned are undone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/tensors/block_formats.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "tests/support/gguf_file.h"
#include "tests/support/temp_dir.h"

namespace triptych::gguf_checkpoint_test {
namespace {

constexpr int64_t kLayers = 2, kHeads = 4, kGroups = 2, kHeadDim = 4, kWidth = 16, kInner = 24,
                  kVocab = 10, kPositions = 32;
constexpr uint32_t kF32 = 0, kF16 = 1, kQ8 = 8, kBF16 = 30;

std::string Bytes(const at::Tensor& tensor) {
  const at::Tensor contiguous = tensor.contiguous();
  return {static_cast<const char*>(contiguous.data_ptr()), contiguous.nbytes()};
}

// A model's files, both of them.
class Model {
 public:
  explicit Model(std::string architecture) : architecture_(std::move(architecture)) {
    at::manual_seed(1);
    config_["model_type"] = architecture_;
    config_["vocab_size"] = kVocab;
    gguf_.Add("general.architecture", architecture_);
  }

  void Key(const std::string& key, const char* field, int64_t value) {
    config_[field] = value;
    gguf_.Add(architecture_ + "." + key, static_cast<uint32_t>(value));
  }
  void Key(const std::string& key, const char* field, float value) {
    config_[field] = value;
    gguf_.Add(architecture_ + "." + key, value);
  }
  void Field(const char* field, const Json& value) { config_[field] = value; }

  // A tensor under both names; `converted` is what a converter stores.
  void Add(const std::string& published, const std::string& name, const at::Tensor& tensor,
           const at::Tensor& converted) {
    published_[published] = tensor.contiguous();
    const at::Tensor stored = converted.contiguous();
    std::vector<uint64_t> dims;
    for (const int64_t extent : stored.sizes()) {
      dims.insert(dims.begin(), static_cast<uint64_t>(extent));
    }
    const uint32_t type = stored.scalar_type() == at::kHalf       ? kF16
                          : stored.scalar_type() == at::kBFloat16 ? kBF16
                                                                  : kF32;
    gguf_.AddTensor(name, type, dims, Bytes(stored));
  }
  void Add(const std::string& published, const std::string& name, const at::Tensor& tensor) {
    Add(published, name, tensor, tensor);
  }

  void Check() const {
    const TempDir directory;
    std::vector<checkpoint::SafetensorsTensor> tensors;
    std::vector<std::string> data;
    for (const auto& [name, tensor] : published_) data.push_back(Bytes(tensor));
    size_t i = 0;
    for (const auto& [name, tensor] : published_) {
      const char* const dtype = tensor.scalar_type() == at::kHalf       ? "F16"
                                : tensor.scalar_type() == at::kBFloat16 ? "BF16"
                                                                        : "F32";
      tensors.push_back({name, dtype, tensor.sizes().vec(), std::as_bytes(std::span(data[i++]))});
    }
    checkpoint::WriteSafetensors(directory.path() / "model.safetensors", tensors);
    WriteFile(directory.path() / "config.json", config_.dump());
    WriteFile(directory.path() / "m.gguf", gguf_.Bytes());
    const Checkpoint expected = LoadCheckpoint(directory.path(), TensorFormat::kFloat32);
    const Checkpoint loaded = LoadCheckpoint(directory.path() / "m.gguf", TensorFormat::kFloat32);
    EXPECT_EQ(checkpoint::ToJson(loaded.config), checkpoint::ToJson(expected.config));
    ASSERT_EQ(loaded.weights.size(), expected.weights.size());
    for (const auto& [name, tensor] : expected.weights) {
      ASSERT_TRUE(loaded.weights.contains(name)) << name;
      EXPECT_TRUE(at::equal(loaded.weights.at(name), tensor)) << name;
    }
  }

 private:
  std::string architecture_;
  Json config_;
  std::map<std::string, at::Tensor> published_;
  GgufBuilder gguf_;
};

// The order in which converters write rows of queries and keys of Llama's architecture: rotary
// pairs (i, i + d/2) become (2i, 2i + 1). rows: [heads * d, ...]
at::Tensor Interleaved(const at::Tensor& rows, int64_t heads) {
  return rows.unflatten(0, {heads, 2, kHeadDim / 2}).transpose(1, 2).reshape(rows.sizes());
}

Model Rotary(const std::string& architecture, bool bias, bool qk_norm) {
  const bool llama = architecture == "llama";
  Model model(architecture);
  model.Key("block_count", "num_hidden_layers", kLayers);
  model.Key("context_length", "max_position_embeddings", kPositions);
  model.Key("embedding_length", "hidden_size", kWidth);
  model.Key("feed_forward_length", "intermediate_size", kInner);
  model.Key("attention.head_count", "num_attention_heads", kHeads);
  model.Key("attention.head_count_kv", "num_key_value_heads", kGroups);
  model.Key("attention.key_length", "head_dim", kHeadDim);
  model.Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", 0.25F);
  model.Key("rope.freq_base", "rope_theta", 5000.0F);
  model.Field("torch_dtype", "float32");
  model.Field("tie_word_embeddings", false);
  if (llama && bias) model.Field("attention_bias", true);
  const auto order = [&](const at::Tensor& rows, int64_t heads) {
    return llama ? Interleaved(rows, heads) : rows;
  };
  model.Add("model.embed_tokens.weight", "token_embd.weight", at::randn({kVocab, kWidth}));
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string to = "model.layers." + std::to_string(layer) + ".";
    const std::string from = "blk." + std::to_string(layer) + ".";
    const auto add = [&](const std::string& published, const std::string& name,
                         at::IntArrayRef shape, int64_t heads = 0) {
      const at::Tensor tensor = at::randn(shape);
      model.Add(to + published, from + name, tensor, heads > 0 ? order(tensor, heads) : tensor);
    };
    add("input_layernorm.weight", "attn_norm.weight", {kWidth});
    add("self_attn.q_proj.weight", "attn_q.weight", {kHeads * kHeadDim, kWidth}, kHeads);
    add("self_attn.k_proj.weight", "attn_k.weight", {kGroups * kHeadDim, kWidth}, kGroups);
    add("self_attn.v_proj.weight", "attn_v.weight", {kGroups * kHeadDim, kWidth});
    if (bias) {
      add("self_attn.q_proj.bias", "attn_q.bias", {kHeads * kHeadDim}, kHeads);
      add("self_attn.k_proj.bias", "attn_k.bias", {kGroups * kHeadDim}, kGroups);
      add("self_attn.v_proj.bias", "attn_v.bias", {kGroups * kHeadDim});
    }
    if (llama && bias) add("self_attn.o_proj.bias", "attn_output.bias", {kWidth});
    if (qk_norm) {
      add("self_attn.q_norm.weight", "attn_q_norm.weight", {kHeadDim});
      add("self_attn.k_norm.weight", "attn_k_norm.weight", {kHeadDim});
    }
    add("self_attn.o_proj.weight", "attn_output.weight", {kWidth, kHeads * kHeadDim});
    add("post_attention_layernorm.weight", "ffn_norm.weight", {kWidth});
    add("mlp.gate_proj.weight", "ffn_gate.weight", {kInner, kWidth});
    add("mlp.up_proj.weight", "ffn_up.weight", {kInner, kWidth});
    add("mlp.down_proj.weight", "ffn_down.weight", {kWidth, kInner});
  }
  model.Add("model.norm.weight", "output_norm.weight", at::randn({kWidth}));
  // One of each kind of number.
  model.Add("lm_head.weight", "output.weight", at::randn({kVocab, kWidth}).to(at::kHalf));
  return model;
}

TEST(GgufCheckpointTest, Llama) {
  for (const bool bias : {false, true}) Rotary("llama", bias, false).Check();
}
TEST(GgufCheckpointTest, Qwen2) { Rotary("qwen2", true, false).Check(); }
TEST(GgufCheckpointTest, Qwen3) { Rotary("qwen3", false, true).Check(); }

// Norms are published less 1, in numbers whose sums with 1 are exact.
Model Gemma(const std::string& architecture) {
  const bool third = architecture == "gemma3";
  Model model(architecture);
  model.Field("model_type", third ? "gemma3_text" : "gemma2");
  model.Key("block_count", "num_hidden_layers", kLayers);
  model.Key("context_length", "max_position_embeddings", kPositions);
  model.Key("embedding_length", "hidden_size", kWidth);
  model.Key("feed_forward_length", "intermediate_size", kInner);
  model.Key("attention.head_count", "num_attention_heads", kHeads);
  model.Key("attention.head_count_kv", "num_key_value_heads", kGroups);
  model.Key("attention.key_length", "head_dim", kHeadDim);
  model.Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", 0.25F);
  model.Key("attention.sliding_window", "sliding_window", int64_t{3});
  model.Key("rope.freq_base", "rope_theta", 5000.0F);
  if (!third) model.Key("attn_logit_softcapping", "attn_logit_softcapping", 25.0F);
  if (!third) model.Key("final_logit_softcapping", "final_logit_softcapping", 15.0F);
  model.Field("query_pre_attn_scalar", kHeadDim);
  model.Field("torch_dtype", "float32");
  model.Add("model.embed_tokens.weight", "token_embd.weight", at::randn({kVocab, kWidth}));
  const auto norm = [&](const std::string& published, const std::string& name, int64_t width) {
    const at::Tensor less_one = (at::randn({width}) * 64).round() / 64;
    model.Add(published + ".weight", name + ".weight", less_one, less_one + 1);
  };
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string to = "model.layers." + std::to_string(layer) + ".";
    const std::string from = "blk." + std::to_string(layer) + ".";
    const auto matrix = [&](const std::string& published, const std::string& name, int64_t outputs,
                            int64_t inputs) {
      model.Add(to + published + ".weight", from + name + ".weight", at::randn({outputs, inputs}));
    };
    norm(to + "input_layernorm", from + "attn_norm", kWidth);
    matrix("self_attn.q_proj", "attn_q", kHeads * kHeadDim, kWidth);
    matrix("self_attn.k_proj", "attn_k", kGroups * kHeadDim, kWidth);
    matrix("self_attn.v_proj", "attn_v", kGroups * kHeadDim, kWidth);
    matrix("self_attn.o_proj", "attn_output", kWidth, kHeads * kHeadDim);
    if (third) norm(to + "self_attn.q_norm", from + "attn_q_norm", kHeadDim);
    if (third) norm(to + "self_attn.k_norm", from + "attn_k_norm", kHeadDim);
    norm(to + "post_attention_layernorm", from + "post_attention_norm", kWidth);
    norm(to + "pre_feedforward_layernorm", from + "ffn_norm", kWidth);
    matrix("mlp.gate_proj", "ffn_gate", kInner, kWidth);
    matrix("mlp.up_proj", "ffn_up", kInner, kWidth);
    matrix("mlp.down_proj", "ffn_down", kWidth, kInner);
    norm(to + "post_feedforward_layernorm", from + "post_ffw_norm", kWidth);
  }
  norm("model.norm", "output_norm", kWidth);
  return model;
}

TEST(GgufCheckpointTest, Gemma2) { Gemma("gemma2").Check(); }
TEST(GgufCheckpointTest, Gemma3) { Gemma("gemma3").Check(); }

TEST(GgufCheckpointTest, Gpt2) {
  Model model("gpt2");
  model.Key("block_count", "n_layer", kLayers);
  model.Key("context_length", "n_positions", kPositions);
  model.Key("embedding_length", "n_embd", kWidth);
  model.Key("feed_forward_length", "n_inner", kInner);
  model.Key("attention.head_count", "n_head", kHeads);
  model.Key("attention.layer_norm_epsilon", "layer_norm_epsilon", 0.25F);
  model.Field("torch_dtype", "float32");
  // Published with rows of inputs, converted with rows of outputs.
  const auto linear = [&](const std::string& published, const std::string& name, int64_t inputs,
                          int64_t outputs) {
    const at::Tensor weight = at::randn({inputs, outputs});
    model.Add(published + ".weight", name + ".weight", weight, weight.t());
    model.Add(published + ".bias", name + ".bias", at::randn({outputs}));
  };
  const auto norm = [&](const std::string& published, const std::string& name) {
    model.Add(published + ".weight", name + ".weight", at::randn({kWidth}));
    model.Add(published + ".bias", name + ".bias", at::randn({kWidth}));
  };
  model.Add("transformer.wte.weight", "token_embd.weight", at::randn({kVocab, kWidth}));
  model.Add("transformer.wpe.weight", "position_embd.weight", at::randn({kPositions, kWidth}));
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string to = "transformer.h." + std::to_string(layer) + ".";
    const std::string from = "blk." + std::to_string(layer) + ".";
    norm(to + "ln_1", from + "attn_norm");
    linear(to + "attn.c_attn", from + "attn_qkv", kWidth, 3 * kWidth);
    linear(to + "attn.c_proj", from + "attn_output", kWidth, kWidth);
    norm(to + "ln_2", from + "ffn_norm");
    linear(to + "mlp.c_fc", from + "ffn_up", kWidth, kInner);
    linear(to + "mlp.c_proj", from + "ffn_down", kInner, kWidth);
  }
  norm("transformer.ln_f", "output_norm");
  model.Check();
}

TEST(GgufCheckpointTest, BlocksOfIntegersBecomeNumbers) {
  GgufBuilder file;
  file.Add("general.architecture", "gpt2")
      .Add("gpt2.block_count", uint32_t{1})
      .Add("gpt2.context_length", uint32_t{2})
      .Add("gpt2.embedding_length", uint32_t{32})
      .Add("gpt2.feed_forward_length", uint32_t{32})
      .Add("gpt2.attention.head_count", uint32_t{1})
      .Add("gpt2.attention.layer_norm_epsilon", 1e-5F);
  const auto integers = [&](const std::string& name, uint64_t rows) {
    std::string blocks;
    for (uint64_t row = 0; row < rows; ++row) {
      blocks += BytesOf(uint16_t{0x3800});  // 0.5 in float16
      for (int i = 0; i < 32; ++i) blocks += static_cast<char>(i - 16 + static_cast<int>(row));
    }
    file.AddTensor(name + ".weight", kQ8, {32, rows}, blocks);
  };
  const auto ones = [&](const std::string& name, uint64_t count) {
    std::string data;
    for (uint64_t i = 0; i < count; ++i) data += BytesOf(1.0F);
    file.AddTensor(name, kF32, {count}, data);
  };
  integers("token_embd", 3);
  integers("position_embd", 2);
  integers("blk.0.attn_qkv", 96);
  integers("blk.0.attn_output", 32);
  integers("blk.0.ffn_up", 32);
  integers("blk.0.ffn_down", 32);
  ones("blk.0.attn_qkv.bias", 96);
  for (const char* name :
       {"blk.0.attn_output.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias",
        "blk.0.attn_norm.weight", "blk.0.attn_norm.bias", "blk.0.ffn_norm.weight",
        "blk.0.ffn_norm.bias", "output_norm.weight", "output_norm.bias"}) {
    ones(name, 32);
  }
  const TempDir directory;
  WriteFile(directory.path() / "m.gguf", file.Bytes());
  const Checkpoint loaded = LoadCheckpoint(directory.path() / "m.gguf", TensorFormat::kFloat32);
  const auto row = [](int64_t index) { return (at::arange(32, at::kFloat) - 16 + index) * 0.5; };
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(loaded.weights.at(kEmbeddingName)[i], row(i)));
  }
  // Rows of the fused matrix.
  for (int64_t i = 0; i < 32; ++i) {
    const auto of = [&](const char* name) {
      return loaded.weights.at(AttentionPrefix(0) + name + ".weight")[i];
    };
    EXPECT_TRUE(at::equal(of("q_proj"), row(i)));
    EXPECT_TRUE(at::equal(of("k_proj"), row(32 + i)));
    EXPECT_TRUE(at::equal(of("v_proj"), row(64 + i)));
  }
  EXPECT_EQ(loaded.config.torch_dtype, TensorFormat::kBFloat16);
  EXPECT_EQ(loaded.config.served_formats, std::nullopt);
}

// Random blocks of every format in one file. Rows of queries and keys are in the engine's order.
TEST(GgufCheckpointTest, EveryFormatOfBlocksInOneFile) {
  constexpr int64_t kRow = 256, kRows = 32;
  std::mt19937 random(7);
  GgufBuilder file;
  file.Add("general.architecture", "llama")
      .Add("llama.block_count", uint32_t{4})
      .Add("llama.context_length", uint32_t{2})
      .Add("llama.embedding_length", uint32_t{kRow})
      .Add("llama.feed_forward_length", uint32_t{kRow})
      .Add("llama.attention.head_count", uint32_t{kRow / kHeadDim})
      .Add("llama.attention.key_length", uint32_t{kHeadDim})
      .Add("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  std::map<std::string, at::Tensor> expected;  // by the engine's names
  size_t next = 0;
  const auto matrix = [&](const std::string& published, const std::string& name, int64_t rows) {
    const checkpoint::BlockFormat& format =
        checkpoint::BlockFormats()[next++ % checkpoint::BlockFormats().size()];
    std::string blocks(kRow / format.numbers * format.bytes * rows, '\0');
    // Bytes below 64: a scale in float16 is finite.
    for (char& byte : blocks) byte = static_cast<char>(random() % 64);
    const at::Tensor numbers = at::empty({rows, kRow});
    checkpoint::DecodeBlocks(format, std::as_bytes(std::span(blocks)),
                             {numbers.data_ptr<float>(), static_cast<size_t>(numbers.numel())});
    file.AddTensor(name + ".weight", format.type,
                   {static_cast<uint64_t>(kRow), static_cast<uint64_t>(rows)}, blocks);
    expected[published + ".weight"] = numbers;
  };
  const auto ones = [&](const std::string& name) {
    file.AddTensor(name + ".weight", kF32, {kRow}, BytesOf(std::vector<float>(kRow, 1)));
  };
  matrix("model.embed_tokens", "token_embd", kRows);
  matrix("lm_head", "output", kRows);
  ones("output_norm");
  for (int64_t layer = 0; layer < 4; ++layer) {
    const std::string to = LayerPrefix(layer), from = "blk." + std::to_string(layer) + ".";
    ones(from + "attn_norm");
    ones(from + "ffn_norm");
    matrix(to + "self_attn.q_proj", from + "attn_q", kRow);
    matrix(to + "self_attn.k_proj", from + "attn_k", kRow);
    matrix(to + "self_attn.v_proj", from + "attn_v", kRow);
    matrix(to + "self_attn.o_proj", from + "attn_output", kRow);
    matrix(to + "mlp.gate_proj", from + "ffn_gate", kRow);
    matrix(to + "mlp.up_proj", from + "ffn_up", kRow);
    matrix(to + "mlp.down_proj", from + "ffn_down", kRow);
  }
  const TempDir directory;
  WriteFile(directory.path() / "m.gguf", file.Bytes());
  const Checkpoint loaded = LoadCheckpoint(directory.path() / "m.gguf", TensorFormat::kFloat32);
  EXPECT_TRUE(loaded.config.rope_interleave);
  for (const auto& [name, numbers] : expected) {
    EXPECT_TRUE(at::equal(loaded.weights.at(name), numbers)) << name;
  }
  EXPECT_GE(next, 2 * checkpoint::BlockFormats().size());
}

}  // namespace
}  // namespace triptych::gguf_checkpoint_test
