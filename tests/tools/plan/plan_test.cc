#include "engine/tools/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/server_bytes.h"
#include "engine/base/quantities.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/write_weights.h"
#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/block_table.h"
#include "engine/loading/loaded_model.h"
#include "engine/tools/plan/capacity.h"
#include "engine/tools/plan/machine.h"
#include "tests/support/process.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/serving.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::plan_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Cache bytes of all these plans, approximately.
constexpr int64_t kCacheBytes = 100'000;

int64_t Memory(const ModelConfig& config, WeightFormat dtype) {
  const int64_t enough = int64_t{1} << 40;
  const KindPlan plan = PlanKind(config, dtype, CacheFormat::kFloat32, enough, 1);
  return enough - plan.cache_bytes + kCacheBytes;
}

// ---- Bytes of the engine ----------------------------------------------------------------

// Bytes that PackWeights made, and those of the matrices that a step multiplies with.
struct Packed {
  int64_t held = 0;
  int64_t multiplied = 0;
};
Packed CountPacked(const ModelConfig& config, WeightFormat format) {
  const Weights weights = Cast(RandomWeights(config, 1), ToScalarType(TensorsFor(format)));
  kernels::ThreadPool pool(1);
  const cpu::CpuWeights packed = cpu::PackWeights(config, weights, format, {}, pool);
  const auto floats = [](const cpu::CpuWeights::Norm& norm) {
    return std::ssize(norm.weight) + std::ssize(norm.bias);
  };
  int64_t vectors = std::ssize(packed.positions) + floats(packed.final_norm);
  Packed bytes;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const cpu::CpuWeights::Layer& layer = packed.layers[i];
    bytes.held += layer.attention->weight_bytes();
    bytes.multiplied += layer.mlp->weight_bytes();
    vectors += floats(layer.attention_norm) + floats(layer.mlp_norm);
    const auto norm = weights.find(AttentionPrefix(i) + "kv_a_layernorm.weight");
    if (norm != weights.end()) vectors += norm->second.numel();
  }
  bytes.multiplied += packed.output.bytes();
  if (packed.embedding) bytes.held += packed.embedding->bytes();
  const LayerRotary rotary = MakeRotary(config, at::kCPU);
  for (const Rotary& rotation : {rotary.shared, rotary.local}) {
    if (rotation.defined()) vectors += rotation.Table().numel();
  }
  bytes.held += 4 * vectors;
  return bytes;
}

// Every option, MLA with contexts in which expanded prompts pay, and windows.
std::vector<NamedConfig> Configs() {
  std::vector<NamedConfig> configs = EveryOption();
  NamedConfig& expands = configs.emplace_back(configs.back());
  expands.name = "MlaExpands";
  expands.config.max_position_embeddings = 1024;
  NamedConfig& windows = configs.emplace_back(configs.front());
  windows.name = "Windows";
  windows.config.num_hidden_layers = 3;
  windows.config.position_embedding = PositionEmbedding::kRope;
  windows.config.sliding_window = 5;
  windows.config.layer_types = {LayerType::kSliding, LayerType::kFull, LayerType::kSliding};
  windows.config.rope_local_base_freq = 100;
  return configs;
}

class EachConfigTest : public testing::TestWithParam<NamedConfig> {};

TEST_P(EachConfigTest, WeightsTakeWhatPackingThemTakes) {
  const ModelConfig& config = GetParam().config;
  for (const auto& [name, format] : Names<WeightFormat>()) {
    SCOPED_TRACE(name);
    const cpu::StepCost cost =
        PlanKind(config, format, CacheFormat::kFloat32, Memory(config, format), 1).cost;
    const Packed packed = CountPacked(config, format);
    EXPECT_EQ(cost.weight_bytes, packed.held + packed.multiplied);
    const double all = cpu::ReadBytes(config, cost, 1e9);  // every expert is chosen
    EXPECT_GT(all, packed.multiplied);
    EXPECT_LE(all, cost.weight_bytes);
  }
}

TEST_P(EachConfigTest, TheCacheIsTheServingModels) {
  const ModelConfig& config = GetParam().config;
  const Weights weights = Cast(RandomWeights(config, 1), at::kFloat);
  for (const auto& [name, format] : Names<CacheFormat>()) {
    SCOPED_TRACE(name);
    const int64_t memory = Memory(config, WeightFormat::kFloat32);
    const KindPlan plan = PlanKind(config, WeightFormat::kFloat32, format, memory, 33);
    EXPECT_EQ(plan.cache_bytes, kCacheBytes);
    EXPECT_EQ(plan.cache_bytes + plan.cost.weight_bytes + plan.prompt_bytes + kServerBytes, memory);
    const std::unique_ptr<ModelBackend> model = MakeServingModel(
        config, weights, {.kv_cache_bytes = plan.cache_bytes, .cache_format = format},
        WeightFormat::kFloat32);
    const BackendInfo& served = model->info();
    EXPECT_EQ(plan.info.blocks, served.blocks);
    EXPECT_EQ(plan.info.cache_bytes, served.cache_bytes);  // allocated
    EXPECT_EQ(plan.info.pool_positions(), served.pool_positions());
    EXPECT_EQ(plan.info.geometry.row_bytes, served.geometry.row_bytes);
    EXPECT_EQ(plan.info.expand_from, served.expand_from);
    EXPECT_EQ(plan.info.expand_from.has_value(), GetParam().name == "MlaExpands");
    EXPECT_EQ(plan.prompt_bytes, served.expand_from ? MostScratchBytes(config) : 0);
    // The number of sequences of 33 positions that get blocks from such a pool.
    BlockPool pool(served.blocks);
    std::vector<std::unique_ptr<BlockTable>> tables;
    const int64_t size = served.geometry.block_positions;
    const LayerGroups groups = served.geometry.Groups();
    const auto grow = [&](BlockTable& table) {
      if (!table.Grow(32)) return false;
      table.Drop(groups.Unseen(32, size));
      return table.Grow(33);
    };
    do {
      tables.push_back(std::make_unique<BlockTable>(pool, size, groups));
    } while (grow(*tables.back()));
    EXPECT_EQ(plan.sequences, std::ssize(tables) - 1);
  }
}

// From the tensors of a checkpoint: a step multiplies with each element of a matrix once, and not
// with an embedding that is not the output matrix. Premultiplied matrices: engine/definitions.md.
TEST_P(EachConfigTest, ArithmeticIsThatOfTheDefinitions) {
  const ModelConfig& config = GetParam().config;
  const cpu::StepCost cost = PlanKind(config, WeightFormat::kFloat32, CacheFormat::kFloat32,
                                      Memory(config, WeightFormat::kFloat32), 1)
                                 .cost;
  int64_t elements = 0, of_experts = 0, core = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const bool embedding = spec.name.starts_with("model.embed_");
    const bool output = spec.name == "model.embed_tokens.weight" && config.tie_word_embeddings;
    if (spec.shape.size() != 2 || (embedding && !output)) continue;
    const bool routed = spec.name.find(".experts.") != std::string::npos;
    (routed ? of_experts : elements) += spec.shape[0] * spec.shape[1];
  }
  if (of_experts > 0) {
    of_experts = of_experts / config.experts.n_routed_experts * config.experts.num_experts_per_tok;
    elements += of_experts;
  }
  const int64_t d = config.head_dim, heads = config.num_attention_heads;
  const int64_t width = config.hidden_size, d_rope = config.qk_rope_head_dim;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.attention != AttentionKind::kMla) {
      core += 4 * heads * d;
      continue;
    }
    const int64_t rank = config.kv_lora_rank[layer];
    core += 2 * heads * (2 * rank + d_rope);
    const int64_t factored = 2 * heads * d * (width + rank),
                  premultiplied = 2 * heads * rank * width;
    if (premultiplied <= factored && !config.qk_norm) elements += premultiplied - factored;
  }
  EXPECT_EQ(cost.product_flops, 2 * elements);
  EXPECT_EQ(cost.expert_flops, 2 * of_experts);
  EXPECT_EQ(cost.core_flops, core);
}

INSTANTIATE_TEST_SUITE_P(EveryOption, EachConfigTest, testing::ValuesIn(Configs()),
                         [](const auto& test) { return test.param.name; });

// A checkpoint served as each kind, converted by the server.
class ServedKindsTest : public testing::Test {
 protected:
  LoadedModel Host(std::optional<ConversionSpec> conversion, WeightFormat dtype, CacheFormat cache,
                   int64_t bytes) const {
    return LoadModel({.name = "model",
                      .checkpoint = checkpoint::OpenCheckpoint(dir_.path() / "model"),
                      .weights = {.layers = dtype},
                      .cache_format = cache,
                      .backend = {.kv_cache_bytes = bytes},
                      .conversion = conversion},
                     std::make_shared<kernels::KernelContext>(1));
  }

  const TempDir dir_;
};

TEST_F(ServedKindsTest, PlansAreOfTheModelsThatAreServed) {
  const ModelConfig config = SmallModel(AttentionKind::kMha);
  SaveCheckpoint(dir_.path() / "model", config, RandomWeights(config, 1));
  const std::vector<ModelConfig> kinds = EachKindOf(config, 2, 9);
  const std::vector<std::optional<ConversionSpec>> conversions = {
      std::nullopt, ConversionSpec{.attention = AttentionKind::kGqa, .groups = 2},
      ConversionSpec{.attention = AttentionKind::kMla, .rank = 9}};
  for (size_t i = 0; i < kinds.size(); ++i) {
    for (const auto& [dtype_name, dtype] : Names<WeightFormat>()) {
      for (const auto& [cache_name, cache] : Names<CacheFormat>()) {
        SCOPED_TRACE(std::string(Name(kinds[i].attention)) + ", " + dtype_name + ", " + cache_name);
        const KindPlan plan = PlanKind(kinds[i], dtype, cache, Memory(kinds[i], dtype), 64);
        const LoadedModel model = Host(conversions[i], dtype, cache, plan.cache_bytes);
        EXPECT_EQ(checkpoint::ToJson(plan.config), checkpoint::ToJson(model.config));
        const serving::KvCacheStats stats = model.engine->Stats();
        EXPECT_EQ(plan.info.blocks, stats.total_blocks);
        EXPECT_EQ(plan.info.blocks, stats.free_blocks);
        EXPECT_EQ(plan.info.cache_bytes, stats.pool_bytes);
        EXPECT_EQ(plan.info.geometry.BytesPerPosition(), stats.bytes_per_position);
        EXPECT_EQ(plan.info.geometry.BlockBytes(), stats.block_bytes);
      }
    }
  }
}

// ---- Which kinds -----------------------------------------------------------------------------

ModelConfig Wide(AttentionKind kind) {  // D = 32, H = 8, d = 4
  ModelConfig config = SmallModel(kind);
  config.hidden_size = 32;
  config.num_attention_heads = config.num_key_value_heads = 8;
  config.head_dim = 4;
  if (kind == AttentionKind::kGqa) config.num_key_value_heads = 2;
  if (kind == AttentionKind::kMla) config.kv_lora_rank = {20, 12};
  return config;
}

TEST(EachKindOfTest, TheModelsOwnOrLikeIt) {
  const auto kinds = [](const ModelConfig& config, std::optional<int64_t> groups = {},
                        std::optional<int64_t> rank = {}) {
    const std::vector<ModelConfig> all = EachKindOf(config, groups, rank);
    EXPECT_EQ(all[0].attention, AttentionKind::kMha);
    EXPECT_EQ(all[0].num_key_value_heads, 8);
    EXPECT_EQ(all[1].attention, AttentionKind::kGqa);
    EXPECT_EQ(all[2].attention, AttentionKind::kMla);
    EXPECT_EQ(all[0].qk_rope_head_dim + all[1].qk_rope_head_dim, 0);
    return std::pair(all[1].num_key_value_heads, all[2].kv_lora_rank);
  };
  using Ranks = std::vector<int64_t>;
  EXPECT_EQ(kinds(Wide(AttentionKind::kMha)), std::pair(int64_t{4}, Ranks({32, 32})));
  EXPECT_EQ(kinds(Wide(AttentionKind::kGqa)), std::pair(int64_t{2}, Ranks({16, 16})));
  EXPECT_EQ(kinds(Wide(AttentionKind::kMla)), std::pair(int64_t{2}, Ranks({20, 12})));
  EXPECT_EQ(kinds(Wide(AttentionKind::kMha), 8, 7), std::pair(int64_t{8}, Ranks({7, 7})));
  EXPECT_EQ(kinds(Wide(AttentionKind::kMha), {}, 7), std::pair(int64_t{1}, Ranks({7, 7})));
  EXPECT_EQ(kinds(Wide(AttentionKind::kMla), 4, 5), std::pair(int64_t{4}, Ranks({5, 5})));
  ModelConfig rotary = Wide(AttentionKind::kMha);
  rotary.position_embedding = PositionEmbedding::kRope;
  EXPECT_EQ(EachKindOf(rotary, {}, {})[2].qk_rope_head_dim, 2);
  EXPECT_EQ(kinds(rotary), std::pair(int64_t{4}, Ranks({32, 32})));
}

// The tensors and rows that `convert` makes: biases, rotated keys, normed keys.
TEST(EachKindOfTest, TheModelsThatConvertMakes) {
  std::vector<NamedConfig> sources = {{"Biased", Wide(AttentionKind::kMha)},
                                      {"Rotary", Wide(AttentionKind::kGqa)},
                                      {"Normed", Wide(AttentionKind::kGqa)}};
  sources[0].config.attention_bias = true;
  sources[0].config.attention_output_bias = false;
  sources[1].config.position_embedding = PositionEmbedding::kRope;
  sources[1].config.attention_bias = true;
  sources[2].config.position_embedding = PositionEmbedding::kRope;
  sources[2].config.qk_norm = true;
  const auto shapes = [](const ModelConfig& config) {
    std::map<std::string, std::vector<int64_t>> by_name;
    for (const TensorSpec& spec : ExpectedTensors(config)) by_name[spec.name] = spec.shape;
    return by_name;
  };
  for (const auto& [name, config] : sources) {
    const Checkpoint source{.config = config, .weights = RandomWeights(config, 1)};
    for (const std::optional<int64_t> rank : {std::optional<int64_t>(), {7}}) {
      const std::vector<ModelConfig> kinds = EachKindOf(config, 1, rank);
      const int64_t width = kinds[2].qk_rope_head_dim;
      const std::vector<ConversionSpec> specs = {
          {.attention = AttentionKind::kMha},
          {.attention = AttentionKind::kGqa, .groups = 1},
          {.attention = AttentionKind::kMla, .rank = rank.value_or(0), .rope_head_dim = width}};
      for (size_t i = 0; i < specs.size(); ++i) {
        SCOPED_TRACE(name + " to " + std::string(Name(specs[i].attention)));
        const ModelConfig made = Convert(source, specs[i], name).config;
        EXPECT_EQ(shapes(kinds[i]), shapes(made));
        EXPECT_EQ(MakeCacheGeometry(kinds[i], CacheFormat::kInt4, 16).row_bytes,
                  MakeCacheGeometry(made, CacheFormat::kInt4, 16).row_bytes);
      }
    }
  }
}

// ---- Speed -----------------------------------------------------------------------------------

// 4 elements of weights and 8 FLOP are a second each.
constexpr kernels::Limits kLimits = {.read_bytes = 16,
                                     .float32_flops = 8,
                                     .bfloat16_flops = 80,
                                     .int8_flops = 800,
                                     .int4_flops = 800};

KindPlan Fictitious(int64_t read_bytes, int64_t product_flops, int64_t position_bytes,
                    int64_t core_flops) {
  KindPlan plan;
  plan.cost.read_bytes = read_bytes;
  plan.cost.product_flops = product_flops;
  plan.cost.core_flops = core_flops;
  plan.info.geometry.row_bytes = {position_bytes};
  return plan;
}

TEST(StepSecondsTest, ProductsThenAttentionEachByWhatTheyWaitFor) {
  // Products: memory 2 s; arithmetic 1 s a token. Attention, a position: memory 3 s, arithmetic 1.
  const KindPlan plan = Fictitious(32, 8, 48, 8);
  EXPECT_DOUBLE_EQ(StepSeconds(plan, kLimits, 1, 10), 2 + 30);
  EXPECT_DOUBLE_EQ(StepSeconds(plan, kLimits, 2, 10), 2 + 60);
  EXPECT_DOUBLE_EQ(StepSeconds(plan, kLimits, 5, 10), 5 + 150);
  // Attention is bound by arithmetic, in float32 for every format of the weights.
  KindPlan busy = Fictitious(32, 8, 16, 40);
  EXPECT_DOUBLE_EQ(StepSeconds(busy, kLimits, 5, 10), 5 + 250);
  busy.dtypes = WeightFormat::kBFloat16;
  EXPECT_DOUBLE_EQ(StepSeconds(busy, kLimits, 40, 10), 4 + 2000);
  busy.dtypes = WeightFormat::kInt4;
  EXPECT_DOUBLE_EQ(StepSeconds(busy, kLimits, 400, 10), 4 + 20000);
}

// A token chooses 1 of 4 experts, which takes 3 s to read. Two tokens read 7/4 of them on average.
// Arithmetic with experts in bfloat16 takes a tenth.
TEST(StepSecondsTest, TokensShareTheExpertsThatTheyChoose) {
  KindPlan plan = Fictitious(32, 8, 0, 0);
  plan.config.experts = {.n_routed_experts = 4, .num_experts_per_tok = 1};
  plan.cost.expert_bytes = 48;
  EXPECT_DOUBLE_EQ(StepSeconds(plan, kLimits, 1, 0), 2 + 3);
  EXPECT_DOUBLE_EQ(StepSeconds(plan, kLimits, 2, 0), 2 + 3 * 7.0 / 4);
  plan.cost.expert_bytes = 0;
  plan.cost.expert_flops = 4;
  EXPECT_DOUBLE_EQ(StepSeconds(plan, kLimits, 100, 0), 100);
  plan.dtypes.experts = WeightFormat::kBFloat16;
  EXPECT_DOUBLE_EQ(StepSeconds(plan, kLimits, 100, 0), 50 + 5);
}

TEST(CrossoverTest, IsWhereBothTakeAsLong) {
  const KindPlan light = Fictitious(16, 1, 32, 1);   // 1 s and 2 s a position
  const KindPlan heavy = Fictitious(160, 1, 16, 1);  // 10 s and 1 s a position
  const Crossover rises = FindCrossover(heavy, light, kLimits, 1, 100);
  EXPECT_FALSE(rises.at_first);
  ASSERT_TRUE(rises.positions);
  EXPECT_NEAR(*rises.positions, 9, 1e-9);
  EXPECT_NEAR(StepSeconds(heavy, kLimits, 1, 9), StepSeconds(light, kLimits, 1, 9), 1e-9);
  EXPECT_NEAR(*FindCrossover(heavy, light, kLimits, 3, 100).positions, 3, 1e-9);
  const Crossover falls = FindCrossover(light, heavy, kLimits, 1, 100);
  EXPECT_TRUE(falls.at_first);
  EXPECT_NEAR(*falls.positions, 9, 1e-9);
  EXPECT_FALSE(FindCrossover(heavy, light, kLimits, 1, 8).positions);  // beyond the context
  EXPECT_FALSE(FindCrossover(heavy, light, kLimits, 1, 8).at_first);
  EXPECT_FALSE(FindCrossover(heavy, light, kLimits, 20, 100).positions);  // before it begins
  EXPECT_TRUE(FindCrossover(heavy, light, kLimits, 20, 100).at_first);
  EXPECT_FALSE(FindCrossover(heavy, heavy, kLimits, 1, 100).at_first);  // neither
}

// ---- What is printed, and refused ------------------------------------------------------------

constexpr const char* kMachine = R"({
  "name": "a machine", "cores": 4, "read_bytes_per_second": 2e9,
  "float32_flop_per_second": 1e9, "bfloat16_flop_per_second": 2e9, "int8_flop_per_second": 3e9,
  "int4_flop_per_second": 4e9
})";
constexpr kernels::Limits kMachineLimits = {.read_bytes = 2e9,
                                            .float32_flops = 1e9,
                                            .bfloat16_flops = 2e9,
                                            .int8_flops = 3e9,
                                            .int4_flops = 4e9};

class PlanTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(model_);
    WriteFile(model_ / "config.json", checkpoint::ToJson(Wide(AttentionKind::kMha)));
    WriteFile(machine_, kMachine);
  }

  PlanOptions Options() const {
    return {.model = model_, .memory = int64_t{1} << 30, .machine = machine_};
  }
  static std::string Printed(const PlanOptions& options) {
    testing::internal::CaptureStdout();
    Plan(options);
    return testing::internal::GetCapturedStdout();
  }
  // The one-line message for refused options.
  static std::string Refusal(const PlanOptions& options) {
    const std::string what = RefusalOf<std::exception>([&] { Plan(options); });
    EXPECT_NE(what, kAccepted);
    EXPECT_EQ(what.find('\n'), what.npos) << what;
    return what;
  }

  const TempDir dir_;
  const std::filesystem::path model_ = dir_.path() / "model", machine_ = dir_.path() / "machine";
};

// The text of a table's row, after its title.
std::string Row(const std::string& text, const std::string& title) {
  const size_t begin = text.find("\n" + title + "  ");
  if (begin == text.npos) return "no row \"" + title + "\" in:\n" + text;
  const size_t end = text.find('\n', begin + 1);
  return text.substr(begin + 1 + title.size(), end - begin - 1 - title.size());
}

TEST_F(PlanTest, PrintsWhatIsPlanned) {
  PlanOptions options = Options();
  options.context = 60;
  options.rank = 8;
  const std::string text = Printed(options);
  EXPECT_THAT(text,
              AllOf(StartsWith(model_.string() + ": mha, weights in float32, cache in float32\n"),
                    HasSubstr("sequences of 60 positions\n"),
                    HasSubstr("a machine, 4 cores: reads 2.0 GB/s, 1.0 GFLOP/s in float32, 2.0 in "
                              "bfloat16, 3.0 in int8, 4.0 in int4\n"),
                    HasSubstr("\nmla: rank 8\ngqa: 1 group (--groups for more)\n"),
                    HasSubstr("\nmla against mha, batches of 1"), HasSubstr("\nLeft out: ")));
  const auto cell = [](const std::string& number) { return HasSubstr(std::string(" ") + number); };
  for (const ModelConfig& kind : EachKindOf(Wide(AttentionKind::kMha), {}, 8)) {
    const KindPlan plan =
        PlanKind(kind, WeightFormat::kFloat32, CacheFormat::kFloat32, *options.memory, 60);
    EXPECT_THAT(Row(text, "bytes per position"),
                cell(FormatCount(plan.info.geometry.BytesPerPosition())));
    EXPECT_THAT(Row(text, "positions that fit"), cell(FormatCount(plan.info.pool_positions())));
    EXPECT_THAT(Row(text, "sequences that fit"), cell(FormatCount(plan.sequences)));
    EXPECT_THAT(Row(text, "tokens/s, 8 sequences"),
                cell(FormatDecimal(8 / StepSeconds(plan, kMachineLimits, 8, 60), 1)));
  }
}

TEST_F(PlanTest, AModelThatDoesNotFitHasNoSpeed) {
  // Three blocks of 16 positions, for contexts of 64.
  const ModelConfig mla = EachKindOf(Wide(AttentionKind::kMha), {}, {})[2];
  const int64_t blocks = 3 * MakeCacheGeometry(mla, CacheFormat::kFloat32, 16).BlockBytes();
  PlanOptions options = Options();
  options.memory = Memory(mla, WeightFormat::kFloat32) - kCacheBytes + blocks;
  const std::string text = Printed(options);
  EXPECT_THAT(Row(text, "sequences that fit"), EndsWith(" 0"));
  EXPECT_THAT(Row(text, "tokens/s, 1 sequence"), EndsWith(" -"));
  EXPECT_THAT(Row(text, "tokens/s, all that fit"), EndsWith(" -"));
  *options.memory -= 3 * blocks;
  EXPECT_THAT(Refusal(options),
              AllOf(StartsWith("--memory: " + std::to_string(*options.memory) + " bytes do not "),
                    HasSubstr("for mla: weights take "), HasSubstr("the server itself 100663296")));
}

TEST_F(PlanTest, RefusesWhatTheModelIsNot) {
  for (const int64_t context : {0, -5, 65}) {
    PlanOptions options = Options();
    options.context = context;
    EXPECT_EQ(Refusal(options), "--context: " + std::to_string(context) +
                                    "; allowed: 1 to the 64 positions of the model");
  }
  for (const int64_t groups : {0, -1, 3, 16}) {
    PlanOptions options = Options();
    options.groups = groups;
    EXPECT_EQ(Refusal(options), "--groups: " + std::to_string(groups) +
                                    "; allowed: divisors of the model's 8 key/value heads");
  }
  for (const int64_t rank : {0, -1, 33}) {
    PlanOptions options = Options();
    options.rank = rank;
    EXPECT_EQ(Refusal(options), "--rank: " + std::to_string(rank) + "; allowed: 1 to 32");
  }
  WriteFile(model_ / "config.json", "{");
  EXPECT_THAT(Refusal(Options()), HasSubstr("config.json"));
  std::filesystem::remove(model_ / "config.json");
  EXPECT_THAT(Refusal(Options()), HasSubstr("config.json"));
}

TEST_F(PlanTest, SaysWhatATokenOfAModelWithExpertsReads) {
  ModelConfig config = Wide(AttentionKind::kMha);
  PlanOptions options = Options();
  options.weights.experts = WeightFormat::kInt4;
  EXPECT_EQ(Refusal(options), "--expert-dtype: int4; allowed: nothing, the model has no experts");
  config.experts = {.n_routed_experts = 8, .num_experts_per_tok = 2, .moe_intermediate_size = 64};
  WriteFile(model_ / "config.json", checkpoint::ToJson(config));
  const std::string printed = Printed(options);
  EXPECT_THAT(printed, AllOf(HasSubstr("weights in float32, experts in int4, cache in float32\n"),
                             HasSubstr("active parameters"), HasSubstr("weights read, 1 sequence "),
                             HasSubstr("weights read, 8 sequences "),
                             Not(HasSubstr("weights read per step"))));
  const WeightFormats formats = options.weights.Over(WeightFormat::kFloat32);
  const KindPlan plan =
      PlanKind(config, formats, CacheFormat::kFloat32, int64_t{1} << 30, 1, DeviceKind::kCpu);
  for (const int64_t tokens : {1, 8, 32}) {
    const double bytes = cpu::ReadBytes(config, plan.cost, static_cast<double>(tokens));
    EXPECT_THAT(printed, HasSubstr(FormatBytes(std::llround(bytes)))) << tokens;
  }
  EXPECT_THAT(printed, HasSubstr(FormatCount(ActiveParameterCount(config))));
}

TEST_F(PlanTest, StoredIntegersAreServedAsIntegers) {
  ModelConfig config = Wide(AttentionKind::kMha);
  config.quantization = {.format = WeightFormat::kInt4, .embeddings = false};
  WriteFile(model_ / "config.json", checkpoint::ToJson(config));
  EXPECT_THAT(Printed(Options()),
              HasSubstr("weights in int4, embeddings in float32, cache in bfloat16\n"));
  PlanOptions options = Options();
  options.weights.embeddings = WeightFormat::kInt8;
  EXPECT_THAT(Printed(options),
              HasSubstr("weights in int4, embeddings in int8, cache in bfloat16\n"));
  // The embeddings, 258 rows of the width, are counted in their own format.
  const auto weights = [&](const WeightFormats& formats) {
    return PlanKind(config, formats, CacheFormat::kBFloat16, int64_t{1} << 30, 1).cost.weight_bytes;
  };
  EXPECT_EQ(
      weights({WeightFormat::kInt4, WeightFormat::kFloat32}) - weights(WeightFormat::kInt4),
      weights(WeightFormat::kFloat32) - weights({WeightFormat::kFloat32, WeightFormat::kInt4}));
}

// The largest sizes that a config may have and weights may have, with the widest rows.
TEST_F(PlanTest, NoSizeOverflows) {
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kMla}) {
    ModelConfig config = Wide(kind);
    config.hidden_size = config.intermediate_size = config.head_dim = 1 << 20;
    config.num_attention_heads = config.num_key_value_heads = 1 << 20;
    config.vocab_size = 1 << 24;
    config.num_hidden_layers = 1024;
    config.max_position_embeddings = 1 << 24;
    if (kind == AttentionKind::kMla) config.kv_lora_rank.assign(1024, 1 << 20);
    WriteFile(model_ / "config.json", checkpoint::ToJson(config));
    EXPECT_THAT(Refusal(Options()), StartsWith("a matrix has "));
    config.num_attention_heads = config.num_key_value_heads = config.hidden_size = 256;
    config.vocab_size = 256;
    config.intermediate_size = 1;
    WriteFile(model_ / "config.json", checkpoint::ToJson(config));
    PlanOptions options = Options();
    options.memory = int64_t{20'000} << 40;
    const std::string text = Printed(options);
    const std::string numbers = text.substr(text.find('\n'));  // after the model's name
    EXPECT_THAT(numbers, Not(ContainsRegex("-[0-9]|nan|inf")));
  }
}

TEST_F(PlanTest, MachineFilesThatAreNone) {
  const auto with = [](const std::string& field, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(kMachine);
    json[field] = value;
    return json.dump();
  };
  const auto expect_refused = [&](const std::string& text, const std::string& why) {
    SCOPED_TRACE(text.substr(0, 100));
    WriteFile(machine_, text);
    EXPECT_THAT(Refusal(Options()), AllOf(StartsWith(machine_.string() + ": "), HasSubstr(why)));
  };
  expect_refused("", "");
  expect_refused("name = 'toml'", "");
  expect_refused("[]", "must hold a JSON object");
  expect_refused("{}", "name is missing");
  expect_refused(R"({"name": "a"})", "cores is missing");
  expect_refused(R"({"name": "a", "cores": 1})", "read_bytes_per_second is missing");
  expect_refused(with("name", 7), "name is 7; allowed: a text of at most 128 bytes");
  expect_refused(with("name", std::string(200, 'x')), "name is ");
  for (const int cores : {0, -2, 1 << 21}) expect_refused(with("cores", cores), "cores is ");
  expect_refused(with("read_bytes_per_second", "fast"), "read_bytes_per_second is \"fast\"");
  for (const char* field :
       {"read_bytes_per_second", "float32_flop_per_second", "bfloat16_flop_per_second",
        "int8_flop_per_second", "int4_flop_per_second"}) {
    for (const double rate : {0.0, -1e9, 1e19}) {
      expect_refused(with(field, rate), std::string(field) + " is ");
    }
  }
  expect_refused(with("peak", 1), "peak is not a field");
  std::string infinite = kMachine;
  infinite.replace(infinite.find("2e9"), 3, "1e999");
  expect_refused(infinite, "");
  expect_refused(std::string(100'000, ' ') + kMachine, "");
  std::filesystem::remove(machine_);
  EXPECT_THAT(Refusal(Options()), StartsWith(machine_.string()));
  ASSERT_EQ(mkfifo(machine_.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(Options()), StartsWith(machine_.string()));
  // A name cannot control the terminal.
  std::filesystem::remove(machine_);
  WriteFile(machine_, with("name", "a\x1b[2Jb\nc"));
  EXPECT_THAT(Printed(Options()), HasSubstr("\na\\x1b[2Jb\\x0ac, 4 cores: "));
}

TEST_F(PlanTest, MeasuresThisMachineAndReadsWhatItWrote) {
  PlanOptions measure = Options(), given = Options();
  measure.machine.clear();
  measure.write_machine = given.machine = dir_.path() / "written";
  const std::string measured = Printed(measure);
  EXPECT_THAT(measured, HasSubstr(", 1 core: reads "));
  EXPECT_EQ(Printed(given), measured);
  const nlohmann::json json = nlohmann::json::parse(ReadFile(measure.write_machine));
  for (const char* rate :
       {"read_bytes_per_second", "float32_flop_per_second", "bfloat16_flop_per_second",
        "int8_flop_per_second", "int4_flop_per_second"}) {
    EXPECT_GT(json.at(rate).get<double>(), 1e6) << rate;
  }
  measure.write_machine = dir_.path() / "none" / "written";
  EXPECT_THAT(Refusal(measure), HasSubstr("none/written"));
}

// ---- A config alone --------------------------------------------------------------------------

// A model that is not served: 4 layers of 2 heads of 8, of which 2 slide.
constexpr const char* kOther = R"({
  "model_type": "other", "num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 2,
  "vocab_size": 256, "intermediate_size": 32, "max_position_embeddings": 512, "sliding_window": 64,
  "sliding_window_pattern": 2, "tie_word_embeddings": true
})";

TEST_F(PlanTest, AConfigAloneNeedsNoMemoryAndNoMachine) {
  PlanOptions options{.model = model_ / "config.json"};
  EXPECT_THAT(Printed(options),
              AllOf(StartsWith(options.model.string() + ": mha\nfloat32: 512 bytes a position = "
                                                        "2 layers x 2 x 8 heads x 4 x 4 bytes\n"),
                    Not(HasSubstr("tokens/s"))));
  WriteFile(model_ / "config.json", kOther);
  const std::string text = Printed(options);
  EXPECT_THAT(text, AllOf(StartsWith(options.model.string() +
                                     ": not served: model_type is \"other\"\nfloat32: "),
                          HasSubstr("\nbfloat16: 256 bytes a position = 4 layers x 2 x 2 heads x 8 "
                                    "x 2 bytes, of which 128 only for the last 64 positions\n"),
                          HasSubstr("\n2 of 4 layers attend the last 64 positions and keep no"),
                          // 4 (4 x 16 x 16 + 3 x 16 x 32) + 256 x 16
                          HasSubstr("\n14,336 weights: 56.0 KiB in float32, 28.0 KiB in bfloat16, "
                                    "14.9 KiB in int8, 7.9 KiB in int4\n")));
  options.groups = 1;
  EXPECT_THAT(Refusal(options), StartsWith("--groups, --rank, "));
}

// With the names of its fields, of a directory or of the file.
TEST_F(PlanTest, MistralsOwnFormIsPlannedAsAnyConfig) {
  std::filesystem::remove(model_ / "config.json");
  WriteFile(model_ / "params.json", R"({
    "dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 32, "vocab_size": 256,
    "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "moe": {"num_experts": 4, "num_experts_per_tok": 2, "expert_hidden_dim": 8,
            "num_shared_experts": 1, "first_k_dense_replace": 1, "route_every_n": 2},
    "tied_embeddings": true
  })");
  // Attention of each layer: 16 x 2 x 12 + 16 x 12 + 8 x 2 x 16 + 2 x 8 x 16. Dense MLPs of
  // 3 x 16 x 32 in 3 layers; experts in 1: (4 + 1) x 3 x 16 x 8 + 4 x 16. The table: 256 x 16.
  for (const std::filesystem::path& path : {model_, model_ / "params.json"}) {
    EXPECT_THAT(Printed({.model = path}),
                AllOf(StartsWith(path.string() + ": not served: model_type is missing\nfloat32: "),
                      HasSubstr("\nbfloat16: 96 bytes a position = 4 layers x (8 + 4) x 2 bytes\n"),
                      HasSubstr("\n15,040 weights, 14,272 of them for a token: ")));
  }
}

// Memory for the weights in bfloat16 and ten sequences: 2 x 64 x 512 + 2 x 64 x 64 bytes each.
TEST_F(PlanTest, AnyConfigHasCapacityAndLeastTime) {
  WriteFile(model_ / "config.json", kOther);
  PlanOptions options = Options();
  options.memory = 28'672 + 10 * 73'728;
  const std::string text = Printed(options);
  EXPECT_THAT(Row(text, "sequences that fit"), ContainsRegex("^ +9 +10 +10 +10$"));
  // Arithmetic takes longer than reads. Products: 28,672 FLOP at 2 GFLOP/s; attention: 64 FLOP for
  // each of 2 x 512 + 2 x 64 rows at 1 GFLOP/s.
  const std::string speed = FormatDecimal(1e9 / (14'336 + 73'728), 1);
  EXPECT_THAT(Row(text, "tokens/s, 1 sequence"), HasSubstr("  " + speed + "  "));
  EXPECT_THAT(Row(text, "tokens/s, all that fit"), HasSubstr("  " + speed + "  "));
  EXPECT_THAT(Row(text, "tokens/s, 32 sequences"), ContainsRegex("^ +- +- +- +-$"));
  // FLOP that are not published: 28,672 bytes of weights, which ten share, and 73,728 of each
  // cache.
  options.machine = "m4-max";
  EXPECT_THAT(Row(Printed(options), "tokens/s, all that fit"),
              HasSubstr("  " + FormatDecimal(10 * 546e9 / (28'672 + 737'280), 1) + "  "));
  options.weights.layers = WeightFormat::kInt8;
  EXPECT_THAT(Row(Printed(options), "sequences that fit"), ContainsRegex("^ +10$"));
  options.tensor_parallel = 2;
  EXPECT_THAT(Printed(options), HasSubstr("bfloat16: 128 bytes a position = 4 layers x 2 x 1 head "
                                          "x 8 x 2 bytes, of which 64 only for the last 64 "
                                          "positions, on each of 2 devices\n"));
  nlohmann::json without = nlohmann::json::parse(kOther);
  without.erase("max_position_embeddings");
  WriteFile(model_ / "config.json", without.dump());
  EXPECT_THAT(Refusal(options), StartsWith("--context is required"));
  options.context = 1 << 24;
  EXPECT_THAT(Row(Printed(options), "sequences that fit"), EndsWith(" 0"));
  ++*options.context;
  EXPECT_THAT(Refusal(options), StartsWith("--context: 16777217; allowed: 1 to the 16777216"));
}

TEST_F(PlanTest, PublishedMachinesHaveASource) {
  PlanOptions options = Options();
  options.memory.reset();
  WriteFile(model_ / "config.json", kOther);
  for (const char* machine : {"a100", "h100", "h200", "l40s", "rtx4090"}) {
    options.machine = machine;
    EXPECT_THAT(Printed(options), ContainsRegex("NVIDIA .* \\(.*\\), GPU: reads ")) << machine;
  }
  options.memory = int64_t{1} << 30;
  for (const char* machine : {"epyc-9654", "xeon-8480"}) {
    options.machine = machine;
    EXPECT_THAT(Printed(options), ContainsRegex("\\(.*\\), [0-9]+ cores: reads ")) << machine;
  }
  for (const char* machine : {"m2-ultra", "m4-max"}) {
    options.machine = machine;
    EXPECT_THAT(Printed(options),
                AllOf(HasSubstr("FLOP/s are not published"), Not(ContainsRegex("inf|nan"))));
  }
  // A model that is served, as each kind.
  WriteFile(model_ / "config.json", checkpoint::ToJson(Wide(AttentionKind::kMha)));
  for (const char* machine : {"m4-max", "xeon-8480"}) {
    options.machine = machine;
    EXPECT_THAT(Printed(options),
                AllOf(HasSubstr("mla against mha"), Not(ContainsRegex("[^a-z]inf|nan"))));
  }
}

TEST_F(PlanTest, JsonHasTheNumbersOfTheConfig) {
  WriteFile(model_ / "config.json", kOther);
  PlanOptions options = Options();
  options.json = true;
  options.memory = 28'672 + 10 * 73'728;
  const nlohmann::json json = nlohmann::json::parse(Printed(options));
  EXPECT_EQ(json.at("model_type"), "other");
  EXPECT_EQ(json.at("served"), false);
  EXPECT_EQ(json.at("context"), 512);
  EXPECT_EQ(json.at("all_devices").at("parameters"), 14'336);
  const nlohmann::json& row = json.at("each_device").at("kv_cache").at(1);
  EXPECT_EQ(row.at("dtype"), "bfloat16");
  EXPECT_EQ(row.at("bytes_per_position"), 256);
  EXPECT_EQ(row.at("mha_bytes_per_position"), 256);
  EXPECT_EQ(row.at("sequence_bytes"), 73'728);
  EXPECT_EQ(json.at("all_devices").at("weights").at(1).at("sequences"), 10);
  options.tensor_parallel = 2;
  const nlohmann::json shared = nlohmann::json::parse(Printed(options));
  EXPECT_EQ(shared.at("devices"), 2);
  EXPECT_EQ(shared.at("each_device").at("kv_cache").at(1).at("bytes_per_position"), 128);
  EXPECT_EQ(shared.at("all_devices").at("weights").at(1).at("bytes"), 28'672);
}

// Values that other programs may serve are planned; values that none can serve are errors.
TEST_F(PlanTest, AConfigOfAFamilyThatIsServedIsCheckedByIt) {
  const auto with = [&](const nlohmann::json& fields) {
    nlohmann::json config = {
        {"model_type", "llama"},          {"num_hidden_layers", 4},   {"hidden_size", 16},
        {"num_attention_heads", 2},       {"vocab_size", 256},        {"intermediate_size", 32},
        {"max_position_embeddings", 512}, {"torch_dtype", "bfloat16"}};
    config.update(fields);
    WriteFile(model_ / "config.json", config.dump());
    return PlanOptions{.model = model_ / "config.json"};
  };
  const std::string file = model_ / "config.json";
  EXPECT_THAT(Printed(with(nlohmann::json::object())), StartsWith(file + ": mha\n"));
  EXPECT_THAT(Printed(with({{"hidden_act", "mish"}})),
              StartsWith(file + ": not served: hidden_act is \"mish\"\nfloat32: "));
  EXPECT_THAT(Printed(with({{"rope_scaling", {{"rope_type", "other"}}}})),
              HasSubstr(": not served: rope_scaling: rope_type is \"other\"\n"));
  EXPECT_THAT(Printed(with({{"quantization_config", {{"quant_method", "bitsandbytes"}}}})),
              HasSubstr(": not served: "));
  EXPECT_THAT(Printed(with({{"some_new_scale", 2}})), HasSubstr(": not served: some_new_scale"));
  nlohmann::json untyped = nlohmann::json::parse(kOther);
  untyped.erase("model_type");
  WriteFile(model_ / "config.json", untyped.dump());
  EXPECT_THAT(Printed({.model = file}), StartsWith(file + ": not served: model_type is missing\n"));
  EXPECT_THAT(Refusal(with({{"rms_norm_eps", "small"}})),
              StartsWith(file + ": rms_norm_eps is \"small\"; allowed: "));
  EXPECT_THAT(Refusal(with({{"rope_theta", 0}})),
              StartsWith(file + ": rope_theta is 0; allowed: "));
  EXPECT_THAT(Refusal(with({{"num_key_value_heads", 3}})),
              StartsWith(file + ": num_key_value_heads is 3; "));
}

// ---- On a GPU --------------------------------------------------------------------------------

// Machine file of a GPU; reading it needs no GPU.
constexpr const char* kGpu = R"({
  "name": "a GPU", "device": "cuda", "read_bytes_per_second": 2e9, "bfloat16_flop_per_second": 4e9
})";

TEST_F(PlanTest, MachineFilesOfGpus) {
  WriteFile(machine_, kGpu);
  const Machine machine = ReadMachine(machine_);
  EXPECT_EQ(machine.name, "a GPU");
  EXPECT_EQ(machine.device, DeviceKind::kCuda);
  EXPECT_EQ(machine.limits.read_bytes, 2e9);
  EXPECT_EQ(machine.limits.bfloat16_flops, 4e9);
  const std::filesystem::path written = dir_.path() / "written";
  WriteMachine(written, machine);
  EXPECT_EQ(nlohmann::json::parse(ReadFile(written)), nlohmann::json::parse(kGpu));

  const auto expect_refused = [&](const nlohmann::json& json, const std::string& why) {
    WriteFile(machine_, json.dump());
    EXPECT_EQ(Refusal(Options()), machine_.string() + ": " + why);
  };
  const auto with = [](const char* file, const std::string& field, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(file);
    json[field] = value;
    return json;
  };
  expect_refused(with(kGpu, "device", "gpu"), R"(device is "gpu"; allowed: "cpu", "cuda")");
  expect_refused(with(kGpu, "device", 0), R"(device is 0; allowed: "cpu", "cuda")");
  expect_refused(with(kGpu, "device", "cpu"), "cores is missing");
  expect_refused(with(kMachine, "device", "cuda"),
                 "cores is not a field that is known (value 4); supported: without it");
  expect_refused(
      with(kGpu, "int8_flop_per_second", 1),
      "int8_flop_per_second is not a field that is known (value 1); supported: without it");
  for (const char* rate : {"read_bytes_per_second", "bfloat16_flop_per_second"}) {
    nlohmann::json without = nlohmann::json::parse(kGpu);
    without.erase(rate);
    expect_refused(without, std::string(rate) + " is missing");
    expect_refused(with(kGpu, rate, 0.5), std::string(rate) + " is 0.5; allowed: 1 and more");
  }
}

TEST_F(PlanTest, AGpuServesNothingButBFloat16) {
  WriteFile(machine_, kGpu);
  const auto expect_refused = [&](const auto& set, const std::string& why) {
    PlanOptions options = Options();
    set(options);
    EXPECT_EQ(Refusal(options), why + "; allowed on a GPU: bfloat16");
  };
  expect_refused([](PlanOptions& o) { o.weights.layers = WeightFormat::kInt8; }, "--dtype: int8");
  expect_refused([](PlanOptions& o) { o.weights.embeddings = WeightFormat::kFloat32; },
                 "--embedding-dtype: float32");
  expect_refused([](PlanOptions& o) { o.weights.experts = WeightFormat::kInt4; },
                 "--expert-dtype: int4");
  expect_refused([](PlanOptions& o) { o.cache = CacheFormat::kInt8; }, "--kv-cache-dtype: int8");
}

TEST_F(PlanTest, RefusesGpusThatAreNotThere) {
  std::string allowed = "cpu";
  for (size_t i = 0; i < CudaDevices().size(); ++i) allowed += ", cuda:" + std::to_string(i);
  PlanOptions options = Options();
  options.machine.clear();
  for (const char* device : {"gpu", "cuda:", "cuda:-1", "cuda:999", "cuda:0x"}) {
    options.device = device;
    EXPECT_THAT(Refusal(options), AllOf(StartsWith("--device: " + options.device + " is not "),
                                        EndsWith("; allowed: " + allowed)));
  }
  if (!CudaDevices().empty()) return;
  options.device = "cuda";
  EXPECT_EQ(Refusal(options),
            "--device: cuda is not available (" + WhyNoCudaDevice() + "); allowed: cpu");
}

TEST_F(PlanTest, MeasuresTheGpuAndReadsWhatItWrote) {
  if (CudaDevices().empty()) GTEST_SKIP() << WhyNoCudaDevice();
  PlanOptions measure = Options(), given = Options();
  measure.machine.clear();
  measure.device = "cuda";
  measure.write_machine = given.machine = dir_.path() / "written";
  const std::string measured = Printed(measure);
  EXPECT_THAT(measured, HasSubstr(CudaDevices()[0].name + ", GPU: a copy reads and writes "));
  EXPECT_EQ(Printed(given), measured);
  measure.memory.reset();
  EXPECT_THAT(Printed(measure), HasSubstr("of the GPU's memory; sequences of 64 positions\n"));
}

// Only a build with CUDA counts the bytes that a model takes on a GPU.
bool CountsGpuBytes() {
  try {
    CountCudaModelBytes(SmallModel(AttentionKind::kMha), {});
    return true;
  } catch (const LoadError&) {
    return false;
  }
}

KindPlan PlanOnGpu(const ModelConfig& config, int64_t memory, int64_t context) {
  return PlanKind(config, WeightFormat::kBFloat16, CacheFormat::kBFloat16, memory, context,
                  DeviceKind::kCuda);
}

// The matrices of Wide(kMha): D = 32, H = 8, d = 4, intermediate size 43, two layers, 258 tokens.
// The terms are q, k and v; o; the MLP; the output matrix.
constexpr int64_t kMhaElements = 2 * (96 * 32 + 32 * 32 + 3 * 43 * 32) + 258 * 32;
// The same as MLA of rank 8: queries and latent; W_UK and W_UV; o; the MLP; the output matrix.
constexpr int64_t kMlaElements = 2 * (40 * 32 + 2 * 8 * 4 * 8 + 32 * 32 + 3 * 43 * 32) + 258 * 32;
// The embedding in bfloat16; five norms and the table of positions in float32.
constexpr int64_t kOtherBytes = 2 * 258 * 32 + 4 * 5 * 32 + 4 * 64 * 32;

class GpuPlanTest : public PlanTest {
 protected:
  void SetUp() override {
    if (!CountsGpuBytes()) GTEST_SKIP() << WhyNoCudaDevice();
    PlanTest::SetUp();
    WriteFile(machine_, kGpu);
  }
};

TEST_F(GpuPlanTest, BytesAreTheCudaBackends) {
  for (const auto& [name, config] : Configs()) {
    SCOPED_TRACE(name);
    constexpr int64_t kMemory = int64_t{1} << 32;
    const CudaModelBytes bytes = CountCudaModelBytes(config, {.max_step_tokens = 2048});
    const KindPlan plan = PlanOnGpu(config, kMemory, 33);
    EXPECT_EQ(plan.cost.weight_bytes, bytes.weights);
    EXPECT_EQ(plan.server_bytes, bytes.workspace);
    EXPECT_EQ(plan.cache_bytes, kMemory - bytes.weights - bytes.workspace);
    EXPECT_EQ(plan.prompt_bytes, 0);
    EXPECT_FALSE(plan.info.expand_from);
    int64_t elements = config.vocab_size * config.hidden_size;
    int64_t floats = 0, of_experts = 0;  // routers and gates; one expert of each layer
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      const CudaLayerWeights layer = LayerShapes(config, i);
      for (const CudaMatrix* matrix : {&layer.in, &layer.query_up, &layer.uk, &layer.uv, &layer.o,
                                       &layer.mlp_in, &layer.mlp_down}) {
        elements += matrix->outputs * matrix->inputs;
      }
      floats += layer.router.size + layer.shared_gate.size;
      if (config.HasExperts(i)) of_experts += DeviceBytes(ExpertShapes(config)) / 2;
    }
    const int64_t choices = config.experts.num_experts_per_tok;
    EXPECT_EQ(plan.cost.read_bytes, 2 * elements + 4 * floats);
    EXPECT_EQ(plan.cost.expert_bytes, 2 * of_experts);
    EXPECT_EQ(plan.cost.product_flops, 2 * (elements + floats + choices * of_experts));
  }
}

TEST_F(GpuPlanTest, MemoryHoldsWeightsWorkspaceAndCache) {
  const ModelConfig config = Wide(AttentionKind::kMha);
  constexpr int64_t kWeights = 2 * kMhaElements + kOtherBytes;
  const int64_t workspace = CountCudaModelBytes(config, {.max_step_tokens = 2048}).workspace;
  constexpr int64_t kBlock = 16 * 2 * 2 * 32 * 2;  // positions, layers, keys and values, D, bytes
  // A sequence of 60 positions has four blocks.
  KindPlan plan = PlanOnGpu(config, kWeights + workspace + 9 * kBlock, 60);
  EXPECT_EQ(plan.cost.weight_bytes, kWeights);
  EXPECT_EQ(plan.info.blocks, 9);
  EXPECT_EQ(plan.sequences, 2);
  plan = PlanOnGpu(config, kWeights + workspace + 8 * kBlock - 1, 60);
  EXPECT_EQ(plan.info.blocks, 7);
  EXPECT_EQ(plan.sequences, 1);
  PlanOptions options = Options();
  options.memory = kWeights + workspace + kBlock - 1;
  EXPECT_EQ(Refusal(options), "--memory: " + std::to_string(*options.memory) +
                                  " bytes do not suffice for mha: weights take " +
                                  std::to_string(kWeights) + ", the workspace " +
                                  std::to_string(workspace) +
                                  ", expanded prompts 0 and a block of the cache 4096");
}

// Products and attention both compute at the rate of bfloat16.
TEST_F(GpuPlanTest, PrintsWhatIsPlanned) {
  PlanOptions options = Options();
  options.context = 60;
  options.rank = 8;
  const std::string text = Printed(options);
  EXPECT_THAT(text,
              AllOf(StartsWith(model_.string() + ": mha, weights in bfloat16, cache in bfloat16\n"),
                    HasSubstr("\n1.0 GiB of the GPU's memory; sequences of 60 positions\n"
                              "a GPU, GPU: a copy reads and writes 2.0 GB/s, 4.0 GFLOP/s in "
                              "bfloat16\n"),
                    Not(HasSubstr("expanded prompts"))));
  EXPECT_THAT(Row(text, "weights"), ContainsRegex("73.0 KiB .* 68.0 KiB"));
  EXPECT_THAT(Row(text, "workspace"), HasSubstr("MiB"));
  EXPECT_THAT(Row(text, "attention is bound by"), ContainsRegex("memory .* arithmetic"));
  // With eight sequences MHA's products take 8 * 2 * kMhaElements FLOP / 4e9 = 98.816 us, and its
  // attention 480 positions * 256 bytes / 2e9 = 61.44 us. MLA's products take 88.576 us, and its
  // attention 480 positions * 512 FLOP / 4e9 = 61.44 us.
  EXPECT_EQ(2 * 8 * kMhaElements, 395'264);
  EXPECT_EQ(2 * 8 * kMlaElements, 354'304);
  EXPECT_THAT(Row(text, "tokens/s, 8 sequences"), ContainsRegex(" 49,920.1 .* 53,327.6"));
  // One sequence is bound by its 49,408 bytes of weights, 24.704 us, and by 7.68 us of cache.
  EXPECT_THAT(Row(text, "tokens/s, 1 sequence"), ContainsRegex(" 30,879.4 "));
}

TEST_F(GpuPlanTest, NoSizeOverflows) {
  ModelConfig config = Wide(AttentionKind::kMla);
  config.num_attention_heads = config.num_key_value_heads = config.hidden_size = 256;
  config.head_dim = 1 << 20;
  config.kv_lora_rank.assign(1024, 1 << 20);
  config.num_hidden_layers = 1024;
  config.max_position_embeddings = 1 << 24;
  WriteFile(model_ / "config.json", checkpoint::ToJson(config));
  PlanOptions options = Options();
  options.memory = int64_t{20'000} << 40;
  const std::string text = Printed(options);
  EXPECT_THAT(text.substr(text.find('\n')), Not(ContainsRegex("-[0-9]|nan|inf")));
}

// ---- The program -----------------------------------------------------------------------------

class PlanProgramTest : public PlanTest {
 protected:
  Process::Result Run(const std::vector<std::string>& arguments) const {
    std::vector<std::string> argv = {TRIPTYCH_MODEL_PROGRAM, "plan"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return Process(argv, {}).Wait();
  }
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& why) const {
    const Process::Result result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("triptych-model: "), HasSubstr(why)));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
};

TEST_F(PlanProgramTest, TakesItsFlags) {
  const Process::Result result =
      Run({"--model", model_, "--memory", "1GiB", "--context", "60", "--groups", "2", "--rank", "8",
           "--dtype", "int8", "--kv-cache-dtype", "int8", "--machine", machine_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  PlanOptions options = Options();
  options.context = 60;
  options.groups = 2;
  options.rank = 8;
  options.weights.layers = WeightFormat::kInt8;
  options.cache = CacheFormat::kInt8;
  EXPECT_EQ(result.out, Printed(options));
}

// Mistakes that the parser finds, and one that a plan finds.
TEST_F(PlanProgramTest, MistakesAreOneLineAndStatusTwo) {
  ExpectRefused({"--memory", "1GiB"}, "--model is required");
  ExpectRefused({"--model", model_, "--machine", "abacus"}, "is not a file; allowed: a file, a100");
  ExpectRefused({"--model", model_, "--write-machine", dir_.path() / "out"},
                "--write-machine: nothing is measured");
  ExpectRefused({"--model", model_, "--tensor-parallel", "0"}, "--tensor-parallel");
  ExpectRefused({"--model", model_, "--tensor-parallel", "3"},
                "--tensor-parallel: 3 devices cannot share 8 heads");
  ExpectRefused({"--model", dir_.path() / "none", "--memory", "1GiB"}, "none");
  for (const char* memory : {"-1", "25%"}) {
    ExpectRefused({"--model", model_, "--memory", memory}, "is not a size; allowed: bytes");
  }
  ExpectRefused({"--model", model_, "--memory", "1GiB", "--dtype", "float64"}, "--dtype");
  ExpectRefused({"--model", model_, "--memory", "1GiB", "--context", "99999999999999999999"},
                "--context");
  ExpectRefused({"--model", model_, "--memory", "1GiB", "--machine", machine_, "--write-machine",
                 dir_.path() / "out"},
                "excludes");
  ExpectRefused({"--model", model_, "--memory", "90MiB"},
                "--memory: 94371840 bytes do not suffice for mha: weights take ");
  ExpectRefused({"--model", model_, "--device", "cuda", "--machine", machine_}, "excludes");
  ExpectRefused({"--model", model_, "--memory", "1GiB", "--device", "gpu"},
                "--device: gpu is not available");
}

}  // namespace
}  // namespace triptych::tools::plan_test
