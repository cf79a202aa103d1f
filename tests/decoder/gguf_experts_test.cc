// A model with experts or latent attention in a GGUF file has the weights that it has where it is
// published, in every layout that converters write.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tensors/block_formats.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "tests/support/gguf_file.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/published_configs.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::gguf_experts_test {
namespace {

using published::With;
using published::Without;
using ::testing::HasSubstr;

constexpr uint32_t kF32 = 0;

// How a converter writes latent attention.
enum class Latents { kSplit, kSplitFlat, kJoined, kBoth };

Json ConfigNamed(const std::string& name) {
  for (const published::NamedConfig& named : published::EveryFamily()) {
    if (named.name == name) return named.config;
  }
  throw std::out_of_range(name);
}

// A published model as a converter to GGUF writes it.
class Converter {
 public:
  Converter(std::string architecture, Json config)
      : architecture_(std::move(architecture)),
        config_(std::move(config)),
        tensors_(published::RandomTensors(config_, 7)) {}

  const Json& config() const { return config_; }
  const published::Tensors& tensors() const { return tensors_; }
  Latents latents = Latents::kSplit;
  bool gate_and_up = false;      // in one tensor
  bool experts_apart = false;    // a tensor for each expert, as the first files have it
  bool squeezed_gate = false;    // the gate of shared experts as a vector
  bool without_sigmoid = false;  // no gating function, as the first files
  std::set<std::string> dropped;
  std::function<at::Tensor(const std::string&, const at::Tensor&)> change =
      [](const std::string&, const at::Tensor& tensor) { return tensor; };

  std::string Bytes() {
    file_.Add("general.architecture", architecture_);
    AddKeys();
    Add("token_embd.weight", Take("model.embed_tokens.weight"));
    Add("output_norm.weight", Take("model.norm.weight"));
    if (tensors_.contains("lm_head.weight")) Add("output.weight", Take("lm_head.weight"));
    for (int64_t layer = 0; layer < config_["num_hidden_layers"]; ++layer) AddLayer(layer);
    return file_.Bytes();
  }

 private:
  bool Is(const char* architecture) const { return architecture_ == architecture; }
  bool IsLatent() const { return config_.contains("kv_lora_rank"); }
  at::Tensor Take(const std::string& name) const { return tensors_.at(name); }

  void Key(const std::string& key, int64_t value) {
    file_.Add(architecture_ + "." + key, static_cast<uint32_t>(value));
  }
  void Key(const std::string& key, double value) {
    file_.Add(architecture_ + "." + key, static_cast<float>(value));
  }
  // A field of the config, if it is there.
  void KeyOf(const std::string& key, const char* field) {
    const Json value = config_.value(field, Json());
    if (value.is_boolean()) {
      file_.AddBool(architecture_ + "." + key, value.get<bool>());
    } else if (value.is_number_float()) {
      Key(key, value.get<double>());
    } else if (!value.is_null()) {
      Key(key, value.get<int64_t>());
    }
  }

  void AddKeys() {
    KeyOf("block_count", "num_hidden_layers");
    KeyOf("context_length", "max_position_embeddings");
    KeyOf("embedding_length", "hidden_size");
    KeyOf("feed_forward_length", "intermediate_size");
    KeyOf("attention.head_count", "num_attention_heads");
    KeyOf("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    Key("rope.freq_base", config_.value("rope_theta", 10000.0));
    for (const char* count : {"num_local_experts", "num_experts", "n_routed_experts"}) {
      KeyOf("expert_count", count);
    }
    KeyOf("expert_used_count", "num_experts_per_tok");
    KeyOf("expert_feed_forward_length", "moe_intermediate_size");
    KeyOf("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    if (Is("granitemoe")) {
      KeyOf("attention.scale", "attention_multiplier");
      KeyOf("embedding_scale", "embedding_multiplier");
      KeyOf("logit_scale", "logits_scaling");
      KeyOf("residual_scale", "residual_multiplier");
    }
    if (IsLatent()) {
      AddLatentKeys();
    } else {
      KeyOf("attention.head_count_kv", "num_key_value_heads");
      KeyOf("attention.key_length", "head_dim");
    }
  }

  void AddLatentKeys() {
    const int64_t rank = config_["kv_lora_rank"], rotated = config_["qk_rope_head_dim"];
    const int64_t keys = config_["qk_nope_head_dim"].get<int64_t>() + rotated;
    const int64_t values = config_.value("v_head_dim", int64_t{0});
    KeyOf("attention.q_lora_rank", "q_lora_rank");
    KeyOf("attention.kv_lora_rank", "kv_lora_rank");
    Key("rope.dimension_count", rotated);
    if (latents == Latents::kSplit && !Is("minicpm3")) {
      Key("attention.head_count_kv", int64_t{1});
      Key("attention.key_length", rank + rotated);
      Key("attention.value_length", rank);
      Key("attention.key_length_mla", keys);
      Key("attention.value_length_mla", values);
    } else {
      KeyOf("attention.head_count_kv", "num_attention_heads");
      Key("attention.key_length", keys);
      if (!Is("minicpm3")) Key("attention.value_length", values);
    }
    if (Is("plm")) return;
    if (Is("minicpm3")) {
      for (const char* list : {"long", "short"}) {
        const std::vector<float> factors =
            config_["rope_scaling"][std::string(list) + "_factor"].get<std::vector<float>>();
        file_.AddTensor("rope_factors_" + std::string(list) + ".weight", kF32, {factors.size()},
                        BytesOf(factors));
      }
      return;
    }
    KeyOf("leading_dense_block_count", "first_k_dense_replace");
    KeyOf("expert_shared_count", "n_shared_experts");
    KeyOf("expert_weights_norm", "norm_topk_prob");
    KeyOf("expert_weights_scale", "routed_scaling_factor");
    if (config_.value("n_group", 1) != 1) {
      KeyOf("expert_group_count", "n_group");
      KeyOf("expert_group_used_count", "topk_group");
    }
    const bool sigmoid = config_["model_type"] == "deepseek_v3";
    if (!without_sigmoid) Key("expert_gating_func", int64_t{sigmoid ? 2 : 1});
    const Json scaling = config_.value("rope_scaling", Json());
    if (scaling.is_null()) return;
    file_.Add(architecture_ + ".rope.scaling.type", "yarn");
    Key("rope.scaling.factor", scaling["factor"].get<double>());
    Key("rope.scaling.original_context_length",
        scaling["original_max_position_embeddings"].get<int64_t>());
    Key("rope.scaling.yarn_beta_fast", scaling["beta_fast"].get<double>());
    Key("rope.scaling.yarn_beta_slow", scaling["beta_slow"].get<double>());
    Key("rope.scaling.yarn_log_multiplier", scaling["mscale_all_dim"].get<double>() / 10);
  }

  void Add(const std::string& name, const at::Tensor& tensor) {
    if (dropped.contains(name)) return;
    const at::Tensor stored = change(name, tensor).contiguous();
    std::vector<uint64_t> dims;
    for (const int64_t extent : stored.sizes()) {
      dims.insert(dims.begin(), static_cast<uint64_t>(extent));
    }
    file_.AddTensor(name, kF32, dims,
                    {static_cast<const char*>(stored.data_ptr()), stored.nbytes()});
  }

  void AddLayer(int64_t layer) {
    const std::string from = LayerPrefix(layer), to = "blk." + std::to_string(layer) + ".";
    const std::map<std::string, std::string> names = {
        {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", "ffn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"self_attn.q_a_proj", "attn_q_a"},
        {"self_attn.q_a_layernorm", "attn_q_a_norm"},
        {"self_attn.q_b_proj", "attn_q_b"},
        {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
        {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.gate", "ffn_gate_inp"},
        {"block_sparse_moe.gate", "ffn_gate_inp"},
        {"block_sparse_moe.router.layer", "ffn_gate_inp"},
        {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
        {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
        {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
        {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
        {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}};
    for (const auto& [theirs, ours] : names) {
      for (const char* part : {".weight", ".bias"}) {
        const auto found = tensors_.find(from + theirs + part);
        if (found == tensors_.end()) continue;
        at::Tensor tensor = found->second;
        const bool permuted = Is("llama") || Is("granitemoe");
        if (permuted && (ours == "attn_q" || ours == "attn_k")) tensor = Interleaved(tensor);
        if (squeezed_gate && ours == "ffn_gate_inp_shexp") tensor = tensor.flatten();
        Add(to + ours + part, tensor);
      }
    }
    if (IsLatent()) AddLatents(from, to);
    AddExperts(from, to);
  }

  at::Tensor Interleaved(const at::Tensor& rows) const {
    const int64_t heads = config_["num_attention_heads"];
    const int64_t d = config_.value("head_dim", config_["hidden_size"].get<int64_t>() / heads);
    return rows.unflatten(0, {-1, 2, d / 2}).transpose(1, 2).reshape(rows.sizes());
  }

  void AddLatents(const std::string& from, const std::string& to) {
    const at::Tensor joined = Take(from + "self_attn.kv_b_proj.weight");
    if (latents == Latents::kJoined || latents == Latents::kBoth || Is("minicpm3")) {
      Add(to + "attn_kv_b.weight", joined);
    }
    if (latents == Latents::kJoined || Is("minicpm3")) return;
    const at::Tensor heads = joined.unflatten(0, {config_["num_attention_heads"], -1});
    const int64_t keys = config_["qk_nope_head_dim"];
    at::Tensor k = heads.slice(1, 0, keys).transpose(1, 2), v = heads.slice(1, keys);
    if (latents != Latents::kSplit) k = k.flatten(0, 1), v = v.flatten(0, 1);
    Add(to + "attn_k_b.weight", k);
    Add(to + "attn_v_b.weight", v);
  }

  // The matrices of a layer's experts: "gate", "up" or "down".
  std::vector<at::Tensor> Experts(const std::string& from, const std::string& matrix) const {
    if (const auto in = tensors_.find(from + "block_sparse_moe.input_linear.weight");
        in != tensors_.end()) {
      if (matrix == "down") return Take(from + "block_sparse_moe.output_linear.weight").unbind();
      return in->second.chunk(2, 1)[matrix == "gate" ? 0 : 1].unbind();
    }
    const std::map<std::string, std::string> of_mixtral = {
        {"gate", "w1"}, {"up", "w3"}, {"down", "w2"}};
    std::vector<at::Tensor> experts;
    for (int64_t i = 0;; ++i) {
      const std::string number = std::to_string(i) + ".";
      auto found = tensors_.find(from + "mlp.experts." + number + matrix + "_proj.weight");
      if (found == tensors_.end()) {
        found = tensors_.find(from + "block_sparse_moe.experts." + number + of_mixtral.at(matrix) +
                              ".weight");
      }
      if (found == tensors_.end()) return experts;
      experts.push_back(found->second);
    }
  }

  void AddExperts(const std::string& from, const std::string& to) {
    const auto bias = tensors_.find(from + "mlp.gate.e_score_correction_bias");
    if (bias != tensors_.end()) Add(to + "exp_probs_b.bias", bias->second);
    const std::vector<at::Tensor> gate = Experts(from, "gate"), up = Experts(from, "up");
    if (gate.empty()) return;
    if (gate_and_up) {
      Add(to + "ffn_gate_up_exps.weight", at::cat({at::stack(gate), at::stack(up)}, 1));
      Add(to + "ffn_down_exps.weight", at::stack(Experts(from, "down")));
      return;
    }
    for (const std::string matrix : {"gate", "up", "down"}) {
      const std::vector<at::Tensor> experts = Experts(from, matrix);
      if (!experts_apart) {
        Add(to + "ffn_" + matrix + "_exps.weight", at::stack(experts));
        continue;
      }
      for (size_t i = 0; i < experts.size(); ++i) {
        Add(to + "ffn_" + matrix + "." + std::to_string(i) + ".weight", experts[i]);
      }
    }
  }

  std::string architecture_;
  Json config_;
  published::Tensors tensors_;
  GgufBuilder file_;
};

class GgufExpertsTest : public ::testing::Test {
 protected:
  void Check(Converter converter) const {
    published::WriteCheckpoint(directory_.path(), converter.config(), converter.tensors());
    const Checkpoint expected = LoadCheckpoint(directory_.path(), TensorFormat::kFloat32);
    WriteFile(path_, converter.Bytes());
    const Checkpoint loaded = LoadCheckpoint(path_, TensorFormat::kFloat32);
    EXPECT_EQ(checkpoint::ToJson(loaded.config), checkpoint::ToJson(expected.config));
    ASSERT_EQ(loaded.weights.size(), expected.weights.size());
    for (const auto& [name, tensor] : expected.weights) {
      ASSERT_TRUE(loaded.weights.contains(name)) << name;
      EXPECT_TRUE(at::equal(loaded.weights.at(name), tensor)) << name;
    }
  }
  std::string Refusal(Converter converter) const {
    WriteFile(path_, converter.Bytes());
    return RefusalAfter<LoadError>(path_.string() + ": ",
                                   [&] { LoadCheckpoint(path_, TensorFormat::kFloat32); });
  }

  const TempDir directory_;
  const std::filesystem::path path_ = directory_.path() / "m.gguf";
};

Json Deepseek3() { return ConfigNamed("DeepSeek3Groups"); }

TEST_F(GgufExpertsTest, DeepseekInEveryLayoutOfLatents) {
  for (const Latents latents :
       {Latents::kSplit, Latents::kSplitFlat, Latents::kJoined, Latents::kBoth}) {
    Converter converter("deepseek2", Deepseek3());
    converter.latents = latents;
    Check(std::move(converter));
  }
}

TEST_F(GgufExpertsTest, DeepseeksOptions) {
  const Json yarn = {{"type", "yarn"},
                     {"factor", 4.0},
                     {"beta_fast", 1.5},
                     {"beta_slow", 0.25},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"original_max_position_embeddings", 24}};
  for (const Json& config :
       {ConfigNamed("DeepSeek2Experts"),
        With(ConfigNamed("DeepSeek2Groups"), {{"moe_layer_freq", 1}}),
        ConfigNamed("DeepSeek2Normalized"), ConfigNamed("DeepSeek3PairsAndQueryRank"),
        With(Deepseek3(), {{"qk_rope_head_dim", 8},
                           {"rope_theta", 30.0},
                           {"rope_scaling", yarn},
                           {"max_position_embeddings", 96}})}) {
    Check(Converter("deepseek2", config));
  }
  Converter old("deepseek2", Deepseek3());
  old.without_sigmoid = true;
  Check(std::move(old));
  Converter joined("deepseek2", Deepseek3());
  joined.gate_and_up = true;
  Check(std::move(joined));
}

TEST_F(GgufExpertsTest, MiniCpm3) {
  const Json scaling = {
      {"type", "longrope"}, {"short_factor", {1.25, 3.5}}, {"long_factor", {1.25, 3.5}}};
  Check(Converter("minicpm3", Without(With(ConfigNamed("MiniCpm3"), {{"scale_emb", 12},
                                                                     {"scale_depth", 1.4},
                                                                     {"dim_model_base", 256},
                                                                     {"rope_scaling", scaling}}),
                                      {"v_head_dim"})));
}

TEST_F(GgufExpertsTest, Plm) {
  Converter converter("plm", ConfigNamed("Plm"));
  converter.latents = Latents::kJoined;
  Check(std::move(converter));
}

TEST_F(GgufExpertsTest, LlamasKind) {
  Check(Converter("llama", ConfigNamed("Mixtral")));
  Converter first("llama", ConfigNamed("Mixtral"));
  first.experts_apart = true;
  Check(std::move(first));
  Check(Converter("granitemoe", ConfigNamed("GraniteMoe")));
  Check(Converter("olmoe", ConfigNamed("Olmoe")));
  Check(Converter("qwen3moe", ConfigNamed("Qwen3Moe")));
  for (const bool squeezed : {false, true}) {
    Converter qwen("qwen2moe", With(ConfigNamed("Qwen2Moe"), {{"decoder_sparse_step", 1}}));
    qwen.squeezed_gate = squeezed;
    Check(std::move(qwen));
  }
}

TEST_F(GgufExpertsTest, RefusesTensorsThatDoNotFit) {
  const auto without = [&](const std::string& name) {
    Converter converter("deepseek2", Deepseek3());
    converter.dropped = {name};
    return Refusal(std::move(converter));
  };
  EXPECT_EQ(without("blk.2.ffn_up_exps.weight"), "tensor blk.2.ffn_up_exps.weight is missing");
  EXPECT_EQ(without("blk.1.exp_probs_b.bias"), "tensor blk.1.exp_probs_b.bias is missing");
  EXPECT_EQ(without("blk.1.ffn_gate_inp.weight"), "tensor blk.1.ffn_gate_inp.weight is missing");
  EXPECT_EQ(without("blk.0.attn_v_b.weight"), "tensor blk.0.attn_v_b.weight is missing");
  const auto cut = [&](const std::string& name, int64_t axis) {
    Converter converter("deepseek2", Deepseek3());
    converter.change = [=](const std::string& of, const at::Tensor& tensor) {
      return of == name ? tensor.slice(axis, 1) : tensor;
    };
    return Refusal(std::move(converter));
  };
  EXPECT_EQ(cut("blk.1.ffn_up_exps.weight", 0),
            "tensor blk.1.ffn_up_exps.weight has shape [5, 11, 24]; the config needs [6, 11, 24]");
  EXPECT_EQ(cut("blk.1.ffn_up_exps.weight", 1),
            "tensor blk.1.ffn_up_exps.weight has shape [6, 10, 24]; the config needs [6, 11, 24]");
  EXPECT_EQ(cut("blk.1.exp_probs_b.bias", 0),
            "tensor blk.1.exp_probs_b.bias has shape [5]; the config needs [6]");
  EXPECT_THAT(cut("blk.1.attn_k_b.weight", 2),
              HasSubstr("tensor blk.1.attn_k_b.weight has shape [4, 9, "));
}

// Experts in blocks of four bits, the rest in others: each is served in the nearest format, and
// an expert's numbers are those of its own blocks.
TEST_F(GgufExpertsTest, BlocksOfExperts) {
  constexpr uint64_t kWidth = 64, kExperts = 3, kInner = 32;
  GgufBuilder file;
  file.Add("general.architecture", "llama")
      .Add("llama.block_count", uint32_t{1})
      .Add("llama.context_length", uint32_t{8})
      .Add("llama.embedding_length", uint32_t{kWidth})
      .Add("llama.feed_forward_length", uint32_t{kInner})
      .Add("llama.attention.head_count", uint32_t{2})
      .Add("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .Add("llama.rope.freq_base", 10000.0F)
      .Add("llama.expert_count", uint32_t{kExperts})
      .Add("llama.expert_used_count", uint32_t{2});
  std::map<std::string, at::Tensor> expected;
  const auto add = [&](const std::string& name, const char* format_name,
                       const std::vector<uint64_t>& dims) {
    const checkpoint::BlockFormat& format = *checkpoint::FindBlockFormat(format_name);
    uint64_t count = 1;
    std::vector<int64_t> shape;
    for (const uint64_t extent : dims) {
      count *= extent;
      shape.insert(shape.begin(), static_cast<int64_t>(extent));
    }
    std::string blocks(count / format.numbers * format.bytes, '\0');
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<char>((i * 37 + 11) % 61);
    const at::Tensor numbers = at::empty(shape);
    checkpoint::DecodeBlocks(format, std::as_bytes(std::span(blocks)),
                             {numbers.data_ptr<float>(), static_cast<size_t>(numbers.numel())});
    file.AddTensor(name, format.type, dims, blocks);
    expected[name] = numbers;
  };
  const auto ones = [&](const std::string& name) {
    file.AddTensor(name, kF32, {kWidth}, BytesOf(std::vector<float>(kWidth, 1)));
  };
  ones("output_norm.weight");
  ones("blk.0.attn_norm.weight");
  ones("blk.0.ffn_norm.weight");
  add("token_embd.weight", "Q8_0", {kWidth, 5});
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    add("blk.0." + std::string(name) + ".weight", "Q8_0", {kWidth, kWidth});
  }
  file.AddTensor("blk.0.ffn_gate_inp.weight", kF32, {kWidth, kExperts},
                 BytesOf(std::vector<float>(kWidth * kExperts, 0.5F)));
  add("blk.0.ffn_gate_exps.weight", "Q4_0", {kWidth, kInner, kExperts});
  add("blk.0.ffn_up_exps.weight", "Q4_0", {kWidth, kInner, kExperts});
  add("blk.0.ffn_down_exps.weight", "Q5_0", {kInner, kWidth, kExperts});
  WriteFile(path_, file.Bytes());
  EXPECT_EQ(checkpoint::ReadConfig(path_).served_formats,
            WeightFormats(WeightFormat::kInt8, WeightFormat::kInt8, WeightFormat::kInt4));
  const Checkpoint loaded = LoadCheckpoint(path_, TensorFormat::kFloat32);
  for (int64_t expert = 0; expert < static_cast<int64_t>(kExperts); ++expert) {
    for (const std::string matrix : {"gate", "up", "down"}) {
      EXPECT_TRUE(at::equal(loaded.weights.at(ExpertPrefix(0, expert) + matrix + "_proj.weight"),
                            expected.at("blk.0.ffn_" + matrix + "_exps.weight")[expert]));
    }
  }
}

}  // namespace
}  // namespace triptych::gguf_experts_test
