#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/backend/model_backend.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::server::options_test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr int64_t kMemory = 64'000'000'000;

struct SizeCase {
  const char* text;
  int64_t bytes;
};

TEST(ByteSizeTest, Sizes) {
  const std::vector<SizeCase> cases = {
      {"1", 1},
      {"1073741824", 1 << 30},
      {"7B", 7},
      {"4KiB", 4096},
      {"512MiB", 512 << 20},
      {"1.5GiB", 3 << 29},
      {"2TiB", int64_t{2} << 40},
      {"3KB", 3000},
      {"3MB", 3'000'000},
      {"1GB", 1'000'000'000},
      {"1TB", 1'000'000'000'000},
      {"25%", kMemory / 4},
      {"0.5%", kMemory / 200},
      {"100%", kMemory},
      {"4194304TiB", int64_t{1} << 62},
  };
  for (const SizeCase& c : cases) EXPECT_EQ(ParseByteSize(c.text, kMemory), c.bytes) << c.text;
}

TEST(ByteSizeTest, RefusesEverythingElse) {
  for (const std::string text : {"",
                                 " ",
                                 "MiB",
                                 "%",
                                 "many",
                                 "512mib",
                                 "512 MiB",
                                 " 512",
                                 "512MiB ",
                                 "0",
                                 "0MiB",
                                 "0.5",
                                 "-1",
                                 "-512MiB",
                                 "-25%",
                                 "0%",
                                 "101%",
                                 "1000%",
                                 "inf",
                                 "nan",
                                 "infMiB",
                                 "1e400",
                                 "1,5GiB",
                                 "0x10",
                                 "++1",
                                 "+1",
                                 "9223372036854775807",
                                 "9223372036854775808",
                                 "4194305TiB",
                                 "99999999999999999999999"}) {
    try {
      ADD_FAILURE() << "\"" << text << "\" is taken as " << ParseByteSize(text, kMemory);
    } catch (const std::invalid_argument& e) {
      EXPECT_THAT(e.what(), StartsWith("\"" + text + "\" is not a size; allowed: "));
    }
  }
}

// The error of --model `option`.
std::string ErrorOf(const std::string& option) {
  try {
    ParseModelOptions(option);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted: " + option;
}

TEST(ModelOptionsTest, NameDirectoryAndSize) {
  const TempDir directory;
  const std::string path = directory.path().string();
  const ModelOptions plain = ParseModelOptions("a.B-c_9=" + path);
  EXPECT_EQ(plain.name, "a.B-c_9");
  EXPECT_EQ(plain.checkpoint, path);
  EXPECT_EQ(plain.kv_cache_bytes, std::nullopt);
  const ModelOptions own = ParseModelOptions("a=" + path + ",kv-cache-bytes=2MiB");
  EXPECT_EQ(own.checkpoint, path);
  EXPECT_EQ(own.kv_cache_bytes, 2 << 20);
  EXPECT_EQ(own.chat_template, std::nullopt);
  EXPECT_EQ(ParseModelOptions("a=" + path + ",chat-template=llama3").chat_template,
            *BuiltInTemplate("llama3"));
  const std::string jinja = directory.path() / "own.jinja";
  std::ofstream(jinja) << "{{ bos_token }}";
  EXPECT_EQ(ParseModelOptions("a=" + path + ",chat-template=" + jinja).chat_template,
            (ChatTemplateText{"own.jinja", "{{ bos_token }}"}));
  EXPECT_EQ(ParseModelOptions("a=" + path + ",chat-template=own").chat_template,
            (ChatTemplateText{"own", "", "default"}));
  EXPECT_EQ(ParseModelOptions("a=" + path + ",chat-template=own:rag").chat_template,
            (ChatTemplateText{"own:rag", "", "rag"}));

  EXPECT_EQ(own.max_positions, std::nullopt);
  EXPECT_EQ(ParseModelOptions("a=" + path + ",max-model-len=4096").max_positions, 4096);
  EXPECT_EQ(ParseModelOptions("a=" + path + ",context=2").max_positions, 2);
  EXPECT_EQ(ParseModelOptions("a=" + path + ",draft-model=b").draft_model, "b");

  // The name ends at the first '='; the directory can contain others.
  std::filesystem::create_directory(directory.path() / "x=y");
  EXPECT_EQ(ParseModelOptions("a=" + path + "/x=y").checkpoint, directory.path() / "x=y");
}

TEST(ModelOptionsTest, Conversions) {
  const TempDir directory;
  const std::string model = "a=" + directory.path().string();
  EXPECT_FALSE(ParseModelOptions(model).conversion.has_value());
  EXPECT_FALSE(ParseModelOptions(model + ",kv-cache-bytes=1MiB").conversion.has_value());

  struct Case {
    std::string settings;
    ConversionSpec conversion;
    std::optional<int64_t> kv_cache_bytes = {};
  };
  const ConversionSpec latent = {.attention = AttentionKind::kMla, .rank = 64};
  const ConversionSpec grouped = {.attention = AttentionKind::kGqa, .groups = 2};
  const std::vector<Case> cases = {
      {"attention=mha", {.attention = AttentionKind::kMha}},
      {"attention=mla", {.attention = AttentionKind::kMla, .rank = 0}},
      {"attention=mla,rank=64", latent},
      {"attention=mla,rope-head-dim=8", {.attention = AttentionKind::kMla, .rope_head_dim = 8}},
      {"rank=64,attention=mla", latent},
      {"attention=gqa,groups=2", grouped},
      {"groups=2,attention=gqa", grouped},
      {"kv-cache-bytes=1MiB,attention=mla,rank=64", latent, 1 << 20},
      {"rank=64,kv-cache-bytes=1MiB,attention=mla", latent, 1 << 20},
      {"groups=2,attention=gqa,kv-cache-bytes=1MiB", grouped, 1 << 20},
  };
  for (const Case& c : cases) {
    const ModelOptions options = ParseModelOptions(model + "," + c.settings);
    EXPECT_EQ(options.checkpoint, directory.path()) << c.settings;
    EXPECT_EQ(options.kv_cache_bytes, c.kv_cache_bytes) << c.settings;
    ASSERT_TRUE(options.conversion.has_value()) << c.settings;
    EXPECT_EQ(options.conversion->attention, c.conversion.attention) << c.settings;
    EXPECT_EQ(options.conversion->groups, c.conversion.groups) << c.settings;
    EXPECT_EQ(options.conversion->rank, c.conversion.rank) << c.settings;
    EXPECT_EQ(options.conversion->rope_head_dim, c.conversion.rope_head_dim) << c.settings;
  }
}

TEST(ModelOptionsTest, TakesNamesOfPublishedModels) {
  const TempDir directory;
  for (const char* const name : {"Qwen/Qwen3-0.6B", "qwen3:0.6b", "a@b+c", "/"}) {
    EXPECT_EQ(ParseModelOptions(name + ("=" + directory.path().string())).name, name);
  }
}

TEST(ModelOptionsTest, RefusesBadNamesAndPaths) {
  const TempDir directory;
  const std::string path = directory.path().string();
  WriteFile(directory.path() / "file", "");
  struct Case {
    std::string name;
    std::string option;
    std::string error;
  };
  const std::vector<Case> cases = {
      {"no name", path, "is not NAME=PATH"},
      {"no name, a setting", "x,kv-cache-bytes=1", "is not NAME=PATH"},
      {"nothing", "", "is not NAME=PATH"},
      {"an empty name", "=" + path, "is not a model name"},
      {"a space in the name", "a b=" + path, "\"a b\" is not a model name"},
      {"a semicolon in the name", "a;b=" + path, "is not a model name"},
      {"a line break in the name", "a\nb=" + path, "is not a model name"},
      {"a name of 129 bytes", std::string(129, 'a') + "=" + path, "is not a model name"},
      {"an empty path", "a=", "\"\" of model a is not a directory"},
      {"an absent path", "a=" + path + "/none", "/none\" of model a is not a directory"},
      {"a file", "a=" + path + "/file", "/file\" of model a is not a directory"},
      {"a path that is too long", "a=/" + std::string(300, 'x'),
       "x\" of model a is not a directory or a .gguf file"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_THAT(ErrorOf(c.option), HasSubstr(c.error));
  }
}

TEST(ModelOptionsTest, RefusesAWrongSettingByItsNameAndValue) {
  const TempDir directory;
  const std::string no_setting =
      " of model a is not a setting; allowed: kv-cache-bytes=SIZE, attention=KIND, rank=R, "
      "rope-head-dim=N, groups=G, chat-template=FILE|NAME, max-model-len=N, draft-model=NAME";
  const std::string no_count = " is not a count; allowed: integers from 1 to 9223372036854775807";
  struct Case {
    std::string settings;
    std::string error;
  };
  std::vector<Case> cases = {
      {"", "\"\"" + no_setting},
      {"size=1", "\"size=1\"" + no_setting},
      {"rank", "\"rank\"" + no_setting},
      {"Rank=1", "\"Rank=1\"" + no_setting},
      {"attention=mla,", "\"\"" + no_setting},
      {",attention=mla", "\"\"" + no_setting},
      {"attention=mla, rank=4", "\" rank=4\"" + no_setting},
      {"kv-cache-bytes=1MiB,kv-cache-bytes=2MiB",
       "kv-cache-bytes of model a: \"2MiB\" is a second value; allowed: one value"},
      {"attention=mla,attention=mla",
       "attention of model a: \"mla\" is a second value; allowed: one value"},
      {"attention=mla,rank=3,rank=4",
       "rank of model a: \"4\" is a second value; allowed: one value"},
      {"groups=1,groups=2,attention=gqa",
       "groups of model a: \"2\" is a second value; allowed: one value"},
      {"chat-template=Chatml",
       "chat-template of model a: \"Chatml\" is not a template: it is no file; allowed: a file of "
       "Jinja, own:NAME, or one of chatml, llama2, llama3, mistral, plain, zephyr"},
      {"chat-template=plain,chat-template=plain",
       "chat-template of model a: \"plain\" is a second value; allowed: one value"},
      {"context=1",
       "max-model-len of model a: \"1\" is not a context; allowed: integers from 2 to 16777216"},
      {"max-model-len=4k",
       "max-model-len of model a: \"4k\" is not a context; allowed: integers from 2 to 16777216"},
      {"max-model-len=8,context=8",
       "max-model-len of model a: \"8\" is a second value; allowed: one value"},
      {"attention=mqa", "attention of model a: \"mqa\" is not a kind; allowed: mha, gqa, mla"},
      {"attention=", "attention of model a: \"\" is not a kind; allowed: mha, gqa, mla"},
      {"attention=MLA", "attention of model a: \"MLA\" is not a kind; allowed: mha, gqa, mla"},
      {"rank=4", "rank of model a: \"4\" is allowed only with attention=mla"},
      {"attention=mha,rank=4", "rank of model a: \"4\" is allowed only with attention=mla"},
      {"rank=4,attention=gqa,groups=2",
       "rank of model a: \"4\" is allowed only with attention=mla"},
      {"groups=2", "groups of model a: \"2\" is allowed only with attention=gqa"},
      {"attention=mha,groups=2", "groups of model a: \"2\" is allowed only with attention=gqa"},
      {"groups=2,attention=mla", "groups of model a: \"2\" is allowed only with attention=gqa"},
      {"attention=gqa", "attention of model a: \"gqa\" is allowed only with groups=G"},
  };
  for (const std::string count :
       {"", "0", "-1", "+4", "4.5", "4x", " 4", "four", "0x10", "4=4", "9223372036854775808"}) {
    cases.push_back(
        {"attention=mla,rank=" + count, "rank of model a: \"" + count + "\"" + no_count});
    cases.push_back(
        {"attention=gqa,groups=" + count, "groups of model a: \"" + count + "\"" + no_count});
  }
  const std::string model = "a=" + directory.path().string() + ",";
  for (const Case& c : cases) {
    EXPECT_EQ(ErrorOf(model + c.settings), c.error);
  }
  EXPECT_THAT(ErrorOf(model + "attention=mla,kv-cache-bytes=x"),
              StartsWith("kv-cache-bytes of model a: \"x\" is not a size; allowed: "));
}

ServerOptions WithPools(int64_t total, const std::vector<std::optional<int64_t>>& own) {
  ServerOptions options;
  options.kv_cache_bytes = total;
  for (const auto& bytes : own) {
    options.models.push_back({.name = "a", .checkpoint = "", .kv_cache_bytes = bytes});
  }
  return options;
}

// Models a, b, ..., with their own draft models.
std::vector<ModelOptions> WithDrafts(const std::vector<std::optional<std::string>>& drafts) {
  std::vector<ModelOptions> models;
  for (const auto& draft : drafts) {
    models.push_back({.name = std::string(1, static_cast<char>('a' + models.size())),
                      .checkpoint = {},
                      .kv_cache_bytes = {},
                      .draft_model = draft});
  }
  return models;
}

TEST(ResolveDraftModelsTest, TheCommonOneDraftsForModelsThatNameNoneAndDraftNothing) {
  std::vector<ModelOptions> models = WithDrafts({{}, "d", {}, {}});
  ResolveDraftModels("c", models);
  EXPECT_EQ(models[0].draft_model, "c");
  EXPECT_EQ(models[1].draft_model, "d");
  EXPECT_EQ(models[2].draft_model, std::nullopt);
  EXPECT_EQ(models[3].draft_model, std::nullopt);
}

TEST(ResolveDraftModelsTest, RefusesModelsThatCannotDraft) {
  const auto error = [](std::vector<ModelOptions> models,
                        const std::optional<std::string>& common = {}) {
    return RefusalOf<std::invalid_argument>([&] { ResolveDraftModels(common, models); });
  };
  EXPECT_EQ(error(WithDrafts({{}, {}}), "x"), "--draft-model: \"x\" is not served; allowed: a, b");
  EXPECT_EQ(
      error(WithDrafts({{}}), "a"),
      "--draft-model: \"a\" drafts for no model; allowed: only with a model that it can draft "
      "for");
  EXPECT_EQ(error(WithDrafts({"x", {}})),
            "draft-model of model a: \"x\" is not served; allowed: b");
  EXPECT_EQ(error(WithDrafts({"b", "c", {}})),
            "draft-model of model a: \"b\" has a draft model of its own; allowed: c");
  EXPECT_EQ(error(WithDrafts({"a"})),
            "draft-model of model a: \"a\" has a draft model of its own; allowed: no model");
}

TEST(SplitKvCacheBytesTest, SharesWhatIsLeft) {
  constexpr std::nullopt_t kNone = std::nullopt;
  struct Case {
    std::string name;
    std::vector<std::optional<int64_t>> own;
    std::vector<int64_t> split;
  };
  const std::vector<Case> cases = {
      {"one model", {kNone}, {100}},
      {"equal shares, rounded down", {kNone, kNone, kNone}, {33, 33, 33}},
      {"shares of the rest", {kNone, 50, kNone}, {25, 50, 25}},
      {"all of it by own sizes", {60, 40}, {60, 40}},
      {"less than all by own sizes", {10, 20}, {10, 20}},
      {"the last byte", {99, kNone}, {99, 1}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(SplitKvCacheBytes(WithPools(100, c.own)), c.split);
  }
}

TEST(SplitKvCacheBytesTest, RefusesMoreThanTheTotal) {
  constexpr std::nullopt_t kNone = std::nullopt;
  constexpr int64_t kHuge = int64_t{1} << 62;
  struct Case {
    std::string name;
    int64_t total;
    std::vector<std::optional<int64_t>> own;
  };
  const std::vector<Case> cases = {
      {"own sizes above the total", 100, {60, 41}},
      {"nothing left for the second", 100, {100, kNone}},
      {"less than a byte for each", 1, {kNone, kNone}},
      {"a sum that overflows", 100, {kHuge, kHuge, kHuge, kHuge}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_THROW(SplitKvCacheBytes(WithPools(c.total, c.own)), std::invalid_argument);
  }
}

struct Parsed {
  std::optional<int> exit_status;
  ServerOptions options;
  std::string out;
  std::string err;
};

Parsed Parse(std::vector<std::string> arguments) {
  std::vector<const char*> argv = {"triptych-server"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  Parsed parsed;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  parsed.exit_status =
      ParseServerOptions(static_cast<int>(argv.size()), argv.data(), &parsed.options);
  std::fflush(stdout);
  parsed.out = testing::internal::GetCapturedStdout();
  parsed.err = testing::internal::GetCapturedStderr();
  return parsed;
}

class ServerOptionsTest : public testing::Test {
 protected:
  const TempDir directory_;
  const std::string path_ = directory_.path().string();
};

// A flag of the command line, and what it sets.
struct FlagCase {
  std::string flag;
  std::string value;  // empty: the flag has none
  std::function<void(const ServerOptions&)> check;
};

void CheckEach(const std::vector<FlagCase>& cases, const ServerOptions& options) {
  for (const FlagCase& c : cases) {
    SCOPED_TRACE(c.flag);
    c.check(options);
  }
}

// EXPECT_EQ of a field of the options.
#define FIELD_IS(field, expected) \
  [](const ServerOptions& options) { EXPECT_EQ(options.field, expected); }

TEST_F(ServerOptionsTest, DraftModels) {
  const std::string a = "a=" + path_, b = "b=" + path_;
  const Parsed parsed = Parse({"--model", a, "--model", b, "--draft-model", "b"});
  ASSERT_EQ(parsed.exit_status, std::nullopt) << parsed.err;
  EXPECT_EQ(parsed.options.models[0].draft_model, "b");
  EXPECT_EQ(parsed.options.models[1].draft_model, std::nullopt);
  EXPECT_THAT(Parse({"--model", a, "--draft-model", "b"}).err,
              HasSubstr("--draft-model: \"b\" is not served; allowed: a"));
  EXPECT_THAT(Parse({"--model", a, "--model", b + ",draft-model=a", "--speculation", "off"}).err,
              HasSubstr("--speculation: is off; allowed with draft models: ngram"));
}

TEST_F(ServerOptionsTest, Defaults) {
  const Parsed parsed = Parse({"--model", "a=" + path_});
  ASSERT_EQ(parsed.exit_status, std::nullopt) << parsed.err;
  CheckEach(
      {
          {"--listen", "", FIELD_IS(transport.listen, "127.0.0.1:50051")},
          {"--tls-cert", "", FIELD_IS(transport.tls.has_value(), false)},
          {"--tokens", "", FIELD_IS(transport.access.tokens.has_value(), false)},
          {"--insecure", "", FIELD_IS(transport.access.insecure, false)},
          {"--reflection", "", FIELD_IS(transport.reflection, true)},
          {"--max-streams", "", FIELD_IS(transport.limits.max_streams, 100)},
          {"--kv-cache-bytes", "", FIELD_IS(kv_cache_bytes, 1 << 30)},
          {"--dtype", "", FIELD_IS(weights.layers, std::nullopt)},
          {"--kv-cache-dtype", "", FIELD_IS(cache_format, std::nullopt)},
          {"--device", "", FIELD_IS(device, "cpu")},
          {"--kv-cache-bytes as a share", "", FIELD_IS(kv_cache_share, std::nullopt)},
          {"--expand-from", "", FIELD_IS(backend.expand_from, std::nullopt)},
          {"--threads", "", [](const ServerOptions& o) { EXPECT_GE(o.threads, 1); }},
          {"--drain-timeout", "", FIELD_IS(drain_timeout, std::chrono::seconds(30))},
          {"--queue-timeout", "", FIELD_IS(engine.queue_timeout, std::chrono::milliseconds(0))},
          {"--prefix-cache", "", FIELD_IS(engine.prefix_cache, true)},
          {"--max-client-requests", "", FIELD_IS(admission.max_client_requests, 512)},
          {"--client-rate", "", FIELD_IS(admission.client_rate, 0)},
          {"--stall-timeout", "",
           FIELD_IS(transport.limits.stall_timeout, std::chrono::seconds(30))},
          {"--http", "", FIELD_IS(transport.http, std::nullopt)},
          {"--log-format", "", FIELD_IS(log_format, LogFormat::kText)},
      },
      parsed.options);
  ASSERT_EQ(parsed.options.models.size(), 1);
  EXPECT_EQ(parsed.options.models[0].name, "a");
}

TEST_F(ServerOptionsTest, EveryFlag) {
  const std::vector<FlagCase> cases = {
      {"--listen", "[::1]:0", FIELD_IS(transport.listen, "[::1]:0")},
      {"--http", "localhost:8080", FIELD_IS(transport.http, "localhost:8080")},
      {"--http-origins", "http://localhost:5173,*",
       [](const ServerOptions& o) {
         EXPECT_THAT(o.transport.http_origins, ElementsAre("http://localhost:5173", "*"));
       }},
      {"--http-parse-special", "off", FIELD_IS(transport.http_parse_special, false)},
      {"--http-hosts", "server,models.example",
       [](const ServerOptions& o) {
         EXPECT_THAT(o.transport.http_hosts, ElementsAre("server", "models.example"));
       }},
      {"--tls-cert", "cert", FIELD_IS(transport.tls.value().certificate, "cert")},
      {"--tls-key", "key", FIELD_IS(transport.tls.value().key, "key")},
      {"--tls-client-ca", "ca", FIELD_IS(transport.tls.value().client_authority, "ca")},
      {"--tokens", "tokens", FIELD_IS(transport.access.tokens, "tokens")},
      {"--insecure", "", FIELD_IS(transport.access.insecure, true)},
      {"--kv-events-insecure", "", FIELD_IS(kv_events_insecure, true)},
      {"--reflection", "off", FIELD_IS(transport.reflection, false)},
      {"--max-streams", "5", FIELD_IS(transport.limits.max_streams, 5)},
      {"--kv-cache-bytes", "3MiB",
       [](const ServerOptions& o) {
         EXPECT_THAT(SplitKvCacheBytes(o), ElementsAre(2 << 20, 1 << 20));
       }},
      {"--chat-template", "mistral", FIELD_IS(chat_template, *BuiltInTemplate("mistral"))},
      {"--context", "4096", FIELD_IS(max_positions, 4096)},
      {"--dtype", "bfloat16", FIELD_IS(weights.layers, WeightFormat::kBFloat16)},
      {"--embedding-dtype", "int8", FIELD_IS(weights.embeddings, WeightFormat::kInt8)},
      {"--expert-dtype", "int4", FIELD_IS(weights.experts, WeightFormat::kInt4)},
      {"--kv-cache-dtype", "float32", FIELD_IS(cache_format, CacheFormat::kFloat32)},
      {"--device", "cpu", FIELD_IS(device, "cpu")},
      {"--expand-from", "0", FIELD_IS(backend.expand_from, 0)},
      {"--block-positions", "32", FIELD_IS(backend.block_positions, 32)},
      {"--max-batch-tokens", "128", FIELD_IS(engine.max_batch_tokens, 128)},
      {"--max-running", "8", FIELD_IS(engine.max_running, 8)},
      {"--max-waiting", "9", FIELD_IS(engine.max_waiting, 9)},
      {"--max-waiting-tokens", "5000000000", FIELD_IS(engine.max_waiting_tokens, 5'000'000'000)},
      {"--queue-timeout", "1.5", FIELD_IS(engine.queue_timeout, std::chrono::milliseconds(1500))},
      {"--prefix-cache", "off", FIELD_IS(engine.prefix_cache, false)},
      {"--max-slowdown", "2.5", FIELD_IS(engine.max_slowdown, 2.5)},
      {"--speculation", "off", FIELD_IS(engine.speculation, serving::Speculation::kOff)},
      {"--max-client-requests", "0", FIELD_IS(admission.max_client_requests, 0)},
      {"--client-rate", "0.5", FIELD_IS(admission.client_rate, 0.5)},
      {"--stall-timeout", "0.1",
       FIELD_IS(transport.limits.stall_timeout, std::chrono::milliseconds(100))},
      {"--threads", "3", FIELD_IS(threads, 3)},
      {"--drain-timeout", "0.25", FIELD_IS(drain_timeout, std::chrono::milliseconds(250))},
      {"--log-level", "error", FIELD_IS(log_level, "error")},
      {"--log-format", "json", FIELD_IS(log_format, LogFormat::kJson)},
  };
  std::vector<std::string> arguments = {"--model", "a=" + path_,
                                        "--model=b=" + path_ + ",kv-cache-bytes=1MiB"};
  for (const FlagCase& c : cases) {
    arguments.push_back(c.flag);
    if (!c.value.empty()) arguments.push_back(c.value);
  }
  const Parsed parsed = Parse(arguments);
  ASSERT_EQ(parsed.exit_status, std::nullopt) << parsed.err;
  EXPECT_THAT(parsed.err, IsEmpty());
  ASSERT_EQ(parsed.options.models.size(), 2);
  EXPECT_EQ(parsed.options.models[1].name, "b");
  CheckEach(cases, parsed.options);
}
#undef FIELD_IS

TEST_F(ServerOptionsTest, ExpandFrom) {
  struct Case {
    std::string value;
    std::optional<int64_t> position;
  };
  for (const Case& c :
       std::vector<Case>{{"auto", std::nullopt}, {"never", kNeverExpand}, {"123", 123}}) {
    const Parsed parsed = Parse({"--model", "a=" + path_, "--expand-from", c.value});
    EXPECT_EQ(parsed.options.backend.expand_from, c.position) << c.value;
  }
}

TEST_F(ServerOptionsTest, ConfigFile) {
  const std::string file = path_ + "/server.toml";
  WriteFile(directory_.path() / "server.toml", "model = [\"a=" + path_ +
                                                   ",kv-cache-bytes=1MiB\", \"b=" + path_ +
                                                   "\"]\n# a comment\nlisten = \"127.0.0.1:7\"\n"
                                                   "max-running = 5\nkv-cache-bytes = \"4MiB\"\n"
                                                   "drain-timeout = 1.5\ndtype = \"bfloat16\"\n");
  // The command line takes precedence over the file.
  const Parsed parsed = Parse({"--config", file, "--listen", "127.0.0.1:8"});
  ASSERT_EQ(parsed.exit_status, std::nullopt) << parsed.err;
  ASSERT_EQ(parsed.options.models.size(), 2);
  EXPECT_THAT(SplitKvCacheBytes(parsed.options), ElementsAre(1 << 20, 3 << 20));
  EXPECT_EQ(parsed.options.transport.listen, "127.0.0.1:8");
  EXPECT_EQ(parsed.options.engine.max_running, 5);
  EXPECT_EQ(parsed.options.drain_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(parsed.options.weights.layers, WeightFormat::kBFloat16);
}

TEST_F(ServerOptionsTest, HelpNamesEveryFlag) {
  const Parsed parsed = Parse({"--help"});
  EXPECT_EQ(parsed.exit_status, 0);
  EXPECT_THAT(parsed.err, IsEmpty());
  for (const std::string flag : {"--model",
                                 "--listen",
                                 "--kv-cache-bytes",
                                 "--chat-template",
                                 "--max-model-len",
                                 "--dtype",
                                 "--kv-cache-dtype",
                                 "--block-positions",
                                 "--max-batch-tokens",
                                 "--max-running",
                                 "--max-waiting",
                                 "--max-waiting-tokens",
                                 "--queue-timeout",
                                 "--prefix-cache",
                                 "--max-slowdown",
                                 "--speculation",
                                 "--max-client-requests",
                                 "--client-rate",
                                 "--stall-timeout",
                                 "--threads",
                                 "--drain-timeout",
                                 "--tls-cert",
                                 "--tls-key",
                                 "--tls-client-ca",
                                 "--tokens",
                                 "--insecure",
                                 "--reflection",
                                 "--max-streams",
                                 "--device",
                                 "--expand-from",
                                 "--log-level",
                                 "--log-format",
                                 "--config"}) {
    EXPECT_THAT(parsed.out, HasSubstr(flag));
  }
  for (const std::string settings :
       {"kv-cache-bytes=SIZE", "chat-template=FILE|NAME", "attention=mha", "attention=gqa,groups=G",
        "attention=mla[,rank=R]"}) {
    EXPECT_THAT(parsed.out, HasSubstr(settings));
  }
}

TEST_F(ServerOptionsTest, OtherMachinesNeedAuthenticationOrInsecure) {
  using Flags = std::vector<std::string>;
  const Flags tls = {"--tls-cert", "cert", "--tls-key", "key"};
  const Flags mutual = {"--tls-cert", "cert", "--tls-key", "key", "--tls-client-ca", "ca"};
  const Flags tokens = {"--tokens", "tokens"};
  const Flags both = {"--tls-cert", "cert", "--tls-key", "key", "--tokens", "tokens"};
  const auto listens = [&](const std::string& flag, const std::string& address,
                           const Flags& flags) {
    Flags arguments = {"--model", "a=" + path_, flag, address};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Parsed parsed = Parse(arguments);
    if (parsed.exit_status) {
      EXPECT_EQ(parsed.err,
                "triptych-server: " + flag + ": " + address +
                    " is reachable from other machines; allowed: 127.0.0.1, [::1] and localhost; "
                    "others with --tls-cert, --tls-key and --tokens (or --tls-client-ca), or with "
                    "--insecure\n");
    }
    return !parsed.exit_status;
  };
  for (const std::string flag : {"--listen", "--http"}) {
    for (const std::string own : {"127.0.0.1:1", "127.0.1.1:1", "localhost:1", "[::1]:1"}) {
      for (const Flags& flags : {Flags(), tls, tokens, both, mutual}) {
        EXPECT_TRUE(listens(flag, own, flags)) << own;
      }
    }
    for (const std::string other : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.example.org:1"}) {
      for (const Flags& flags : {Flags(), tls, tokens}) {
        EXPECT_FALSE(listens(flag, other, flags)) << other;
      }
      for (const Flags& flags : {both, mutual, Flags{"--insecure"}}) {
        EXPECT_TRUE(listens(flag, other, flags)) << other;
      }
    }
  }
}

TEST_F(ServerOptionsTest, HttpIsSwitchedOffAgain) {
  const std::filesystem::path file = directory_.path() / "server.toml";
  WriteFile(file, "model = \"a=" + path_ + "\"\nhttp = \"127.0.0.1:8080\"\n");
  EXPECT_EQ(Parse({"--config", file}).options.transport.http, "127.0.0.1:8080");
  EXPECT_EQ(Parse({"--config", file, "--http", "none"}).options.transport.http, std::nullopt);
}

TEST_F(ServerOptionsTest, ABadValueGivesOneLineThatNamesIt) {
  const std::string model = "a=" + path_;
  WriteFile(directory_.path() / "unknown.toml", "model = \"" + model + "\"\nlissten = \"x\"\n");
  WriteFile(directory_.path() / "bad.toml", "model = \"" + model + "\"\nthreads = 0\n");
  struct Case {
    std::vector<std::string> arguments;
    std::string named;
  };
  const std::vector<Case> cases = {
      {{}, "--model"},
      {{"--model"}, "--model"},
      {{"--model", "x"}, "--model"},
      {{"--model", "a=" + path_ + "/none"}, "--model"},
      {{"--model", model, "--model", model}, "--model"},
      {{"--model", model + ",rank=4"}, "--model: rank of model a: \"4\""},
      {{"--model", model, "--nonsense"}, "--nonsense"},
      {{"--model", model, "extra"}, "extra"},
      {{"--model", model, "--listen"}, "--listen"},
      {{"--model", model, "--listen", "127.0.0.1:65536"},
       "--listen: \"127.0.0.1:65536\" is not an address; allowed: HOST:PORT, [IPV6]:PORT, with "
       "ports from 0 to 65535"},
      {{"--model", model, "--listen", "localhost"}, "--listen: \"localhost\""},
      {{"--model", model, "--http-hosts", "a,b:80"}, "--http-hosts: \"b:80\" is not a host name"},
      {{"--model", model, "--http", "nowhere"}, "--http: \"nowhere\" is not an address"},
      {{"--model", model, "--http-hosts", "a"}, "--http-hosts: is set; allowed: only with --http"},
      {{"--model", model, "--http-origins", "http://a"},
       "--http-origins: is set; allowed: only wi"},
      {{"--model", model, "--http-origins", "http://a/b"},
       "--http-origins: \"http://a/b\" is not an origin; allowed: SCHEME://HOST[:PORT]"},
      {{"--model", model, "--http-origins", "a.example"}, "\"a.example\" is not an origin"},
      {{"--model", model, "--http-origins", "null"}, "\"null\" is not an origin"},
      {{"--model", model, "--listen", "localhost:"}, "--listen: \"localhost:\""},
      {{"--model", model, "--listen", "localhost:-1"}, "--listen: \"localhost:-1\""},
      {{"--model", model, "--listen", "localhost:https"}, "--listen: \"localhost:https\""},
      {{"--model", model, "--listen", ":50051"}, "--listen: \":50051\""},
      {{"--model", model, "--listen", "::1:50051"}, "--listen: \"::1:50051\""},
      {{"--model", model, "--listen", "[::1]"}, "--listen: \"[::1]\""},
      {{"--model", model, "--tls-cert", "x"}, "--tls-key: is missing; required with --tls-cert"},
      {{"--model", model, "--tls-key", "x"}, "--tls-cert: is missing; required with --tls-key"},
      {{"--model", model, "--tls-client-ca", "x"}, "--tls-cert: is missing"},
      {{"--model", model, "--reflection", "perhaps"}, "--reflection: perhaps not in {on,off}"},
      {{"--model", model, "--max-streams", "0"}, "--max-streams"},
      {{"--model", model, "--insecure=perhaps"}, "--insecure"},
      {{"--model", model, "--kv-cache-bytes", "x"}, "--kv-cache-bytes"},
      {{"--model", model, "--kv-cache-bytes", "-1"}, "--kv-cache-bytes"},
      {{"--model", model + ",kv-cache-bytes=2GiB"}, "--kv-cache-bytes"},
      {{"--model", model, "--dtype", "int4", "--device", "cuda"},
       "--device: cuda does not serve int4 weights; allowed: cpu"},
      {{"--model", model, "--embedding-dtype", "int8", "--device", "cuda"},
       "--device: cuda does not serve int8 weights; allowed: cpu"},
      {{"--model", model, "--embedding-dtype", "int3"}, "--embedding-dtype: int3 not in"},
      {{"--model", model, "--expert-dtype", "int3"}, "--expert-dtype: int3 not in"},
      {{"--model", model, "--kv-cache-dtype", "int8", "--device", "cuda"},
       "--device: cuda does not serve a cache in int8; allowed: cpu"},
      {{"--model", model, "--chat-template", "alpaca"},
       "--chat-template: \"alpaca\" is not a template: it is no file; allowed: a file of Jinja, "
       "own:NAME, or "
       "one of chatml, llama2, llama3, mistral, plain, zephyr"},
      {{"--model", model, "--dtype", "float16"},
       "--dtype: float16 not in {bfloat16,float32,int4,int8}"},
      {{"--model", model, "--dtype", "1"}, "--dtype"},
      {{"--model", model, "--kv-cache-dtype", "int2"}, "--kv-cache-dtype"},
      {{"--model", model, "--device", "gpu"}, "--device: gpu is not available; allowed: cpu"},
      {{"--model", model, "--device", "cuda:99"}, "--device: cuda:99 is not available"},
      {{"--model", model, "--expand-from", "-1"},
       "--expand-from: \"-1\" is not a position; allowed: auto, never, integers from 0 to "},
      {{"--model", model, "--expand-from", "always"}, "--expand-from: \"always\""},
      {{"--model", model, "--expand-from", "1.5"}, "--expand-from: \"1.5\""},
      {{"--model", model, "--expand-from="}, "--expand-from"},
      {{"--model", model, "--expand-from", "9223372036854775808"}, "--expand-from"},
      {{"--model", model, "--block-positions", "0"}, "--block-positions"},
      {{"--model", model, "--max-batch-tokens", "-3"}, "--max-batch-tokens"},
      {{"--model", model, "--max-running", "1.5"}, "--max-running"},
      {{"--model", model, "--max-running", "513"}, "--max-running"},
      {{"--model", model, "--max-waiting", "99999999999999999999"}, "--max-waiting"},
      {{"--model", model, "--threads", "0"}, "--threads"},
      {{"--model", model, "--drain-timeout", "-1"}, "--drain-timeout"},
      {{"--model", model, "--drain-timeout", "nan"}, "--drain-timeout"},
      {{"--model", model, "--drain-timeout", "inf"}, "--drain-timeout"},
      {{"--model", model, "--queue-timeout", "-1"}, "--queue-timeout"},
      {{"--model", model, "--stall-timeout", "0"}, "--stall-timeout"},
      {{"--model", model, "--prefix-cache", "true"}, "--prefix-cache"},
      {{"--model", model, "--max-slowdown", "1"}, "--max-slowdown"},
      {{"--model", model, "--max-slowdown", "nan"}, "--max-slowdown"},
      {{"--model", model, "--speculation", "on"}, "--speculation"},
      {{"--model", model, "--max-waiting-tokens", "0"}, "--max-waiting-tokens"},
      {{"--model", model, "--max-client-requests", "-1"}, "--max-client-requests"},
      {{"--model", model, "--client-rate", "-1"}, "--client-rate"},
      {{"--model", model, "--client-rate", "0.0001"}, "--client-rate"},
      {{"--model", model, "--client-rate", "nan"}, "--client-rate"},
      {{"--model", model, "--log-level", "loud"}, "--log-level"},
      {{"--model", model, "--log-format", "xml"}, "--log-format"},
      {{"--model", model, "--config", path_ + "/none.toml"},
       "--config " + path_ + "/none.toml: cannot be read"},
      {{"--config", path_ + "/unknown.toml"}, "--config " + path_ + "/unknown.toml: "},
      {{"--config", path_ + "/unknown.toml"}, "lissten; allowed: options as in --help"},
      {{"--config", path_ + "/bad.toml"}, "threads"},
  };
  for (const Case& c : cases) {
    const Parsed parsed = Parse(c.arguments);
    const std::string& err = parsed.err;
    EXPECT_EQ(parsed.exit_status, 2) << testing::PrintToString(c.arguments);
    EXPECT_THAT(parsed.out, IsEmpty());
    EXPECT_THAT(err, StartsWith("triptych-server: "));
    EXPECT_THAT(err, HasSubstr(c.named));
    EXPECT_THAT(err, EndsWith("\n"));
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  }
}

}  // namespace
}  // namespace triptych::server::options_test
