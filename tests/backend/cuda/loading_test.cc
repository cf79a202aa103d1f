// Tests of loading models on the emulated GPU, and of the server's options for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/loading/loaded_model.h"
#include "server/core/model_info.h"
#include "server/grpc/wire.h"
#include "server/http/models.h"
#include "server/options.h"
#include "tests/backend/cuda/emulation/emulation.h"
#include "tests/backend/cuda/refused_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/temp_dir.h"

namespace triptych::loading_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::filesystem::path ShippedModel(const std::string& kind) {
  return std::filesystem::path(TRIPTYCH_MODELS_DIR) / ("shakespeare-" + kind);
}

LoadOptions OnGpuFrom(const std::filesystem::path& model) {
  return {.name = model.filename(),
          .checkpoint = checkpoint::OpenCheckpoint(model),
          .backend = {.kv_cache_bytes = int64_t{1} << 22},
          .device = "cuda"};
}
LoadOptions OnGpu(const std::string& kind) { return OnGpuFrom(ShippedModel(kind)); }

// A copy of a shipped model, with a window of 16 positions in every second layer.
void WriteWindowedModel(const std::filesystem::path& directory) {
  std::filesystem::copy(ShippedModel("gqa"), directory, std::filesystem::copy_options::recursive);
  Json config = Json::parse(std::ifstream(directory / "config.json"));
  config["sliding_window"] = 16;
  for (int64_t i = 0; i < config.at("num_hidden_layers").get<int64_t>(); ++i) {
    config["layer_types"].push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  std::ofstream(directory / "config.json") << config;
}

// A greedy request and the two likeliest tokens at each of its choices.
std::shared_ptr<RecordingSink> Generate(const LoadOptions& options, const std::string& prompt) {
  const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(1));
  serving::Request request;
  request.id = "1";
  request.prompt = {model.tokenizer->begin_token().value()};
  for (const int32_t token : model.tokenizer->Encode(prompt)) request.prompt.push_back(token);
  request.max_new_tokens = 64;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.logprobs = 2;
  const auto sink = std::make_shared<RecordingSink>();
  model.engine->Submit(std::move(request), sink);
  while (model.engine->Step()) {
  }
  return sink;
}

void ExpectTheTextOfTheCpu(const LoadOptions& on_gpu, const std::string& prompt) {
  LoadOptions on_cpu = on_gpu;
  on_cpu.device = "cpu";
  on_cpu.weights.layers = WeightFormat::kBFloat16;
  const auto cpu = Generate(on_cpu, prompt), gpu = Generate(on_gpu, prompt);
  ASSERT_EQ(gpu->tokens.size(), 64);
  const auto differs = std::mismatch(gpu->tokens.begin(), gpu->tokens.end(), cpu->tokens.begin());
  const auto first = differs.first - gpu->tokens.begin();
  if (first == 64) return;
  // Both round activations to bfloat16, at different points.
  const std::vector<serving::TokenLogprob>& top = cpu->logprobs[first].top;
  EXPECT_LT(top[0].logprob - top[1].logprob, 0.1) << "token " << first;
}

TEST(HostedOnGpu, ShippedModelsWriteWhatTheyWriteOnTheCpu) {
  for (const std::string kind : {"mha", "gqa", "mla"}) {
    SCOPED_TRACE(kind);
    ExpectTheTextOfTheCpu(OnGpu(kind), "ROMEO:\n");
  }
}

// The engine gives blocks back that the window has left.
TEST(HostedOnGpu, AModelWithWindowsWritesWhatItWritesOnTheCpu) {
  const TempDir directory;
  WriteWindowedModel(directory.path());
  ExpectTheTextOfTheCpu(OnGpuFrom(directory.path()),
                        "ROMEO:\nBut soft, what light through yonder window breaks?\n");
}

TEST(HostedOnGpu, SaysWhatItHolds) {
  const LoadOptions options = OnGpu("mla");
  const LoadedBytes counted = CountLoadedBytes(options);
  const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(1));
  EXPECT_EQ(model.weight_formats, WeightFormats(WeightFormat::kBFloat16));
  EXPECT_EQ(model.cache_format, CacheFormat::kBFloat16);
  ASSERT_TRUE(model.info.device_memory.has_value());
  EXPECT_THAT(model.info.device_memory->device, HasSubstr("cuda:0, "));
  EXPECT_EQ(model.info.device_memory->weight_bytes, counted.weights);
  EXPECT_EQ(model.info.device_memory->workspace_bytes, counted.workspace);
  EXPECT_EQ(model.info.cache_bytes, model.info.blocks * model.info.geometry.BlockBytes());

  const server::ModelInfo told{static_cast<const serving::ServedModel&>(model), ""};
  const v1::Model message = server::ToProto(told, /*special_tokens=*/false);
  EXPECT_EQ(message.device_memory().device(), model.info.device_memory->device);
  EXPECT_EQ(message.device_memory().weight_bytes(), counted.weights);
  EXPECT_EQ(message.device_memory().workspace_bytes(), counted.workspace);
  EXPECT_EQ(message.device_memory().cache_bytes(), model.info.cache_bytes);
  const Json json = Json::parse(server::ModelJson(told, 0).dump());
  EXPECT_EQ(json.at("device"), model.info.device_memory->device);
  EXPECT_EQ(json.at("device_memory"), Json({{"weight_bytes", counted.weights},
                                            {"cache_bytes", model.info.cache_bytes},
                                            {"workspace_bytes", counted.workspace}}));
}

TEST(HostedOnGpu, IsRefusedInOneLineWhereMemoryIsShort) {
  const emulation::LimitsScope limits({.memory_bytes = int64_t{40} << 20});
  EXPECT_THAT([] { LoadModel(OnGpu("mha"), std::make_shared<kernels::KernelContext>(1)); },
              ThrowsMessage<LoadError>(HasSubstr("not enough memory on cuda:0 for weights of ")));
}

TEST(HostedOnGpu, OtherFormatsAndDevicesAreRefused) {
  const auto refuse = [](const std::string& device, std::optional<WeightFormat> weights,
                         const std::string& message, std::optional<CacheFormat> cache = {}) {
    EXPECT_THAT([&] { CheckDevice(device, {.layers = weights}, cache); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  EXPECT_NO_THROW(CheckDevice("cuda:0", {}, {}));
  EXPECT_NO_THROW(CheckDevice("cuda", {.layers = WeightFormat::kBFloat16}, CacheFormat::kBFloat16));
  refuse("cuda:1", {}, "cuda:1 is not available; allowed: cpu, cuda:0");
  refuse("cuda:", {}, "cuda: is not available; allowed: cpu, cuda:0");
  refuse("cuda:-1", {}, "cuda:-1 is not available; allowed: cpu, cuda:0");
  refuse("cuda", WeightFormat::kInt8, "cuda does not serve int8 weights; allowed: cpu");
  refuse("cuda", {}, "cuda does not serve a cache in int8; allowed: cpu", CacheFormat::kInt8);
  // LibTorch does not see the emulated GPU.
  const std::string no_float32 =
      "cuda does not serve float32, which needs a LibTorch that has CUDA; allowed: bfloat16";
  refuse("cuda", WeightFormat::kFloat32, no_float32);
  refuse("cuda", {}, no_float32, CacheFormat::kFloat32);
}

// --- The server's options

class GpuOptionsTest : public testing::Test {
 protected:
  // The exit status, if the options are refused.
  std::optional<int> Parse(std::vector<const char*> flags, server::ServerOptions* options) {
    const std::string model = "mla=" + ShippedModel("mla").string();
    flags.insert(flags.begin(), {"triptych-server", "--model", model.c_str()});
    return server::ParseServerOptions(static_cast<int>(flags.size()), flags.data(), options,
                                      {.cpus = 1, .memory_bytes = 1 << 30});
  }

  server::ServerOptions Parse(const std::vector<const char*>& flags) {
    server::ServerOptions options;
    EXPECT_EQ(Parse(flags, &options), std::nullopt);
    return options;
  }

  const emulation::LimitsScope limits_{{.memory_bytes = int64_t{10} << 30}};
};

TEST_F(GpuOptionsTest, AutoIsTheGpuIfItServesTheFormats) {
  const server::ServerOptions gpu = Parse({"--device", "auto"});
  EXPECT_EQ(gpu.device, "cuda:0");
  EXPECT_EQ(gpu.why_cpu, "");
  EXPECT_EQ(Parse({"--device", "auto", "--kv-cache-dtype", "int8"}).device, "cpu");
  const server::ServerOptions cpu = Parse({"--device", "auto", "--dtype", "int8"});
  EXPECT_EQ(cpu.device, "cpu");
  EXPECT_EQ(cpu.why_cpu, "cuda:0 does not serve int8 weights; allowed: cpu");
}

TEST_F(GpuOptionsTest, AutoIsTheGpuForAModelWithWindows) {
  const TempDir directory;
  WriteWindowedModel(directory.path());
  const std::string windowed = "windowed=" + directory.path().string();
  const server::ServerOptions gpu = Parse({"--device", "auto", "--model", windowed.c_str()});
  EXPECT_EQ(gpu.device, "cuda:0");
  EXPECT_EQ(gpu.why_cpu, "");
}

TEST_F(GpuOptionsTest, AutoIsTheCpuIfTheGpuDoesNotServeAModel) {
  const TempDir directory;
  WriteRefusedModel(directory.path());
  const std::string refused = "refused=" + directory.path().string();
  const server::ServerOptions cpu = Parse({"--device", "auto", "--model", refused.c_str()});
  EXPECT_EQ(cpu.device, "cpu");
  EXPECT_THAT(cpu.why_cpu, HasSubstr(std::string("model refused: ") + kRefusal));
}

TEST_F(GpuOptionsTest, AutoIsTheCpuForDraftModels) {
  const std::string other = "other=" + ShippedModel("mla").string();
  const std::string with_draft = other + ",draft-model=mla";
  const std::vector<std::vector<const char*>> models = {
      {"--model", other.c_str(), "--draft-model", "other"}, {"--model", with_draft.c_str()}};
  for (std::vector<const char*> flags : models) {
    flags.insert(flags.end(), {"--device", "auto"});
    const server::ServerOptions cpu = Parse(flags);
    EXPECT_EQ(cpu.device, "cpu");
    EXPECT_EQ(cpu.why_cpu, "cuda:0 does not serve draft models; allowed: cpu");
    flags.back() = "cuda";
    server::ServerOptions refused;
    testing::internal::CaptureStderr();
    EXPECT_NE(Parse(flags, &refused), std::nullopt);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("--device: cuda does not serve draft models; allowed: cpu"));
  }
}

TEST_F(GpuOptionsTest, AutoIsTheCpuForStepsThatAreTooLong) {
  EXPECT_EQ(Parse({"--device", "auto", "--max-batch-tokens", "32768"}).device, "cuda:0");
  const server::ServerOptions cpu = Parse({"--device", "auto", "--max-batch-tokens", "32769"});
  EXPECT_EQ(cpu.device, "cpu");
  EXPECT_EQ(
      cpu.why_cpu,
      "model mla: a step of 32769 tokens (--max-batch-tokens) is too long for the CUDA backend; "
      "allowed: at most 32768; --device cpu serves it");
}

TEST_F(GpuOptionsTest, CachesAreSharesOfTheGpusMemory) {
  const server::ServerOptions options = Parse({"--device", "cuda"});
  ASSERT_TRUE(options.kv_cache_share.has_value());
  EXPECT_NEAR(*options.kv_cache_share, 0.9, 1e-6);
  EXPECT_EQ(options.engine.max_batch_tokens, 2048);
  const server::ServerOptions half = Parse({"--device", "cuda", "--kv-cache-bytes", "50%"});
  EXPECT_NEAR(half.kv_cache_share.value_or(0), 0.5, 1e-6);
  const server::ServerOptions given =
      Parse({"--device", "cuda", "--kv-cache-bytes", "3GiB", "--max-batch-tokens", "512"});
  EXPECT_EQ(given.kv_cache_share, std::nullopt);
  EXPECT_EQ(given.kv_cache_bytes, int64_t{3} << 30);  // more than the host has
  EXPECT_EQ(given.engine.max_batch_tokens, 512);
}

}  // namespace
}  // namespace triptych::loading_test
