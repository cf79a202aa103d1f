// Checkpoints in the published form, as the engine loads and serves them, against the families'
// own definitions.
#include "tests/support/published_models.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/base/error.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/loading/loaded_model.h"
#include "engine/text/text_stream.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/published_configs.h"
#include "tests/support/random_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/serving.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::published_models_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Products and sums in another order, in float64.
constexpr double kRounding64 = 1e-11;
// The same in float32, of logits of about 1 and a few layers.
constexpr double kRounding32 = 5e-5;

class PublishedModelTest : public ::testing::TestWithParam<published::NamedConfig> {
 protected:
  static constexpr int64_t kLength = 24;

  void SetUp() override {
    config_ = GetParam().config;
    tensors_ = published::RandomTensors(config_, 1);
    published::WriteCheckpoint(directory_.path(), config_, tensors_);
    const int64_t vocab = config_.at("vocab_size");
    for (int64_t i = 0; i < kLength; ++i) ids_.push_back((7 * i * i + 3 * i + 1) % vocab);
  }

  Checkpoint Load() const { return LoadCheckpoint(directory_.path(), TensorFormat::kFloat32); }
  at::Tensor Expected() const { return published::Logits(config_, tensors_, ids_); }
  at::Tensor Forward(const Checkpoint& model) const {
    return Decoder(model.config, model.weights, ComputeType::kFloat64)
        .Forward(ToTensor(ids_).unsqueeze(0))[0];
  }
  // The sequence in three steps over a paged cache, all but its last tokens a prompt.
  at::Tensor Serve(const Checkpoint& model, ComputeType compute,
                   std::optional<int64_t> expand_from) const {
    StepRunner runner({.config = model.config,
                       .weights = model.weights,
                       .compute = compute,
                       .block_positions = 5,
                       .expand_from = expand_from},
                      1, /*prompt=*/kLength - 3);
    const auto part = [&](int64_t begin, int64_t end) {
      return std::vector<int64_t>(ids_.begin() + begin, ids_.begin() + end);
    };
    return at::cat({runner.Step({{0, part(0, 11)}}), runner.Step({{0, part(11, kLength - 1)}}),
                    runner.Step({{0, part(kLength - 1, kLength)}})});
  }

  TempDir directory_;
  Json config_;
  published::Tensors tensors_;
  std::vector<int64_t> ids_;
};

TEST_P(PublishedModelTest, IsWhatItsFamilyDefines) {
  const at::Tensor expected = Expected();
  const Checkpoint model = Load();
  EXPECT_LE(RelativeError(Forward(model), expected), kRounding64);
  EXPECT_LE(RelativeError(Serve(model, ComputeType::kFloat64, kNeverExpand), expected),
            kRounding64);
  EXPECT_LE(RelativeError(Serve(model, ComputeType::kFloat32, kNeverExpand), expected),
            kRounding32);
  if (model.config.attention == AttentionKind::kMla) {
    EXPECT_LE(RelativeError(Serve(model, ComputeType::kFloat32, 4), expected), kRounding32);
  }
}

TEST_P(PublishedModelTest, IsTheSameModelInTriptychsOwnForm) {
  const Checkpoint model = Load();
  const TempDir own;
  SaveCheckpoint(own.path() / "model", model.config, model.weights);
  const Checkpoint again = LoadCheckpoint(own.path() / "model", TensorFormat::kFloat32);
  EXPECT_EQ(checkpoint::ToJson(again.config), checkpoint::ToJson(model.config));
  EXPECT_LE(RelativeError(Forward(again), Expected()), kRounding64);
}

// No shard has all of a layer.
TEST_P(PublishedModelTest, MayComeInShardsAndHalfPrecision) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const published::Tensors tensors = published::RandomTensors(config_, 2, dtype);
    const TempDir directory;
    published::WriteCheckpoint(directory.path(), config_, tensors, /*shards=*/3);
    const Checkpoint model = LoadCheckpoint(directory.path(), TensorFormat::kFloat32);
    EXPECT_LE(RelativeError(Forward(model), published::Logits(config_, tensors, ids_)),
              kRounding64);
  }
}

// All of keys and values in one latent, and rotated keys next to it: biases, norms and scales
// stay what they were. GPT-2, whose positions rotate nothing, has a latent of D for a row of 2 D.
TEST_P(PublishedModelTest, ConvertsToLatentsWithoutLoss) {
  Checkpoint model = Load();
  if (model.config.attention == AttentionKind::kMla || model.config.qk_norm_all_heads ||
      (model.config.qk_norm && model.config.attention_bias) || model.config.RotatesInPart() ||
      model.config.attn_logit_softcapping > 0 || model.config.rope_local_base_freq > 0) {
    EXPECT_THROW(Convert(model, {.attention = AttentionKind::kMla}, "model"), LoadError);
    return;
  }
  model.weights = Cast(model.weights, at::kDouble);
  const Checkpoint mla = Convert(model, {.attention = AttentionKind::kMla}, "model");
  if (model.config.HasWindows()) {  // latents have none: the context is the window
    EXPECT_EQ(mla.config.max_position_embeddings, model.config.sliding_window);
    EXPECT_EQ(mla.config.sliding_window, 0);
    ids_.resize(static_cast<size_t>(model.config.sliding_window));
    EXPECT_LE(RelativeError(Forward(mla), Expected()), kRounding64);
    return;
  }
  if (config_.at("model_type") == "gpt2") {
    EXPECT_THAT(mla.config.kv_lora_rank, Each(model.config.hidden_size));
    EXPECT_EQ(mla.config.qk_rope_head_dim, 0);
    EXPECT_EQ(2 * ElementsPerPosition(mla.config), ElementsPerPosition(model.config));
  }
  const at::Tensor expected = Expected();
  EXPECT_LE(RelativeError(Forward(mla), expected), kRounding64);
  EXPECT_LE(RelativeError(Serve(mla, ComputeType::kFloat64, kNeverExpand), expected), kRounding64);
  // As it is stored, loaded and served.
  const TempDir own;
  SaveCheckpoint(own.path() / "model", mla.config, mla.weights);
  const Checkpoint again = LoadCheckpoint(own.path() / "model", TensorFormat::kFloat32);
  EXPECT_EQ(checkpoint::ToJson(again.config), checkpoint::ToJson(mla.config));
  for (const std::optional<int64_t> expand_from : {kNeverExpand, int64_t{4}}) {
    EXPECT_LE(RelativeError(Serve(again, ComputeType::kFloat32, expand_from), expected),
              kRounding32);
  }
}

TEST_P(PublishedModelTest, OtherTensorsOfOldFilesAreIgnored) {
  published::AddBuffers(config_, tensors_);
  published::WriteCheckpoint(directory_.path(), config_, tensors_);
  EXPECT_LE(RelativeError(Forward(Load()), Expected()), kRounding64);
  if (config_.at("model_type") != "gpt2") return;
  published::WriteCheckpoint(directory_.path(), config_, published::WithPrefix(tensors_));
  EXPECT_LE(RelativeError(Forward(Load()), Expected()), kRounding64);
}

// A copy of the embedding is not kept; a head that differs is the head, as in transformers 5.
TEST_P(PublishedModelTest, AHeadNextToATiedOneCountsIfItDiffers) {
  if (!Load().config.tie_word_embeddings) return;
  const Json tied = config_;
  const auto embedding =
      tensors_.at(tied.at("model_type") == "gpt2" ? "wte.weight" : "model.embed_tokens.weight");
  for (const at::Tensor& head : {embedding, at::zeros({2, 3}, at::kFloat)}) {
    published::Tensors more = tensors_;
    more["lm_head.weight"] = head;
    published::WriteCheckpoint(directory_.path(), tied, more);
    EXPECT_TRUE(Load().config.tie_word_embeddings);
    EXPECT_LE(RelativeError(Forward(Load()), Expected()), kRounding64);
  }
  tensors_["lm_head.weight"] = embedding.flip({0, 1}).contiguous();
  published::WriteCheckpoint(directory_.path(), tied, tensors_);
  config_["tie_word_embeddings"] = false;
  EXPECT_LE(RelativeError(Forward(Load()), Expected()), kRounding64);
}

TEST_P(PublishedModelTest, ItsCountsAreThoseOfItsTensors) {
  int64_t elements = 0;
  for (const auto& [name, tensor] : tensors_) elements += tensor.numel();
  EXPECT_EQ(ParameterCount(Load().config), elements);
}

TEST_P(PublishedModelTest, FieldsThatAreNotKnownAreRefused) {
  config_["some_new_scale"] = 2;
  published::WriteCheckpoint(directory_.path(), config_, tensors_);
  try {
    Load();
    FAIL();
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr("config.json: some_new_scale is not a field that is known"));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, PublishedModelTest,
                         ::testing::ValuesIn(published::EveryFamily()),
                         [](const auto& named) { return named.param.name; });

Json ConfigNamed(const std::string& name) {
  const std::vector<published::NamedConfig> all = published::EveryFamily();
  return std::find_if(all.begin(), all.end(), [&](const auto& it) { return it.name == name; })
      ->config;
}

// The numbers are from the publishers or their files.
TEST(PublishedSizesTest, HaveThePublishedNumberOfParameters) {
  for (const auto& [config, parameters] :
       std::vector<std::pair<Json, int64_t>>{{published::Llama2(), 6'738'415'616},
                                             {published::Llama31(), 8'030'261'248},
                                             {published::Llama32(), 1'235'814'400},
                                             {published::TinyLlama(), 1'100'048'384},
                                             {published::SmolLm2(), 134'515'008},
                                             {published::Mistral(), 7'241'732'096},
                                             {published::Mistral03(), 7'248'023'552},
                                             {published::Qwen25(), 494'032'768},
                                             {published::Qwen3(), 596'049'920},
                                             {published::Gpt2(), 124'439'808},
                                             {published::Gpt2Xl(), 1'557'611'200},
                                             {published::Phi3Mini(), 3'821'079'552},
                                             {published::Granite(), 2'533'531'648},
                                             {published::SmolLm3(), 3'075'098'624},
                                             {published::Gemma(), 2'506'172'416},
                                             {published::Gemma2(), 2'614'341'888},
                                             {published::Gemma3(), 999'885'952},
                                             {published::Starcoder2(), 3'030'371'328},
                                             {published::StableLm2(), 1'644'515'328},
                                             {published::Olmo2(), 1'484'916'736},
                                             {published::Aya(), 8'028'033'024},
                                             {published::DeepSeekV2Lite(), 15'706'484'224},
                                             {published::DeepSeekV3(), 671'026'419'200},
                                             // Published without correction biases.
                                             {published::Glm47Flash(), 29'943'390'976 + 46 * 64},
                                             {published::Mixtral(), 46'702'792'704},
                                             {published::Olmoe(), 6'919'161'856},
                                             {published::Qwen15Moe(), 14'315'784'192},
                                             {published::Qwen3Moe(), 30'532'122'624},
                                             {published::GraniteMoe(), 1'334'628'352}}) {
    EXPECT_EQ(ParameterCount(checkpoint::ParseModelConfig(config.dump(), "config.json")),
              parameters)
        << config;
  }
}

// A directory as it is published, text in and text out: as it is, and as the two other kinds.
TEST(PublishedHostingTest, ADirectoryIsServedAsEveryKind) {
  const Json config = published::With(ConfigNamed("Llama"), {{"vocab_size", 258}});
  const published::Tensors tensors = published::RandomTensors(config, 4);
  const TempDir directory;
  published::WriteCheckpoint(directory.path(), config, tensors, /*shards=*/2);
  WriteFile(directory.path() / "tokenizer.json", BeginAndEndJson().dump());
  const int64_t layers = config["num_hidden_layers"], width = config["hidden_size"];
  constexpr int64_t kNew = 12;

  // Token by token, by the family's definition.
  const std::vector<int64_t> prompt = {257, 'T', 'o', ' ', 'b', 'e'};
  std::vector<int64_t> ids = prompt;
  std::vector<int32_t> expected;
  for (int64_t i = 0; i < kNew; ++i) {
    const at::Tensor logits = published::Logits(config, tensors, ids)[-1];
    const auto [best, index] = logits.topk(2);
    ASSERT_GT((best[0] - best[1]).item<double>(), 5e-4)
        << "too close for float32: take another seed";
    ids.push_back(index[0].item<int64_t>());
    expected.push_back(static_cast<int32_t>(ids.back()));
  }

  const auto serve = [&](const std::optional<ConversionSpec>& conversion) {
    std::vector<int64_t> loaded;
    LoadOptions options{.name = "published",
                        .checkpoint = checkpoint::OpenCheckpoint(directory.path()),
                        .cache_format = CacheFormat::kFloat32,
                        .backend = {.kv_cache_bytes = int64_t{1} << 22},
                        .conversion = conversion};
    options.on_layer = [&](int64_t count, int64_t of_layers) {
      EXPECT_EQ(of_layers, layers);
      loaded.push_back(count);
    };
    const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(2));
    std::vector<int64_t> one_after_another(layers);
    std::iota(one_after_another.begin(), one_after_another.end(), 1);
    EXPECT_EQ(loaded, one_after_another);
    serving::Request request;
    request.id = std::string(1, '1');  // GCC 12 sees too long a copy in = "1"
    request.prompt = model.tokenizer->Encode("To be");
    request.prompt.insert(request.prompt.begin(), model.tokenizer->begin_token().value());
    request.max_new_tokens = kNew;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    const auto sink = std::make_shared<RecordingSink>();
    model.engine->Submit(std::move(request), sink);
    while (model.engine->Step()) {
    }
    EXPECT_EQ(sink->tokens.size(), static_cast<size_t>(kNew));
    EXPECT_EQ(sink->text, ToValidUtf8(model.tokenizer->Decode(sink->tokens)));
    return sink;
  };
  const auto row_elements = [&](const RecordingSink& sink) {
    const KvCacheUsage& usage = sink.completion.value().usage.kv_cache;
    EXPECT_EQ(usage.used_bytes, usage.positions * usage.bytes_per_position);
    return usage.bytes_per_position / static_cast<int64_t>(sizeof(float)) / layers;
  };
  const auto mha = serve({});
  EXPECT_EQ(mha->tokens, expected);
  EXPECT_EQ(row_elements(*mha), 2 * width);
  const auto mla = serve(ConversionSpec{.attention = AttentionKind::kMla});
  EXPECT_EQ(mla->tokens, expected);
  EXPECT_EQ(row_elements(*mla), 2 * width);  // all keys are decoupled ones, all values a latent
  const ConversionSpec to_gqa = {.attention = AttentionKind::kGqa, .groups = 2};
  const auto gqa = serve(to_gqa);
  EXPECT_EQ(row_elements(*gqa), width);
  const Checkpoint converted =
      Convert(LoadCheckpoint(directory.path(), TensorFormat::kFloat32), to_gqa, "published");
  std::vector<int64_t> sequence = prompt;
  sequence.insert(sequence.end(), gqa->tokens.begin(), gqa->tokens.end());
  const at::Tensor logits = Decoder(converted.config, converted.weights, ComputeType::kFloat64)
                                .Forward(ToTensor(sequence).unsqueeze(0))[0];
  for (size_t i = 0; i < gqa->tokens.size(); ++i) {
    const at::Tensor after = logits[static_cast<int64_t>(prompt.size() + i) - 1];
    EXPECT_LE((after.max() - after[gqa->tokens[i]]).item<double>(), 2 * kRounding32) << i;
  }
}

}  // namespace
}  // namespace triptych::published_models_test
