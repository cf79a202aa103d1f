#include "engine/checkpoint/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "tests/support/gguf_file.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::gguf_model_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

constexpr uint32_t kF32 = 0, kF16 = 1, kQ8 = 8, kBF16 = 30;
// Shape of every model here: width 8, MLP of 12, 2 layers, 4 heads of 2, 2 groups, 5 tokens.
constexpr uint64_t kWidth = 8, kInner = 12, kLayers = 2, kHeads = 4, kGroups = 2, kVocab = 5;

// A file's keys, of which tests change some.
struct Model {
  explicit Model(const std::string& name) : architecture(name) {}

  std::string architecture;
  std::vector<std::function<void(GgufBuilder&)>> keys;
  std::vector<std::function<void(GgufBuilder&)>> tensors;
  float next = 0;  // every number in a file is another one

  template <typename T>
  void Add(const std::string& key, const T& value) {
    keys.push_back(
        [name = architecture + "." + key, value](GgufBuilder& file) { file.Add(name, value); });
  }
  // dims: the first is of neighbours
  void AddTensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type = kF32) {
    const uint64_t count =
        std::accumulate(dims.begin(), dims.end(), uint64_t{1}, std::multiplies<>());
    std::string data;
    for (uint64_t i = 0; i < count && type == kF32; ++i) data += BytesOf(next++);
    const std::map<uint32_t, uint64_t> block_bytes = {{2, 18}, {6, 22}, {kQ8, 34}};
    const auto blocks = block_bytes.find(type);
    if (blocks != block_bytes.end()) data.assign(count / 32 * blocks->second, 'q');
    if (data.empty()) data.assign(count * 2, 'h');
    tensors.push_back([=](GgufBuilder& file) { file.AddTensor(name, type, dims, data); });
  }
  std::string Bytes() const {
    GgufBuilder file;
    file.Add("general.architecture", architecture);
    for (const auto& add : keys) add(file);
    for (const auto& add : tensors) add(file);
    return file.Bytes();
  }
};

// Keys that every family of rotary models has.
Model Rotary(const std::string& architecture) {
  Model model(architecture);
  model.Add("block_count", uint32_t{kLayers});
  model.Add("context_length", uint32_t{64});
  model.Add("embedding_length", uint32_t{kWidth});
  model.Add("feed_forward_length", uint32_t{kInner});
  model.Add("attention.head_count", uint32_t{kHeads});
  model.Add("attention.head_count_kv", uint32_t{kGroups});
  model.Add("attention.layer_norm_rms_epsilon", 1e-5F);
  model.Add("rope.freq_base", 500000.0F);
  return model;
}

void AddRotaryTensors(Model& model) {
  model.AddTensor("token_embd.weight", {kWidth, kVocab});
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    model.AddTensor(blk + "attn_norm.weight", {kWidth});
    model.AddTensor(blk + "attn_q.weight", {kWidth, kHeads * 2});
    model.AddTensor(blk + "attn_k.weight", {kWidth, kGroups * 2});
    model.AddTensor(blk + "attn_v.weight", {kWidth, kGroups * 2});
    model.AddTensor(blk + "attn_output.weight", {kHeads * 2, kWidth});
    model.AddTensor(blk + "ffn_norm.weight", {kWidth});
    model.AddTensor(blk + "ffn_gate.weight", {kWidth, kInner});
    model.AddTensor(blk + "ffn_up.weight", {kWidth, kInner});
    model.AddTensor(blk + "ffn_down.weight", {kInner, kWidth});
  }
  model.AddTensor("output_norm.weight", {kWidth});
}

Model Llama() {
  Model model = Rotary("llama");
  AddRotaryTensors(model);
  return model;
}

Model Gpt2() {
  Model model("gpt2");
  model.Add("block_count", uint32_t{1});
  model.Add("context_length", uint32_t{16});
  model.Add("embedding_length", uint32_t{kWidth});
  model.Add("feed_forward_length", uint32_t{kInner});
  model.Add("attention.head_count", uint32_t{kHeads});
  model.Add("attention.layer_norm_epsilon", 1e-6F);
  model.AddTensor("token_embd.weight", {kWidth, kVocab});
  model.AddTensor("position_embd.weight", {kWidth, 16});
  for (const std::string norm : {"blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"}) {
    model.AddTensor(norm + ".weight", {kWidth});
    model.AddTensor(norm + ".bias", {kWidth});
  }
  const auto linear = [&](const std::string& name, uint64_t inputs, uint64_t outputs) {
    model.AddTensor(name + ".weight", {inputs, outputs});
    model.AddTensor(name + ".bias", {outputs});
  };
  linear("blk.0.attn_qkv", kWidth, 3 * kWidth);
  linear("blk.0.attn_output", kWidth, kWidth);
  linear("blk.0.ffn_up", kWidth, kInner);
  linear("blk.0.ffn_down", kInner, kWidth);
  return model;
}

Model Olmo2() {
  Model model = Rotary("olmo2");
  model.AddTensor("token_embd.weight", {kWidth, kVocab});
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    model.AddTensor(blk + "attn_q.weight", {kWidth, kHeads * 2});
    model.AddTensor(blk + "attn_k.weight", {kWidth, kGroups * 2});
    model.AddTensor(blk + "attn_v.weight", {kWidth, kGroups * 2});
    model.AddTensor(blk + "attn_q_norm.weight", {kHeads * 2});
    model.AddTensor(blk + "attn_k_norm.weight", {kGroups * 2});
    model.AddTensor(blk + "attn_output.weight", {kHeads * 2, kWidth});
    model.AddTensor(blk + "post_attention_norm.weight", {kWidth});
    model.AddTensor(blk + "ffn_gate.weight", {kWidth, kInner});
    model.AddTensor(blk + "ffn_up.weight", {kWidth, kInner});
    model.AddTensor(blk + "ffn_down.weight", {kInner, kWidth});
    model.AddTensor(blk + "post_ffw_norm.weight", {kWidth});
  }
  model.AddTensor("output_norm.weight", {kWidth});
  return model;
}

class GgufModelTest : public testing::Test {
 protected:
  OpenedCheckpoint Open(const Model& model) const {
    WriteFile(path_, model.Bytes());
    return OpenCheckpoint(path_);
  }
  ModelConfig Config(const Model& model) const {
    const ModelConfig config = Open(model).config;
    EXPECT_EQ(ReadConfig(path_).hidden_size, config.hidden_size);
    return config;
  }
  // Without the file's name, which it begins with.
  std::string Refusal(const Model& model) const {
    return RefusalAfter<LoadError>(path_.string() + ": ", [&] { Open(model); });
  }

  const TempDir directory_;
  const std::filesystem::path path_ = directory_.path() / "m.gguf";
};

std::vector<float> Floats(const TensorSource& source, const std::string& tensor) {
  const StoredTensor* const stored = source.Find(tensor);
  if (stored == nullptr) return {};
  std::vector<float> floats(stored->bytes / sizeof(float));
  source.Read(tensor, std::as_writable_bytes(std::span(floats)));
  return floats;
}

std::vector<float> Counted(float from, uint64_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), from);
  return numbers;
}

TEST_F(GgufModelTest, VariantsOfLlama) {
  Model granite = Rotary("granite");
  AddRotaryTensors(granite);
  granite.Add("embedding_scale", 12.0F);
  granite.Add("residual_scale", 0.5F);
  granite.Add("attention.scale", 0.25F);
  granite.Add("logit_scale", 8.0F);
  const ModelConfig scaled = Config(granite);
  EXPECT_EQ(scaled.embedding_multiplier, 24);
  EXPECT_DOUBLE_EQ(scaled.attention_score_factor, 0.25 * std::sqrt(2.0));
  EXPECT_EQ(scaled.logit_multiplier, 0.125);
  EXPECT_TRUE(scaled.rope_interleave);

  Model smollm = Rotary("smollm3");
  AddRotaryTensors(smollm);
  EXPECT_THAT(Config(smollm).no_rope_layers, ElementsAre(1, 1));
  EXPECT_TRUE(Config(smollm).rope_interleave);

  // Its norms have been stored plus 1.
  Model gemma = Rotary("gemma");
  gemma.Add("attention.key_length", uint32_t{2});
  AddRotaryTensors(gemma);
  const OpenedCheckpoint opened = Open(gemma);
  EXPECT_EQ(opened.config.mlp, MlpKind::kGeglu);
  EXPECT_FALSE(opened.config.rope_interleave);
  EXPECT_EQ(Floats(*opened.tensors, "model.layers.0.input_layernorm.weight"),
            Counted(kWidth * kVocab, kWidth));

  // Without their optional keys, the published constants.
  Model gemma2 = Rotary("gemma2");
  gemma2.Add("attention.key_length", uint32_t{2});
  AddRotaryTensors(gemma2);
  const ModelConfig second = Config(gemma2);
  EXPECT_EQ(second.sliding_window, 4096);
  EXPECT_EQ(second.attn_logit_softcapping, 50);
  EXPECT_EQ(second.final_logit_softcapping, 30);
  EXPECT_EQ(second.attention_score_factor, 1);
  gemma2.Add("attn_logit_softcapping", std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(Refusal(gemma2), HasSubstr("gemma2.attn_logit_softcapping is "));
  Model gemma3 = Rotary("gemma3");
  gemma3.Add("attention.key_length", uint32_t{2});
  gemma3.Add("rope.freq_base_swa", 500.0F);
  gemma3.Add("attention.sliding_window", uint32_t{0});
  AddRotaryTensors(gemma3);
  EXPECT_THAT(Refusal(gemma3), HasSubstr("gemma3.attention.sliding_window is 0; allowed: "
                                         "an integer from 1 to "));

  const OpenedCheckpoint olmo = Open(Olmo2());
  EXPECT_TRUE(olmo.config.norm_outputs && olmo.config.qk_norm_all_heads);
  EXPECT_FALSE(olmo.config.rope_interleave);
  for (const char* norm : {"post_self_attn_layernorm", "post_mlp_layernorm"}) {
    EXPECT_NE(olmo.tensors->Find(std::string("model.layers.1.") + norm + ".weight"), nullptr);
  }
}

TEST_F(GgufModelTest, LayerNormFamilies) {
  const auto with_layer_norms = [](const char* name) {
    Model model = Rotary(name);
    model.keys.erase(model.keys.begin() + 6);  // the epsilon of RMS norms
    model.Add("attention.layer_norm_epsilon", 1e-5F);
    AddRotaryTensors(model);
    return model;
  };
  Model cohere = with_layer_norms("command-r");
  EXPECT_EQ(Refusal(cohere), "command-r.logit_scale is missing");
  cohere.Add("logit_scale", 0.0625F);
  const ModelConfig parallel = Config(cohere);
  EXPECT_TRUE(parallel.use_parallel_residual && parallel.rope_interleave);
  EXPECT_EQ(parallel.logit_multiplier, 0.0625);

  Model starcoder = with_layer_norms("starcoder2");
  EXPECT_FALSE(Config(starcoder).attention_bias || Config(starcoder).mlp_bias);
  for (const char* biased : {"attn_q", "attn_output", "ffn_up"}) {
    starcoder.AddTensor(std::string("blk.0.") + biased + ".bias", {kWidth});
  }
  const ModelConfig code = Config(starcoder);
  EXPECT_TRUE(code.attention_bias && code.OutputBias() && code.mlp_bias);
  EXPECT_EQ(code.mlp, MlpKind::kGelu);
  EXPECT_FALSE(code.rope_interleave);
}

TEST_F(GgufModelTest, Llama) {
  const OpenedCheckpoint opened = Open(Llama());
  const ModelConfig& config = opened.config;
  EXPECT_EQ(config.attention, AttentionKind::kGqa);
  EXPECT_EQ(config.hidden_size, 8);
  EXPECT_EQ(config.intermediate_size, 12);
  EXPECT_EQ(config.num_hidden_layers, 2);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 2);
  EXPECT_EQ(config.max_position_embeddings, 64);
  EXPECT_EQ(config.vocab_size, 5);
  EXPECT_EQ(config.head_grouping, HeadGrouping::kContiguous);
  EXPECT_EQ(config.position_embedding, PositionEmbedding::kRope);
  EXPECT_EQ(config.rope_theta, 500000);
  EXPECT_TRUE(config.rope_interleave);  // as such files have it, and no others
  EXPECT_TRUE(config.rope_factors.empty());
  EXPECT_EQ(config.norm, NormKind::kRmsNorm);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.mlp, MlpKind::kSwiglu);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_FALSE(config.OutputBias());
  EXPECT_FALSE(config.mlp_bias);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.torch_dtype, TensorFormat::kFloat32);

  std::vector<std::string> names = {"model.embed_tokens.weight", "model.norm.weight"};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* name : {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj",
                             "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      names.push_back(layer + name + ".weight");
    }
  }
  EXPECT_THAT(opened.tensors->TensorNames(), UnorderedElementsAreArray(names));
  EXPECT_THAT(opened.tensors->Find("model.layers.1.mlp.down_proj.weight")->shape,
              ElementsAre(8, 12));
  // Numbers are as the builder counted: 40 of the embedding, 8 of a norm, then queries.
  EXPECT_EQ(Floats(*opened.tensors, "model.layers.0.self_attn.q_proj.weight"), Counted(48, 64));
  EXPECT_EQ(Floats(*opened.tensors, "model.layers.0.self_attn.k_proj.weight"), Counted(112, 32));
}

TEST_F(GgufModelTest, OtherKeysThatAFileMayHave) {
  Model model = Llama();
  model.Add("vocab_size", uint32_t{5});
  model.Add("rope.dimension_count", uint32_t{2});
  model.Add("attention.key_length", uint32_t{2});
  model.Add("attention.value_length", uint32_t{2});
  model.Add("expert_count", uint32_t{0});
  model.Add("tensor_data_layout", "Meta AI original pth");
  model.Add("rope.scaling.type", "none");
  model.AddTensor("output.weight", {kWidth, kVocab});
  const OpenedCheckpoint opened = Open(model);
  EXPECT_FALSE(opened.config.tie_word_embeddings);
  EXPECT_NE(opened.tensors->Find("lm_head.weight"), nullptr);
}

TEST_F(GgufModelTest, HeadsMayBeWiderThanTheirShare) {
  Model model = Rotary("llama");
  model.Add("attention.key_length", uint32_t{6});
  model.Add("attention.value_length", uint32_t{6});
  model.Add("rope.dimension_count", uint32_t{6});
  AddRotaryTensors(model);
  EXPECT_EQ(Config(model).head_dim, 6);
}

TEST_F(GgufModelTest, WithoutGroupsEveryHeadHasItsOwn) {
  Model model = Rotary("llama");
  model.keys.erase(model.keys.begin() + 5);
  AddRotaryTensors(model);
  EXPECT_EQ(Config(model).attention, AttentionKind::kMha);
}

TEST_F(GgufModelTest, BiasesAreWhereTensorsAre) {
  Model model = Llama();
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    model.AddTensor(blk + "attn_q.bias", {kHeads * 2});
    model.AddTensor(blk + "ffn_up.bias", {kInner});
  }
  const OpenedCheckpoint opened = Open(model);
  EXPECT_TRUE(opened.config.attention_bias);
  EXPECT_FALSE(opened.config.OutputBias());
  EXPECT_TRUE(opened.config.mlp_bias);
  EXPECT_NE(opened.tensors->Find("model.layers.1.self_attn.q_proj.bias"), nullptr);
  model.AddTensor("blk.0.attn_output.bias", {kWidth});
  EXPECT_TRUE(Config(model).OutputBias());
}

TEST_F(GgufModelTest, Qwen2AndQwen3) {
  Model qwen2 = Rotary("qwen2");
  AddRotaryTensors(qwen2);
  for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
    qwen2.AddTensor(std::string("blk.0.") + name + ".bias", {4});
  }
  const ModelConfig two = Config(qwen2);
  EXPECT_TRUE(two.attention_bias);
  EXPECT_FALSE(two.OutputBias());
  EXPECT_FALSE(two.rope_interleave);
  EXPECT_EQ(two.head_grouping, HeadGrouping::kContiguous);

  Model qwen3 = Rotary("qwen3");
  qwen3.Add("attention.key_length", uint32_t{2});
  AddRotaryTensors(qwen3);
  qwen3.AddTensor("blk.0.attn_q_norm.weight", {2});
  qwen3.AddTensor("blk.0.attn_k_norm.weight", {2});
  const OpenedCheckpoint opened = Open(qwen3);
  EXPECT_TRUE(opened.config.qk_norm);
  EXPECT_FALSE(opened.config.attention_bias);
  EXPECT_FALSE(opened.config.rope_interleave);
  EXPECT_NE(opened.tensors->Find("model.layers.0.self_attn.q_norm.weight"), nullptr);
  EXPECT_NE(opened.tensors->Find("model.layers.0.self_attn.k_norm.weight"), nullptr);
}

TEST_F(GgufModelTest, Gpt2) {
  const OpenedCheckpoint opened = Open(Gpt2());
  const ModelConfig& config = opened.config;
  EXPECT_EQ(config.attention, AttentionKind::kMha);
  EXPECT_EQ(config.position_embedding, PositionEmbedding::kLearned);
  EXPECT_EQ(config.norm, NormKind::kLayerNorm);
  EXPECT_TRUE(config.norm_bias);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.hidden_act, HiddenAct::kGelu);
  EXPECT_EQ(config.intermediate_size, 12);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.OutputBias());
  // The rows of the fused matrix and its bias, one after the other: 40 + 128 + 3 * 16 before them.
  const std::string attention = "model.layers.0.self_attn.";
  EXPECT_EQ(Floats(*opened.tensors, attention + "q_proj.weight"), Counted(216, 64));
  EXPECT_EQ(Floats(*opened.tensors, attention + "k_proj.weight"), Counted(280, 64));
  EXPECT_EQ(Floats(*opened.tensors, attention + "v_proj.weight"), Counted(344, 64));
  EXPECT_EQ(Floats(*opened.tensors, attention + "q_proj.bias"), Counted(408, 8));
  EXPECT_EQ(Floats(*opened.tensors, attention + "v_proj.bias"), Counted(424, 8));
  EXPECT_EQ(opened.tensors->Find("blk.0.attn_qkv.weight"), nullptr);
  EXPECT_EQ(Floats(*opened.tensors, "model.embed_positions.weight"), Counted(40, 128));
  EXPECT_THAT(opened.tensors->Find("model.layers.0.mlp.up_proj.weight")->shape, ElementsAre(12, 8));
  EXPECT_NE(opened.tensors->Find("model.norm.bias"), nullptr);
}

TEST_F(GgufModelTest, FusedProjectionsOfOthersAreTakenApart) {
  Model model = Rotary("qwen2");
  model.AddTensor("token_embd.weight", {kWidth, kVocab});
  model.AddTensor("blk.0.attn_qkv.weight", {kWidth, 8 + 4 + 4});
  model.AddTensor("blk.0.attn_qkv.bias", {8 + 4 + 4});
  const OpenedCheckpoint opened = Open(model);
  EXPECT_EQ(Floats(*opened.tensors, "model.layers.0.self_attn.q_proj.weight"), Counted(40, 64));
  EXPECT_EQ(Floats(*opened.tensors, "model.layers.0.self_attn.k_proj.weight"), Counted(104, 32));
  EXPECT_EQ(Floats(*opened.tensors, "model.layers.0.self_attn.v_proj.weight"), Counted(136, 32));
  EXPECT_EQ(Floats(*opened.tensors, "model.layers.0.self_attn.v_proj.bias"), Counted(180, 4));
  model.AddTensor("blk.1.attn_qkv.weight", {kWidth, 8 + 4 + 4 + 1});
  EXPECT_EQ(Refusal(model),
            "tensor blk.1.attn_qkv.weight has shape [17, 8]; the config needs [16, 8]");
}

TEST_F(GgufModelTest, TheDtypeIsThatOfMostBytes) {
  for (const auto& [type, dtype] : {std::pair{kF32, TensorFormat::kFloat32},
                                    {kF16, TensorFormat::kBFloat16},
                                    {kBF16, TensorFormat::kBFloat16},
                                    {kQ8, TensorFormat::kBFloat16}}) {
    Model model = Llama();
    model.AddTensor("output.weight", {32, 1024}, type);
    EXPECT_EQ(Config(model).torch_dtype, dtype) << type;
  }
}

// Formats of matrices in blocks of integers: Q4_0, Q5_0, Q8_0.
TEST_F(GgufModelTest, BlocksOfIntegersAreServedInTheNearestFormats) {
  constexpr uint32_t kQ4 = 2, kQ5 = 6;
  // More weights in layers than the others have together.
  const auto formats = [&](uint32_t layers, uint32_t embedding, std::optional<uint32_t> output) {
    Model model = Rotary("llama");
    model.AddTensor("token_embd.weight", {32, 8}, embedding);
    if (output) model.AddTensor("output.weight", {32, 8}, *output);
    model.AddTensor("blk.0.ffn_up.weight", {32, 16}, layers);
    model.AddTensor("blk.0.ffn_down.weight", {32, 4}, kQ8);
    model.AddTensor("blk.0.ffn_norm.weight", {8});
    return Config(model).served_formats;
  };
  using Formats = WeightFormats;
  const WeightFormat int8 = WeightFormat::kInt8, int4 = WeightFormat::kInt4;
  EXPECT_EQ(formats(kQ8, kQ8, {}), Formats(int8));
  EXPECT_EQ(formats(kQ5, kQ8, {}), Formats(int8));
  EXPECT_EQ(formats(kQ4, kQ4, {}), Formats(int4));
  EXPECT_EQ(formats(kQ4, kQ4, kQ5), Formats(int4, int8));
  EXPECT_EQ(formats(kQ4, kF16, kQ4), Formats(int4, WeightFormat::kBFloat16));
  EXPECT_EQ(formats(kF32, kQ4, {}), Formats(WeightFormat::kFloat32, int4));
  EXPECT_EQ(formats(kF16, kF16, {}), std::nullopt);
  EXPECT_EQ(Config(Llama()).served_formats, std::nullopt);
}

TEST_F(GgufModelTest, RotationsThatAreScaled) {
  Model linear = Llama();
  linear.Add("rope.scaling.type", "linear");
  linear.Add("rope.scaling.factor", 4.0F);
  EXPECT_THAT(Config(linear).rope_factors, ElementsAre(4));
  // By its old name, and without a type.
  Model old = Llama();
  old.Add("rope.scale_linear", 2.0F);
  EXPECT_THAT(Config(old).rope_factors, ElementsAre(2));

  // Llama 3's factors come as a tensor, one for each pair.
  Model factors = Llama();
  factors.next = 8;
  factors.AddTensor("rope_freqs.weight", {1});
  const OpenedCheckpoint opened = Open(factors);
  EXPECT_THAT(opened.config.rope_factors, ElementsAre(8));
  EXPECT_EQ(opened.tensors->Find("rope_freqs.weight"), nullptr);
  factors.Add("rope.scaling.factor", 2.0F);
  EXPECT_THAT(Config(factors).rope_factors, ElementsAre(16));

  Model yarn = Rotary("qwen2");
  yarn.Add("attention.key_length", uint32_t{16});
  yarn.Add("rope.scaling.type", "yarn");
  yarn.Add("rope.scaling.factor", 4.0F);
  yarn.Add("rope.scaling.original_context_length", uint32_t{16});
  yarn.Add("rope.scaling.finetuned", uint32_t{1});
  AddRotaryTensors(yarn);
  const ModelConfig stretched = Config(yarn);
  EXPECT_EQ(stretched.rope_factors.size(), 8u);
  EXPECT_EQ(stretched.rope_factors.back(), 4);
  EXPECT_NEAR(stretched.rope_attention_factor, 1.1386, 1e-4);  // 0.1 ln 4 + 1
}

TEST_F(GgufModelTest, RefusesRotationsThatAreNotKnown) {
  Model long_rope = Llama();
  long_rope.Add("rope.scaling.type", "longrope");
  EXPECT_EQ(Refusal(long_rope),
            "llama.rope.scaling.type is \"longrope\"; supported: \"none\", \"linear\", \"yarn\"");
  Model negative = Llama();
  negative.Add("rope.scaling.factor", -1.0F);
  EXPECT_THAT(Refusal(negative), testing::StartsWith("llama.rope.scaling: factor is -1.0"));
  Model strengths = Llama();
  strengths.Add("rope.scaling.type", "yarn");
  strengths.Add("rope.scaling.factor", 4.0F);
  strengths.Add("rope.scaling.yarn_log_multiplier", 0.1F);
  EXPECT_EQ(Refusal(strengths),
            "llama.rope.scaling.yarn_log_multiplier is not a field that is known (value 0.1); "
            "supported: without it");
  for (const auto& [dims, shape] : std::vector<std::pair<std::vector<uint64_t>, std::string>>{
           {{2}, "[2]"}, {{1, 1}, "[1, 1]"}, {{0}, "[0]"}}) {
    Model factors = Llama();
    factors.next = 1;
    factors.AddTensor("rope_freqs.weight", dims);
    EXPECT_EQ(Refusal(factors),
              "tensor rope_freqs.weight is F32 of shape " + shape + "; allowed: F32 of shape [1]");
  }
  Model zero = Llama();
  zero.next = 0;
  zero.AddTensor("rope_freqs.weight", {1});
  EXPECT_THAT(Refusal(zero), HasSubstr("tensor rope_freqs.weight holds 0.0"));
}

TEST_F(GgufModelTest, RefusesOtherArchitectures) {
  const std::string supported =
      "; supported: \"llama\", \"qwen2\", \"qwen2moe\", \"qwen3\", \"qwen3moe\", \"deepseek2\", "
      "\"minicpm3\", \"plm\", \"command-r\", \"gemma\", \"gemma2\", \"gemma3\", \"granite\", "
      "\"granitemoe\", \"olmo2\", \"olmoe\", "
      "\"smollm3\", \"starcoder2\", \"gpt2\"";
  EXPECT_EQ(Refusal(Model("mamba")), "general.architecture is \"mamba\"" + supported);
  WriteFile(path_, GgufBuilder().Bytes());
  try {
    ReadConfig(path_);
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_EQ(e.what(), path_.string() + ": general.architecture is missing" + supported);
  }
}

TEST_F(GgufModelTest, MessagesNameKeys) {
  const auto without = [](size_t key) {
    Model model = Llama();
    model.keys.erase(model.keys.begin() + static_cast<std::ptrdiff_t>(key));
    return model;
  };
  EXPECT_EQ(Refusal(without(0)), "llama.block_count is missing");
  EXPECT_EQ(Refusal(without(1)), "llama.context_length is missing");
  EXPECT_EQ(Refusal(without(6)), "llama.attention.layer_norm_rms_epsilon is missing");
  const auto with = [&](size_t old, const std::string& key, const auto& value) {
    Model model = without(old);
    model.Add(key, value);
    return Refusal(model);
  };
  EXPECT_EQ(with(0, "block_count", uint32_t{0}),
            "llama.block_count is 0; allowed: an integer from 1 to 1024");
  EXPECT_EQ(with(0, "block_count", "2"),
            "llama.block_count is \"2\"; allowed: an integer from 1 to 1024");
  EXPECT_EQ(with(3, "feed_forward_length", std::vector<int32_t>{12, 12}),
            "llama.feed_forward_length is [12,12]; allowed: an integer from 1 to 1048576");
  EXPECT_THAT(with(5, "attention.head_count_kv", uint32_t{3}),
              testing::StartsWith("llama.attention.head_count_kv is 3; it must divide"));
  EXPECT_THAT(with(4, "attention.head_count", uint32_t{3}),
              testing::StartsWith("llama.attention.head_count is 3; it must divide"));
  EXPECT_THAT(with(6, "attention.layer_norm_rms_epsilon", 0.0F),
              testing::StartsWith("llama.attention.layer_norm_rms_epsilon is 0.0; allowed"));
}

TEST_F(GgufModelTest, RefusesKeysThatAreNotKnown) {
  const auto with = [&](const std::string& key, const auto& value) {
    Model model = Llama();
    model.Add(key, value);
    return Refusal(model);
  };
  EXPECT_EQ(with("expert_used_count", uint32_t{8}), "llama.expert_used_count is 8; supported: 0");
  EXPECT_EQ(with("attention.sliding_window", uint32_t{16}),
            "llama.attention.sliding_window is not a field that is known (value 16); supported: "
            "without it");
  EXPECT_EQ(with("logit_scale", 0.5F),
            "llama.logit_scale is not a field that is known (value 0.5); supported: without it");
  EXPECT_EQ(with("rope.dimension_count", uint32_t{4}),
            "llama.rope.dimension_count is 4; supported: 2, the width of a head");
  EXPECT_EQ(with("attention.value_length", uint32_t{4}),
            "llama.attention.value_length is 4; supported: 2, the width of a head");
  Model other = Llama();
  other.keys.push_back([](GgufBuilder& file) { file.Add("qwen2.block_count", uint32_t{9}); });
  EXPECT_EQ(Refusal(other), "accepted");  // of another architecture
  Model grouped = Gpt2();
  grouped.Add("attention.head_count_kv", uint32_t{2});
  EXPECT_EQ(Refusal(grouped), "gpt2.attention.head_count_kv is 2; supported: 4");
}

TEST_F(GgufModelTest, TheEmbeddingMustBeThere) {
  Model model = Rotary("llama");
  EXPECT_EQ(Refusal(model), "tensor token_embd.weight is missing");
}

TEST_F(GgufModelTest, IsACheckpointLikeADirectory) {
  EXPECT_TRUE(MayBeCheckpoint(directory_.path()));
  EXPECT_FALSE(MayBeCheckpoint(path_));
  WriteFile(path_, Llama().Bytes());
  EXPECT_TRUE(MayBeCheckpoint(path_));
  WriteFile(directory_.path() / "m.bin", "");
  EXPECT_FALSE(MayBeCheckpoint(directory_.path() / "m.bin"));
  EXPECT_THAT(CheckpointFiles(path_), ElementsAre(path_));
  EXPECT_THAT(
      CheckpointFiles(directory_.path()),
      ElementsAre(directory_.path() / "config.json", directory_.path() / "model.safetensors"));
}

}  // namespace
}  // namespace triptych::checkpoint::gguf_model_test
