// Tests of the sources of an option's value: flag, environment, config file, and the process's
// resources.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <utility>
#include <vector>

#include "server/options.h"
#include "tests/support/temp_dir.h"

namespace triptych::server::option_sources_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

class OptionSourcesTest : public testing::Test {
 protected:
  ~OptionSourcesTest() override {
    for (const std::string& name : variables_) unsetenv(name.c_str());
  }

  // Sets a variable for this test only.
  void SetVariable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
    variables_.push_back(name);
  }

  // The parsed options, with one model unless `arguments` or the environment name others.
  ServerOptions Parse(std::vector<std::string> arguments) {
    const auto [status, options, err] = Run(std::move(arguments));
    EXPECT_EQ(status, std::nullopt) << err;
    return options;
  }
  // Expects an error of one line, and returns it.
  std::string Refusal(std::vector<std::string> arguments) {
    const auto [status, options, err] = Run(std::move(arguments));
    EXPECT_EQ(status, 2);
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
    return err;
  }
  std::string WriteConfig(const std::string& text) {
    const std::filesystem::path file = directory_.path() / "server.toml";
    WriteFile(file, text);
    return file.string();
  }

  TempDir directory_;
  const std::string path_ = directory_.path().string();
  const std::string model_ = "--model=a=" + path_;
  Resources available_ = {.cpus = 8, .memory_bytes = 8192 * kMiB};

 private:
  struct Outcome {
    std::optional<int> status;
    ServerOptions options;
    std::string err;
  };

  Outcome Run(std::vector<std::string> arguments) {
    std::vector<const char*> argv = {"triptych-server"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    Outcome outcome;
    testing::internal::CaptureStderr();
    outcome.status = ParseServerOptions(static_cast<int>(argv.size()), argv.data(),
                                        &outcome.options, available_);
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }

  std::vector<std::string> variables_;
};

TEST_F(OptionSourcesTest, TheFlagThenTheEnvironmentThenTheFile) {
  const std::string config = WriteConfig("threads = 2\n");
  EXPECT_EQ(Parse({model_}).threads, 8);
  EXPECT_EQ(Parse({model_, "--config", config}).threads, 2);
  SetVariable("TRIPTYCH_THREADS", "3");
  EXPECT_EQ(Parse({model_}).threads, 3);
  EXPECT_EQ(Parse({model_, "--config", config}).threads, 3);
  EXPECT_EQ(Parse({model_, "--config", config, "--threads", "4"}).threads, 4);
  SetVariable("TRIPTYCH_THREADS", "");  // counts as unset
  EXPECT_EQ(Parse({model_, "--config", config}).threads, 2);
}

TEST_F(OptionSourcesTest, EveryOptionHasAVariable) {
  const std::string config = WriteConfig(
      "model = \"file=/none\"\nlisten = \"file:1\"\nkv-cache-bytes = \"none\"\n"
      "dtype = \"none\"\nkv-dtype = \"none\"\nblock-positions = 0\nmax-batch-tokens = 0\n"
      "max-running = 0\nmax-waiting = 0\nmax-waiting-tokens = 0\nqueue-timeout = -1\n"
      "prefix-cache = \"none\"\nmax-client-requests = -1\nclient-rate = -1\nstall-timeout = "
      "0\nexpand-from = \"none\"\nthreads = 0\ndrain-timeout = -1\n"
      "log-level = \"none\"\nlog-format = \"none\"\ntls-cert = \"file\"\ntls-key = \"file\"\n"
      "tls-client-ca = \"file\"\ntokens = \"file\"\ninsecure = false\nreflection = \"none\"\n"
      "max-streams = 0\n");
  SetVariable("TRIPTYCH_CONFIG", config);
  SetVariable("TRIPTYCH_MODEL", "a=" + path_ + ",kv-cache-bytes=1MiB;b=" + path_);
  SetVariable("TRIPTYCH_LISTEN", "0.0.0.0:7");
  SetVariable("TRIPTYCH_KV_CACHE_BYTES", "4MiB");
  SetVariable("TRIPTYCH_DTYPE", "bfloat16");
  SetVariable("TRIPTYCH_KV_CACHE_DTYPE", "float32");
  SetVariable("TRIPTYCH_BLOCK_POSITIONS", "32");
  SetVariable("TRIPTYCH_MAX_BATCH_TOKENS", "128");
  SetVariable("TRIPTYCH_MAX_RUNNING", "5");
  SetVariable("TRIPTYCH_MAX_WAITING", "6");
  SetVariable("TRIPTYCH_MAX_WAITING_TOKENS", "7");
  SetVariable("TRIPTYCH_QUEUE_TIMEOUT", "0.25");
  SetVariable("TRIPTYCH_PREFIX_CACHE", "off");
  SetVariable("TRIPTYCH_MAX_CLIENT_REQUESTS", "8");
  SetVariable("TRIPTYCH_CLIENT_RATE", "9.5");
  SetVariable("TRIPTYCH_STALL_TIMEOUT", "10");
  SetVariable("TRIPTYCH_EXPAND_FROM", "12");
  SetVariable("TRIPTYCH_THREADS", "3");
  SetVariable("TRIPTYCH_DRAIN_TIMEOUT", "1.5");
  SetVariable("TRIPTYCH_LOG_LEVEL", "error");
  SetVariable("TRIPTYCH_LOG_FORMAT", "json");
  SetVariable("TRIPTYCH_TLS_CERT", "cert");
  SetVariable("TRIPTYCH_TLS_KEY", "key");
  SetVariable("TRIPTYCH_TLS_CLIENT_CA", "ca");
  SetVariable("TRIPTYCH_TOKENS", "tokens");
  SetVariable("TRIPTYCH_INSECURE", "true");
  SetVariable("TRIPTYCH_REFLECTION", "off");
  SetVariable("TRIPTYCH_MAX_STREAMS", "7");
  const ServerOptions options = Parse({});
  ASSERT_EQ(options.models.size(), 2);
  EXPECT_EQ(options.models[1].name, "b");
  EXPECT_THAT(SplitKvCacheBytes(options), ElementsAre(1 * kMiB, 3 * kMiB));
  EXPECT_EQ(options.transport.listen, "0.0.0.0:7");
  ASSERT_TRUE(options.transport.tls.has_value());
  EXPECT_EQ(options.transport.tls->certificate, "cert");
  EXPECT_EQ(options.transport.tls->key, "key");
  EXPECT_EQ(options.transport.tls->client_authority, "ca");
  EXPECT_EQ(options.transport.access.tokens, "tokens");
  EXPECT_TRUE(options.transport.access.insecure);
  EXPECT_FALSE(options.transport.reflection);
  EXPECT_EQ(options.transport.limits.max_streams, 7);
  EXPECT_EQ(options.weights.layers, WeightFormat::kBFloat16);
  EXPECT_EQ(options.cache_format, CacheFormat::kFloat32);
  EXPECT_EQ(options.backend.expand_from, 12);
  EXPECT_EQ(options.backend.block_positions, 32);
  EXPECT_EQ(options.engine.max_batch_tokens, 128);
  EXPECT_EQ(options.engine.max_running, 5);
  EXPECT_EQ(options.engine.max_waiting, 6);
  EXPECT_EQ(options.engine.max_waiting_tokens, 7);
  EXPECT_EQ(options.engine.queue_timeout, std::chrono::milliseconds(250));
  EXPECT_FALSE(options.engine.prefix_cache);
  EXPECT_EQ(options.admission.max_client_requests, 8);
  EXPECT_EQ(options.admission.client_rate, 9.5);
  EXPECT_EQ(options.transport.limits.stall_timeout, std::chrono::seconds(10));
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.drain_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(options.log_level, "error");
  EXPECT_EQ(options.log_format, LogFormat::kJson);
}

TEST_F(OptionSourcesTest, TheVariableNamesTheFileUnlessTheFlagDoes) {
  SetVariable("TRIPTYCH_CONFIG", path_ + "/none.toml");
  EXPECT_THAT(Refusal({model_}), HasSubstr("none.toml"));
  EXPECT_EQ(Parse({model_, "--config", WriteConfig("threads = 2\n")}).threads, 2);
}

TEST_F(OptionSourcesTest, ABadVariableIsRefusedByTheOptionsName) {
  SetVariable("TRIPTYCH_THREADS", "many");
  EXPECT_THAT(Refusal({model_}), HasSubstr("--threads"));
  EXPECT_EQ(Parse({model_, "--threads", "2"}).threads, 2);
}

TEST_F(OptionSourcesTest, TheModelsOfAFlagReplaceThoseOfTheEnvironment) {
  SetVariable("TRIPTYCH_MODEL", "b=" + path_ + ";c=" + path_);
  EXPECT_EQ(Parse({}).models.size(), 2);
  const ServerOptions options = Parse({model_});
  ASSERT_EQ(options.models.size(), 1);
  EXPECT_EQ(options.models[0].name, "a");
}

TEST_F(OptionSourcesTest, TheCacheFitsTheMemoryThereIs) {
  EXPECT_EQ(Parse({model_}).kv_cache_bytes, 1024 * kMiB);
  EXPECT_EQ(Parse({model_, "--kv-cache-bytes=25%"}).kv_cache_bytes, 2048 * kMiB);
  available_.memory_bytes = 512 * kMiB;
  EXPECT_EQ(Parse({model_}).kv_cache_bytes, 128 * kMiB);
  EXPECT_EQ(Parse({model_, "--kv-cache-bytes=416MiB"}).kv_cache_bytes, 416 * kMiB);
  EXPECT_EQ(Parse({model_ + ",kv-cache-bytes=10%"}).models[0].kv_cache_bytes, 512 * kMiB / 10);
  EXPECT_EQ(Refusal({model_, "--kv-cache-bytes=1GiB"}),
            "triptych-server: --kv-cache-bytes: 1GiB (1073741824 bytes) does not fit: there are "
            "536870912 bytes of memory, of which the server itself needs 100663296\n");
  EXPECT_THAT(Refusal({model_, "--kv-cache-bytes=417MiB"}), HasSubstr("does not fit"));
  EXPECT_THAT(Refusal({model_, "--kv-cache-bytes=100%"}), HasSubstr("does not fit"));
}

}  // namespace
}  // namespace triptych::server::option_sources_test
