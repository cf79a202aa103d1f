// make_cuda_references FILE: writes random models, rounded to bfloat16, and the shipped models,
// each with the logits that LibTorch computes in float64.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cpu_model.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/pack/pack_cuda_weights.h"
#include "engine/backend/tensors/tensor_model.h"
#include "engine/base/ceil_div.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/text/byte_tokenizer.h"
#include "tests/backend/cuda/references.h"
#include "tests/support/random_model.h"

namespace triptych {
namespace {

// Length of a sequence and of its prompt.
struct Lengths {
  int64_t length;
  int64_t prompt;
};

struct Case {
  NamedConfig named;
  std::vector<Lengths> sequences;
};

// Models with options that EveryOption lacks.
std::vector<NamedConfig> OtherOptions() {
  ModelConfig grouped = SmallModel(AttentionKind::kGqa);
  grouped.position_embedding = PositionEmbedding::kRope;
  grouped.rope_factors = {1, 2.5, 4};
  grouped.rope_attention_factor = 1.2;
  grouped.qk_norm = true;
  grouped.attention_score_factor = 1.5;
  grouped.scale_attn_by_inverse_layer_idx = true;
  grouped.embedding_multiplier = 3;
  grouped.logit_multiplier = 0.5;
  grouped.attention_output_bias = true;

  ModelConfig latent = SmallModel(AttentionKind::kMla);
  latent.position_embedding = PositionEmbedding::kRope;
  latent.qk_rope_head_dim = 4;
  latent.v_head_dim = 9;
  latent.q_lora_rank = 11;
  latent.kv_a_layernorm = true;
  latent.latent_bias = true;
  latent.attention_bias = true;
  latent.latent_norm_eps = 1e-3;
  latent.attention_score_factor = 0.7;

  // As OLMo 2.
  ModelConfig normed = SmallModel(AttentionKind::kGqa);
  normed.position_embedding = PositionEmbedding::kRope;
  normed.norm_inputs = false;
  normed.norm_outputs = true;
  normed.qk_norm = true;
  normed.qk_norm_all_heads = true;
  normed.attention_bias = true;

  ModelConfig layer_normed = SmallModel(AttentionKind::kMha);
  layer_normed.norm = NormKind::kLayerNorm;
  layer_normed.norm_bias = true;
  layer_normed.norm_outputs = true;
  layer_normed.attention_bias = true;
  layer_normed.mlp_bias = true;

  // As Gemma 2 and 3, with three groups of layers, of two each.
  ModelConfig windows = SmallModel(AttentionKind::kGqa);
  windows.num_hidden_layers = 6;
  windows.sliding_window = 11;
  windows.layer_types = {LayerType::kSliding, LayerType::kSliding, LayerType::kFull,
                         LayerType::kSliding, LayerType::kSliding, LayerType::kFull};
  windows.position_embedding = PositionEmbedding::kRope;
  windows.rope_factors = {2, 2, 2};
  windows.rope_local_base_freq = 20;
  windows.norm_outputs = true;
  windows.qk_norm = true;
  windows.attn_logit_softcapping = 1.5;
  windows.final_logit_softcapping = 2;
  windows.mlp = MlpKind::kGeglu;
  windows.hidden_act = HiddenAct::kGelu;
  return {{"GqaEveryFactor", grouped},
          {"MlaLowRankQueries", latent},
          {"GqaNormedOutputs", normed},
          {"MhaLayerNormedOutputs", layer_normed},
          {"GqaWindowsAndCaps", windows}};
}

ModelConfig Wide(AttentionKind kind, int64_t heads, int64_t groups, int64_t d) {
  ModelConfig config = SmallModel(kind);
  config.vocab_size = 64;
  config.hidden_size = 128;
  config.intermediate_size = 192;
  config.num_attention_heads = heads;
  config.num_key_value_heads = groups;
  config.head_dim = d;
  config.max_position_embeddings = 320;
  config.position_embedding = PositionEmbedding::kRope;
  return config;
}

ModelConfig WideLatent(int64_t heads, int64_t rank, int64_t width) {
  ModelConfig config = Wide(AttentionKind::kMla, heads, heads, 32);
  config.hidden_size = width;
  config.intermediate_size = 64;
  config.num_hidden_layers = 1;
  config.kv_lora_rank = {rank};
  config.qk_rope_head_dim = 64;
  config.kv_a_layernorm = true;
  return config;
}

// Models with widths that tensor-core kernels support. The long contexts are divided into splits of
// more than the smallest size.
std::vector<NamedConfig> TensorCoreWidths() {
  std::vector<NamedConfig> configs;
  const auto add = [&](const char* name, const ModelConfig& config) -> ModelConfig& {
    return configs.emplace_back(NamedConfig{name, config}).config;
  };
  add("Gqa64", Wide(AttentionKind::kGqa, 8, 2, 64));
  add("Gqa64OneGroup", Wide(AttentionKind::kGqa, 16, 1, 64));
  {
    ModelConfig& config = add("Gqa128OddShare", Wide(AttentionKind::kGqa, 6, 2, 128));
    config.qk_norm = true;
    config.attention_bias = true;
    config.mlp_bias = true;
  }
  {
    ModelConfig& config = add("Mha128", Wide(AttentionKind::kMha, 2, 2, 128));
    config.norm = NormKind::kLayerNorm;
    config.norm_bias = true;
  }
  {
    ModelConfig& config = add("Gqa64PartlyRotatedParallel", Wide(AttentionKind::kGqa, 4, 2, 64));
    config.rotary_dim = 16;
    config.no_rope_layers = {1, 0};
    config.norm = NormKind::kLayerNorm;
    config.use_parallel_residual = true;
    config.mlp = MlpKind::kGeglu;
    config.hidden_act = HiddenAct::kGelu;
  }
  {
    // The window begins within blocks and tiles.
    ModelConfig& config = add("Gqa64Windows", Wide(AttentionKind::kGqa, 8, 2, 64));
    config.sliding_window = 42;
    config.layer_types = {LayerType::kSliding, LayerType::kFull};
    config.rope_local_base_freq = 100;
    config.attn_logit_softcapping = 1.5;
    config.final_logit_softcapping = 2;
    config.norm_outputs = true;
  }
  add("Gqa128Long", Wide(AttentionKind::kGqa, 4, 2, 128)).max_position_embeddings = 2300;
  {
    // A window of two splits, in contexts of three.
    ModelConfig& config = add("Gqa128LongWindow", Wide(AttentionKind::kGqa, 4, 2, 128));
    config.num_hidden_layers = 1;
    config.sliding_window = 290;
    config.max_position_embeddings = 540;
  }
  add("Mla512Heads32LowRank", WideLatent(32, 512, 64)).q_lora_rank = 24;
  add("Mla512Heads16", WideLatent(16, 512, 64));
  add("Mla256Premultiplied", WideLatent(32, 256, 16));
  add("Mla256Long", WideLatent(16, 256, 64)).max_position_embeddings = 1400;
  {
    // General attention kernel, but all products by cuBLASLt.
    ModelConfig& config = add("MlaNarrow", Wide(AttentionKind::kMla, 4, 4, 32));
    config.kv_lora_rank = {24, 64};
    config.qk_rope_head_dim = 16;
  }
  {
    ModelConfig& config = add("Mla512NormedKeys", WideLatent(16, 512, 64));
    config.qk_norm = true;
    config.num_key_value_heads = 4;
  }
  const auto expanding = [](int64_t rank, int64_t d_qk, int64_t d_v) {
    ModelConfig config = WideLatent(16, rank, 192);
    config.head_dim = d_qk;
    config.v_head_dim = d_v;
    return config;
  };
  add("MlaExpands128", expanding(512, 128, 128));
  {
    ModelConfig& config = add("MlaExpands64LowRank", expanding(256, 64, 128));
    config.hidden_size = 256;
    config.q_lora_rank = 128;
    config.num_hidden_layers = 2;
    config.kv_lora_rank = {256, 256};
    config.attention_score_factor = 1.4;
    config.attention_bias = true;
    config.latent_bias = true;
  }
  add("MlaExpands128Values64", expanding(512, 128, 64));
  add("MlaExpandsLong", expanding(256, 64, 64)).max_position_embeddings = 1400;
  return configs;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const NamedConfig& named : EveryOption()) {
    try {
      CountCudaModelBytes(named.config, {});
    } catch (const LoadError&) {  // the CUDA backend does not serve it
      continue;
    }
    cases.push_back({named, {{40, 24}, {9, 5}, {17, 17}, {1, 1}}});
  }
  for (const NamedConfig& named : OtherOptions()) cases.push_back({named, {{50, 30}, {20, 11}}});
  for (const NamedConfig& named : TensorCoreWidths()) {
    const int64_t most = named.config.max_position_embeddings;
    if (named.config.HasWindows() && most > 320) {
      cases.push_back({named, {{most, most - 20}, {310, 300}}});
    } else if (most > 320) {
      cases.push_back({named, {{most, most - 20}, {1030, 1020}, {140, 120}}});
    } else if (named.config.attention == AttentionKind::kMla) {
      cases.push_back({named, {{170, 152}, {60, 34}, {20, 13}, {3, 1}}});
    } else {
      cases.push_back({named, {{200, 182}, {97, 64}, {30, 13}, {3, 1}}});
    }
  }
  return cases;
}

// The logits [ids, vocab] of one sequence.
std::vector<float> ExactLogits(TensorModel& model, const std::vector<int64_t>& ids) {
  std::vector<int32_t> table(model.info().blocks);
  std::iota(table.begin(), table.end(), 0);
  StepInput step;
  step.ids = ids;
  step.sequences = {
      {.blocks = table.data(), .start = 0, .count = std::ssize(ids), .prompt = std::ssize(ids)}};
  step.logit_rows.resize(ids.size());
  std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
  const at::Tensor logits = model.Logits(step).to(at::kFloat).contiguous();
  return {logits.data_ptr<float>(), logits.data_ptr<float>() + logits.numel()};
}

Reference MakeReference(const Case& from, uint64_t seed) {
  const ModelConfig& config = from.named.config;
  const Weights rounded = Cast(RandomWeights(config, seed), at::kBFloat16);
  WeightsInMemory source(rounded);
  CheckpointCudaWeights packed(config, source);
  Reference reference{.name = from.named.name,
                      .config = config,
                      .weights = HeldCudaWeights(config, packed),
                      .sequences = {}};

  BackendOptions options;
  const CacheGeometry geometry =
      MakeCacheGeometry(config, options.cache_format, options.block_positions);
  options.kv_cache_bytes = CeilDiv(config.max_position_embeddings, options.block_positions) *
                           geometry.Groups().count() * geometry.BlockBytes();
  TensorModel exact(config, Cast(rounded, at::kDouble), ComputeType::kFloat64, options);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    exact.cache(i) = at::zeros(exact.cache(i).sizes(), at::kDouble);
  }
  std::mt19937_64 generator(seed);
  for (const Lengths& lengths : from.sequences) {
    ReferenceSequence& sequence = reference.sequences.emplace_back();
    sequence.prompt = lengths.prompt;
    sequence.ids.resize(lengths.length);
    for (int64_t& id : sequence.ids) {
      id = static_cast<int64_t>(generator() % static_cast<uint64_t>(config.vocab_size));
    }
    sequence.logits = ExactLogits(exact, sequence.ids);
  }
  return reference;
}

// Logits of the last new token, for a sequence that has all blocks of the cache.
std::span<const float> StepAlone(ModelBackend& model, const std::vector<int64_t>& ids,
                                 int64_t start, int64_t prompt) {
  std::vector<int32_t> table(model.info().blocks);
  std::iota(table.begin(), table.end(), 0);
  StepInput step;
  step.ids.assign(ids.begin() + start, ids.end());
  const int64_t count = std::ssize(step.ids);
  step.sequences = {{.blocks = table.data(), .start = start, .count = count, .prompt = prompt}};
  step.logit_rows = {count - 1};
  return model.Step(step);
}

Reference MakeShippedReference(const std::string& name) {
  const std::filesystem::path directory = std::filesystem::path(TRIPTYCH_MODELS_DIR) / name;
  CheckpointReader reader(checkpoint::OpenCheckpoint(directory), TensorFormat::kBFloat16);
  const ModelConfig config = reader.config();
  Weights weights;
  for (const std::string& prefix : PartPrefixes(config)) weights.merge(reader.Take(prefix));
  WeightsInMemory source(weights);
  CheckpointCudaWeights packed(config, source);
  Reference reference{
      .name = name, .config = config, .weights = HeldCudaWeights(config, packed), .sequences = {}};

  BackendOptions options{.cache_format = CacheFormat::kBFloat16};
  options.kv_cache_bytes =
      10 * MakeCacheGeometry(config, options.cache_format, options.block_positions).BlockBytes();
  const auto context = std::make_shared<kernels::KernelContext>(1);
  cpu::CpuModel cpu(
      config,
      cpu::PackWeights(config, weights, WeightFormat::kBFloat16, kNeverExpand, context->pool),
      options, context);
  ReferenceSequence& sequence = reference.sequences.emplace_back();
  sequence.ids = {ByteTokenizer::kBegin};
  for (const char byte : std::string("ROMEO:\nWhat light is this?\n\nJULIET:\n")) {
    sequence.ids.push_back(static_cast<unsigned char>(byte));
  }
  sequence.prompt = sequence.length();
  for (int64_t start = 0; sequence.length() < sequence.prompt + 64;) {
    const std::span<const float> logits = StepAlone(cpu, sequence.ids, start, sequence.prompt);
    start = sequence.length();
    sequence.ids.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  options.cache_format = CacheFormat::kFloat32;
  options.kv_cache_bytes *= 2;
  TensorModel exact(config, Cast(weights, at::kDouble), ComputeType::kFloat64, options);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    exact.cache(i) = at::zeros(exact.cache(i).sizes(), at::kDouble);
  }
  sequence.logits = ExactLogits(exact, sequence.ids);
  return reference;
}

int Main(const std::filesystem::path& path) {
  std::vector<Reference> references;
  for (const Case& from : Cases()) {
    references.push_back(MakeReference(from, references.size() + 1));
  }
  for (const char* const name : kShippedNames) references.push_back(MakeShippedReference(name));
  WriteReferences(path, references);
  std::printf("%s: %zu models, %.1f MB\n", path.c_str(), references.size(),
              static_cast<double>(std::filesystem::file_size(path)) / 1e6);
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_cuda_references FILE\n");
    return 2;
  }
  try {
    return triptych::Main(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_cuda_references: %s\n", e.what());
    return 1;
  }
}
