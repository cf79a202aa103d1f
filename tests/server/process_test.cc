// Tests of triptych-server as a process, and of the triptych program with it.

#include "tests/support/process.h"

#include <google/protobuf/stubs/logging.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "client/client.h"
#include "engine/base/quantities.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "tests/server/server_process.h"
#include "tests/server/test_server.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/random_model.h"
#include "tests/support/small_gguf.h"
#include "triptych/v1/admin.grpc.pb.h"

namespace triptych::server::process_test {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

using Args = std::vector<std::string>;

class ServerProcessTest : public testing::Test {
 protected:
  ServerProcessTest() {
    std::vector<TestModel> models = OneOfEachKind();
    models.push_back(EndlessModel());
    for (const TestModel& model : models) {
      WriteRandomCheckpoint(directory_.path() / model.name, model.config);
    }
  }

  Args Model(const std::string& name) const {
    return {"--model", name + "=" + (directory_.path() / name).string()};
  }
  // The option for a stored model under another name and with settings.
  Args Model(const std::string& name, const std::string& stored,
             const std::string& settings) const {
    return {"--model", name + "=" + (directory_.path() / stored).string() + "," + settings};
  }
  Args Models(const std::vector<std::string>& names, const Args& others = {}) const {
    Args arguments;
    for (const std::string& name : names) {
      for (const std::string& argument : Model(name)) arguments.push_back(argument);
    }
    arguments.insert(arguments.end(), others.begin(), others.end());
    return arguments;
  }

  // Runs a server that cannot start, and returns its one-line error.
  std::string StartError(const Args& arguments) {
    Args argv = {TRIPTYCH_SERVER_PROGRAM};
    if (std::find(arguments.begin(), arguments.end(), "--listen") == arguments.end()) {
      argv.insert(argv.end(), {"--listen", "127.0.0.1:0"});
    }
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    const Process::Result result = Process(argv, {}).Wait();
    EXPECT_NE(result.exit_code, 0);
    EXPECT_LT(result.exit_code, 128);
    EXPECT_THAT(result.err, StartsWith("triptych-server: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.out, Not(HasSubstr("listening")));
    return result.err;
  }

  const TempDir directory_;
};

// A line about each model, then a table of where its properties come from.
TEST_F(ServerProcessTest, LogsEachModel) {
  ServerProcess server(
      Models({"mha", "gqa", "mla"}, {"--kv-cache-bytes", "3MiB", "--expand-from", "12"}));
  ASSERT_NE(server.address(), "");
  constexpr int kLines = 9;  // of each model
  ASSERT_THAT(server.lines(), SizeIs(3 * kLines + 1));
  const std::vector<TestModel> models = OneOfEachKind();
  const std::string time = "^[0-9-]{10} [0-9:.]{12} info    ";
  for (int i = 0; i < 3; ++i) {
    const int64_t bytes = BytesPerPosition(models[i].config);
    const int64_t positions = (1 << 20) / (16 * bytes) * 16;
    const std::string& name = models[i].name;
    const std::string how = name == "mla" ? "; layers: 1 factored, 1 premultiplied; prompts by "
                                            "expanded attention from position 12 on"
                                          : "";
    EXPECT_TRUE(std::regex_search(
        server.lines()[i * kLines],
        std::regex(time + "model " + name + ": " + name + ", [0-9]+ parameters in float32, " +
                   std::to_string(bytes) + " bytes per position in float32, " +
                   std::to_string(positions) + " positions fit" + how + "$")))
        << server.lines()[i * kLines];
    const std::vector<std::string> table = {
        "tokenizer     bytes (no tokenizer file)",
        "end tokens    257 (no tokenizer file)",
        "begin token   256 (no tokenizer file)",
        "chat template none (the checkpoint has none; chat-template=FILE or NAME sets one)",
        "context       " + std::to_string(models[i].config.max_position_embeddings) +
            " positions (max_position_embeddings)",
        "weights       float32 (the checkpoint's), ",
        "KV cache      float32 (the default for these weights), " + std::to_string(positions) +
            " positions in ",
        "cache bytes   " + FormatCount(bytes) + " bytes a position = "};
    for (size_t line = 0; line < table.size(); ++line) {
      EXPECT_THAT(server.lines()[i * kLines + 1 + line],
                  HasSubstr("model " + name + ": " + table[line]));
    }
  }
  EXPECT_TRUE(std::regex_search(server.lines().back(),
                                std::regex(time + "listening on 127\\.0\\.0\\.1:[1-9][0-9]*$")))
      << server.lines().back();

  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_THAT(server.lines().back(), HasSubstr("drained; bye"));
  EXPECT_THAT(server.err(), IsEmpty());
}

TEST_F(ServerProcessTest, NamesTheDefaultsThatAreNotApplied) {
  WriteFile(directory_.path() / "mla" / "generation_config.json",
            R"({"temperature": 0.5, "typical_p": 0.9})");
  const ServerProcess server(Models({"mha", "mla"}));
  EXPECT_THAT(
      server.lines(),
      Contains(HasSubstr("warning model mla: settings of its generation_config.json that are "
                         "not applied: typical_p = 0.9")));
  EXPECT_THAT(server.lines(), Not(Contains(HasSubstr("model mha: settings"))));
}

TEST_F(ServerProcessTest, LogsJson) {
  ServerProcess server(Models({"mla"}, {"--log-format", "json", "--dtype", "bfloat16"}));
  const auto generation = Generate(*server.Inference(), Greedy("mla", "a", 5));
  const std::string line_of_request = server.ReadUntil("request ");
  server.Signal(SIGINT);
  EXPECT_EQ(server.Wait(), 0);
  std::vector<std::string> messages;
  for (const std::string& line : server.lines()) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_EQ(json.size(), line == line_of_request ? 21 : 3) << line;
    EXPECT_EQ(json.value("level", ""), "info");
    EXPECT_TRUE(std::regex_match(json.value("time", ""),
                                 std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z")))
        << line;
    messages.push_back(json.value("message", ""));
  }
  const auto of_model = StartsWith("model mla: ");
  EXPECT_THAT(messages,
              ElementsAre(of_model, of_model, of_model, of_model, of_model, of_model, of_model,
                          of_model, of_model, "listening on " + server.address(),
                          "request " + generation->RequestId() + " of 127.0.0.1 on mla: length",
                          "SIGINT: draining for at most 30 s", "drained; bye"));
  EXPECT_THAT(messages[0], HasSubstr("parameters in bfloat16"));
  const auto json = nlohmann::json::parse(line_of_request);
  const v1::Usage& usage = generation->completion().usage();
  EXPECT_EQ(json.at("request_id"), generation->RequestId());
  EXPECT_EQ(json.at("model"), "mla");
  EXPECT_EQ(json.at("client"), "127.0.0.1");
  EXPECT_EQ(json.at("outcome"), "length");
  EXPECT_EQ(json.at("prompt_tokens"), usage.prompt_tokens());
  EXPECT_EQ(json.at("generated_tokens"), 5);
  EXPECT_EQ(json.at("kv_cache_used_bytes"), usage.kv_cache().used_bytes());
  EXPECT_EQ(json.at("kv_cache_peak_allocated_bytes"), usage.kv_cache().peak_allocated_bytes());
  EXPECT_GT(json.at("queue_ms"), 0);
  EXPECT_GT(json.at("time_to_first_token_ms"), json.at("queue_ms"));
  EXPECT_GT(json.at("inter_token_mean_ms"), 0);
  EXPECT_GE(json.at("inter_token_max_ms"), json.at("inter_token_mean_ms"));
  EXPECT_GT(json.at("end_to_end_ms"), json.at("time_to_first_token_ms"));
}

TEST_F(ServerProcessTest, TextThatIsNoUtf8WritesNothingToStandardError) {
  const google::protobuf::LogSilencer silencer;  // for the client in this process
  ServerProcess server(Models({"mla"}));
  v1::TokenizeRequest request;
  request.set_text("\xff\xfe");
  v1::TokenizeResponse response;
  EXPECT_FALSE(
      CallUnary(*server.Inference(), &v1::InferenceService::Stub::Tokenize, request, &response)
          .ok());
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_THAT(server.err(), IsEmpty());
}

TEST_F(ServerProcessTest, ASignalLetsLiveStreamsEnd) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ServerProcess server(Models({"endless"}));
    const auto stub = v1::InferenceService::NewStub(SmallConnection(server.address()));
    GenerateCall stream(*stub, LongReply());
    ASSERT_TRUE(stream.Read());
    server.Signal(signal);
    ASSERT_NE(server.ReadUntil("draining"), "");
    const grpc::Status status = stream.Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_THAT(stream.tokens(), SizeIs(kLongReplyTokens));
    EXPECT_EQ(server.Wait(), 0);
    EXPECT_THAT(server.lines().back(), HasSubstr("drained; bye"));
    EXPECT_THAT(server.err(), IsEmpty());
  }
}

// The address on 127.0.0.1 where a process listens; empty if it does not listen yet.
std::string ListeningAddress(const std::string& pid) {
  std::set<std::string> sockets;
  for (const auto& file : std::filesystem::directory_iterator("/proc/" + pid + "/fd")) {
    std::error_code error;
    sockets.insert(std::filesystem::read_symlink(file, error));
  }
  // gRPC uses dual-stack sockets.
  const std::regex listens(" [0-9A-F]*0100007F:([0-9A-F]{4}) [0-9A-F:]+ 0A( +[^ ]+){5} +([0-9]+) ");
  for (const char* name : {"tcp", "tcp6"}) {
    std::ifstream table("/proc/" + pid + "/net/" + name);
    for (std::string line; std::getline(table, line);) {
      std::smatch match;
      if (std::regex_search(line, match, listens) &&
          sockets.contains("socket:[" + match[3].str() + "]")) {
        return "127.0.0.1:" + std::to_string(std::stoi(match[1], nullptr, 16));
      }
    }
  }
  return "";
}

TEST_F(ServerProcessTest, ServesThoughNothingCanBeLogged) {
  for (const char* format : {"text", "json"}) {
    const std::string pid_file = directory_.path() / "pid";
    Args argv = {"/bin/sh",
                 "-c",
                 "echo $$ >\"$0\"; echo begun; exec \"$@\" >/dev/full",
                 pid_file,
                 TRIPTYCH_SERVER_PROGRAM,
                 "--listen",
                 "127.0.0.1:0",
                 "--log-level",
                 "trace",
                 "--log-format",
                 format};
    const Args models = Models({"mla"});
    argv.insert(argv.end(), models.begin(), models.end());
    Process server(argv, {});
    ASSERT_TRUE(server.WaitForOutput("begun"));
    std::string pid = ReadFile(pid_file);
    pid.pop_back();  // the end of the line
    std::string address;
    const auto end = std::chrono::steady_clock::now() + kForever;
    while (address.empty()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      address = ListeningAddress(pid);
    }
    const auto stub = v1::InferenceService::NewStub(client::Connect(address));
    const auto loaded = [&] {
      return GenerateCall(*stub, Greedy("mla", "a", 1)).Finish().error_code() !=
             grpc::StatusCode::UNAVAILABLE;
    };
    while (!loaded()) ASSERT_LT(std::chrono::steady_clock::now(), end);
    for (int i = 0; i < 20; ++i) Generate(*stub, Greedy("mla", "a", 5));
    EXPECT_FALSE(GenerateCall(*stub, Greedy("mla", std::string(100, 'a'), 1)).Finish().ok());
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait().exit_code, 0);
  }
}

TEST_F(ServerProcessTest, DrainsThoughTheLogIsNotRead) {
  ServerProcess server(Models({"mla"}));
  server.CloseLog();
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

// The signal arrives during the second model's conversion, which takes seconds and begins as soon
// as the first model is logged.
TEST_F(ServerProcessTest, ASignalEndsTheLoadingOfModels) {
  ModelConfig slow = SmallModel(AttentionKind::kMha);
  slow.num_hidden_layers = 8;
  slow.num_attention_heads = slow.num_key_value_heads = 8;
  slow.head_dim = 96;
  slow.hidden_size = 8 * 96;
  WriteRandomCheckpoint(directory_.path() / "slow", slow);
  for (const int signal : {SIGTERM, SIGINT}) {
    Args argv = {TRIPTYCH_SERVER_PROGRAM, "--listen", "127.0.0.1:0"};
    for (const Args& model : {Model("mla"), Model("slow", "slow", "attention=mla")}) {
      argv.insert(argv.end(), model.begin(), model.end());
    }
    Process server(argv, {});
    ASSERT_TRUE(server.WaitForOutput("model mla:")) << server.Wait().err;
    server.Signal(signal);
    const Process::Result result = server.Wait();
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_EQ(result.err, "");
  }
}

TEST_F(ServerProcessTest, EndsAfterTheDrainTimeout) {
  ServerProcess server(Models({"endless"}, {"--drain-timeout", "0.1"}));
  const auto stub = server.Inference();
  GenerateCall stream(*stub, Greedy("", "a", kEndlessPositions - 10));
  ASSERT_TRUE(stream.Read());
  server.Signal(SIGTERM);
  EXPECT_THAT(stream.Finish().error_code(),
              AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED));
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_THAT(server.lines(), Contains(HasSubstr("cancelled")));
}

TEST_F(ServerProcessTest, ASecondSignalEndsItAtOnce) {
  ServerProcess server(Models({"endless"}, {"--drain-timeout", "3600"}));
  const auto stub = server.Inference();
  GenerateCall stream(*stub, Greedy("", "a", kEndlessPositions - 10));
  ASSERT_TRUE(stream.Read());
  server.Signal(SIGTERM);
  ASSERT_NE(server.ReadUntil("draining"), "");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_FALSE(stream.Finish().ok());
}

TEST_F(ServerProcessTest, ACallDrainsItAsASignalDoes) {
  ServerProcess server(Models({"endless"}));
  const auto admin = v1::AdminService::NewStub(client::Connect(server.address()));
  const auto inference = v1::InferenceService::NewStub(SmallConnection(server.address()));
  GenerateCall stream(*inference, LongReply());
  ASSERT_TRUE(stream.Read());
  v1::DrainRequest request;
  v1::DrainResponse response;
  request.mutable_timeout()->set_seconds(86401);
  EXPECT_TRUE(RefusesField(CallUnary(*admin, &v1::AdminService::Stub::Drain, request, &response),
                           "timeout"));
  request.mutable_timeout()->set_seconds(86400);
  ASSERT_TRUE(CallUnary(*admin, &v1::AdminService::Stub::Drain, request, &response).ok());
  EXPECT_EQ(response.live_requests(), 1);
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_THAT(stream.tokens(), SizeIs(kLongReplyTokens));
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_THAT(server.lines(),
              Contains(HasSubstr("AdminService.Drain: draining for at most 86400 s")));
  EXPECT_THAT(server.lines().back(), HasSubstr("drained; bye"));
}

// At the most verbose level, and with requests that fail in every way.
TEST_F(ServerProcessTest, TheLogHoldsNoTextOfPromptsOrReplies) {
  const std::string marker = "Xanadu";
  ServerProcess server(Models({"mha"}, {"--log-level", "trace"}));
  const auto stub = server.Inference();
  const auto generated = Generate(*stub, Greedy("mha", marker, 20))->text();
  v1::GenerateRequest bad = Greedy("mha", marker, 20);
  bad.add_stop(marker + std::string(1000, 'a'));
  EXPECT_FALSE(GenerateCall(*stub, bad).Finish().ok());
  EXPECT_FALSE(GenerateCall(*stub, Greedy("mha", marker + std::string(100, 'a'), 1)).Finish().ok());
  GenerateCall cancelled(*stub, Greedy("mha", marker, 20));
  cancelled.Cancel();
  cancelled.Finish();
  v1::TokenizeRequest tokenize;
  tokenize.set_text(marker);
  v1::TokenizeResponse tokens;
  EXPECT_TRUE(CallUnary(*stub, &v1::InferenceService::Stub::Tokenize, tokenize, &tokens).ok());
  v1::ScoreRequest score;
  score.add_inputs()->set_text(marker);
  v1::ScoreResponse scores;
  EXPECT_TRUE(CallUnary(*stub, &v1::InferenceService::Stub::Score, score, &scores).ok());
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  for (const std::string& line : server.lines()) {
    EXPECT_THAT(line, Not(HasSubstr(marker)));
    EXPECT_THAT(line, Not(HasSubstr(generated)));
  }
  EXPECT_THAT(server.err(), IsEmpty());
}

TEST_F(ServerProcessTest, AClientThatDiesFreesItsBlocks) {
  ServerProcess server(Models({"endless"}));
  Process dying({TRIPTYCH_CLI, "--server", server.address(), "generate", "--ignore-eos", "a"}, {});
  const auto stub = v1::KvCacheService::NewStub(client::Connect(server.address()));
  const auto used = [&] {
    v1::GetKvCacheStatsResponse stats;
    const grpc::Status status = CallUnary(*stub, &v1::KvCacheService::Stub::GetKvCacheStats,
                                          v1::GetKvCacheStatsRequest(), &stats);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return stats.total_used_bytes();
  };
  const auto end = std::chrono::steady_clock::now() + kForever;
  while (used() == 0) ASSERT_LT(std::chrono::steady_clock::now(), end);
  dying.Signal(SIGKILL);
  while (used() != 0) ASSERT_LT(std::chrono::steady_clock::now(), end);
}

TEST_F(ServerProcessTest, SaysInOneLineWhyItCannotStart) {
  const std::filesystem::path model = directory_.path() / "mla";
  const std::filesystem::path config = model / "config.json";
  const std::filesystem::path weights = model / "model.safetensors";

  EXPECT_THAT(StartError({"--model", "mla=" + model.string() + "/none"}),
              HasSubstr("mla/none\" of model mla is not a directory"));
  EXPECT_THAT(StartError(Models({"mla"}, {"--kv-cache-bytes", "10"})),
              AllOf(HasSubstr("model mla: "), HasSubstr("cache of 10 bytes")));
  const ServerProcess other(Models({"mla"}));
  EXPECT_THAT(StartError(Models({"mla"}, {"--listen", other.address()})),
              HasSubstr("--listen " + other.address()));

  const std::string none = directory_.path() / "none";
  EXPECT_THAT(StartError(Models({"mla"}, {"--tls-cert", none, "--tls-key", none})),
              HasSubstr(none));
  EXPECT_THAT(StartError(Models({"mla"}, {"--tls-cert", config, "--tls-key", config})),
              HasSubstr(config.string() + ": certificate 1 cannot be read"));
  EXPECT_THAT(StartError(Models({"mla"}, {"--tokens", none})), HasSubstr(none));
  EXPECT_THAT(StartError(Models({"mla"}, {"--tokens", config})),
              HasSubstr(config.string() + " line "));

  const std::filesystem::path defaults = model / "generation_config.json";
  WriteFile(defaults, "[]");
  EXPECT_THAT(StartError(Models({"mla"})),
              HasSubstr("model mla: " + defaults.string() + ": must hold a JSON object"));
  std::filesystem::remove(defaults);

  const std::string whole = ReadFile(weights);
  WriteFile(weights, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(StartError(Models({"mla"})), HasSubstr(weights.string()));
  std::filesystem::remove(weights);
  EXPECT_THAT(StartError(Models({"mla"})), HasSubstr(weights.string()));
  auto json = nlohmann::json::parse(ReadFile(config));
  json["num_attention_heads"] = 0;
  WriteFile(config, json.dump());
  EXPECT_THAT(StartError(Models({"mla"})),
              AllOf(HasSubstr(config.string()), HasSubstr("num_attention_heads")));
}

TEST_F(ServerProcessTest, NamesTheFileThatIsCutOff) {
  const std::filesystem::path sharded = directory_.path() / "sharded";
  std::filesystem::create_directory(sharded);
  const auto config = published::EveryFamily().front().config;
  published::WriteCheckpoint(sharded, config, published::RandomTensors(config, 1), 3);
  const std::filesystem::path shard = sharded / "model-00002-of-00003.safetensors";
  const std::filesystem::path gguf = directory_.path() / "m.gguf";
  WriteFile(gguf, SmallGguf());
  for (const auto& [name, file] : {std::pair{"sharded", shard}, {"m.gguf", gguf}}) {
    const std::string whole = ReadFile(file);
    for (const size_t bytes : {whole.size() - 1, whole.size() / 2, size_t{100}, size_t{0}}) {
      WriteFile(file, whole.substr(0, bytes));
      EXPECT_THAT(StartError({"--model", "a=" + (directory_.path() / name).string()}),
                  StartsWith("triptych-server: model a: " + file.string() + ": "));
    }
  }
}

// Sparse files of terabytes.
TEST_F(ServerProcessTest, AModelThatDoesNotFitIsNotRead) {
  ModelConfig config = SmallModel(AttentionKind::kMha);
  config.vocab_size = 1 << 24;
  config.hidden_size = 1 << 16;
  config.tie_word_embeddings = true;
  nlohmann::json header;
  uint64_t end = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    uint64_t bytes = 4;
    for (const int64_t extent : spec.shape) bytes *= static_cast<uint64_t>(extent);
    header[spec.name] = {
        {"dtype", "F32"}, {"shape", spec.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  const std::filesystem::path model = directory_.path() / "huge";
  std::filesystem::create_directory(model);
  WriteFile(model / "config.json", checkpoint::ToJson(config));
  WriteFile(model / "model.safetensors",
            std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text);
  std::error_code error;
  std::filesystem::resize_file(model / "model.safetensors", sizeof(length) + length + end, error);
  if (error) GTEST_SKIP() << "no such large files here: " << error.message();
  EXPECT_THAT(StartError({"--model", "huge=" + model.string()}),
              AllOf(HasSubstr("model huge: not enough memory: its cache takes "),
                    HasSubstr("its weights 4")));
  // As integers, the weights would take a quarter; the cache is unchanged.
  EXPECT_THAT(StartError({"--model", "huge=" + model.string(), "--dtype", "int8"}),
              HasSubstr("its weights 1"));
}

TEST_F(ServerProcessTest, ServesOneCheckpointThreeWays) {
  const ModelConfig stored = SmallModel(AttentionKind::kMha);
  const int64_t width = stored.hidden_size;
  constexpr int64_t kGroups = 1;
  ModelConfig latent = stored;
  latent.attention = AttentionKind::kMla;
  latent.kv_lora_rank.assign(stored.num_hidden_layers, width);  // full: the smaller of 2D and D
  ModelConfig grouped = stored;
  grouped.attention = AttentionKind::kGqa;
  grouped.num_key_value_heads = kGroups;
  struct Way {
    std::string name;
    Args arguments;
    ModelConfig config;
    int64_t row_elements;
    std::string logged;
  };
  const std::vector<Way> ways = {
      {"mha", Model("mha"), stored, 2 * width, "mha, "},
      {"latent", Model("latent", "mha", "attention=mla"), latent, width,
       "mla (converted from mha), "},
      {"grouped", Model("grouped", "mha", "kv-cache-bytes=1MiB,groups=1,attention=gqa"), grouped,
       2 * kGroups * stored.head_dim, "gqa (converted from mha), "}};
  Args arguments = {"--kv-cache-bytes", "3MiB"};
  for (const Way& way : ways) {
    arguments.insert(arguments.end(), way.arguments.begin(), way.arguments.end());
  }

  const ServerProcess server(arguments);
  ASSERT_NE(server.address(), "");
  const auto models = v1::ModelService::NewStub(client::Connect(server.address()));
  std::vector<std::unique_ptr<GenerateCall>> generations;
  for (size_t i = 0; i < ways.size(); ++i) {
    const Way& way = ways[i];
    EXPECT_THAT(server.lines(), Contains(HasSubstr("model " + way.name + ": " + way.logged)));
    v1::GetModelRequest request;
    request.set_model(way.name);
    v1::GetModelResponse response;
    ASSERT_TRUE(CallUnary(*models, &v1::ModelService::Stub::GetModel, request, &response).ok());
    const v1::Model& model = response.model();
    EXPECT_EQ(nlohmann::json::parse(model.config_json()),
              nlohmann::json::parse(checkpoint::ToJson(way.config)));
    EXPECT_THAT(model.row_elements(), ElementsAre(way.row_elements, way.row_elements));
    const int64_t bytes = 2 * 4 * way.row_elements;  // two layers in float32
    EXPECT_EQ(model.bytes_per_position(), bytes);
    EXPECT_EQ(model.mha_bytes_per_position(), MhaBytesPerPosition(stored));
    EXPECT_EQ(model.pool_positions(), (1 << 20) / (16 * bytes) * 16);
    EXPECT_EQ(model.parameters(), ParameterCount(way.config));

    generations.push_back(Generate(*server.Inference(), Greedy(way.name, "To be", 40)));
    EXPECT_EQ(generations[i]->completion().usage().kv_cache().bytes_per_position(), bytes);
  }
  EXPECT_THAT(generations[0]->tokens(), SizeIs(40));
  EXPECT_EQ(generations[1]->tokens(), generations[0]->tokens());
  EXPECT_EQ(generations[1]->text(), generations[0]->text());
  EXPECT_NE(generations[2]->tokens(), generations[0]->tokens());  // it is lossy
}

TEST_F(ServerProcessTest, ConvertingLosesNothingToTheDtypeThatIsServed) {
  // Convert in float32, then store in bfloat16.
  Checkpoint converted = Convert(LoadCheckpoint(directory_.path() / "mha", TensorFormat::kFloat32),
                                 {.attention = AttentionKind::kGqa, .groups = 1}, /*source=*/"mha");
  converted.config.torch_dtype = TensorFormat::kBFloat16;
  SaveCheckpoint(directory_.path() / "stored", converted.config, converted.weights);

  Args arguments = Models({"stored"}, {"--dtype", "bfloat16"});
  for (const std::string& argument : Model("loaded", "mha", "attention=gqa,groups=1")) {
    arguments.push_back(argument);
  }
  const ServerProcess server(arguments);
  ASSERT_NE(server.address(), "");
  const auto log_likelihood = [&](const std::string& model) {
    v1::ScoreRequest request;
    request.set_model(model);
    request.add_inputs()->set_text("To be, or not to be, that is the question");
    v1::ScoreResponse response;
    const grpc::Status status =
        CallUnary(*server.Inference(), &v1::InferenceService::Stub::Score, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.results(0).log_likelihood();
  };
  EXPECT_LT(log_likelihood("stored"), 0);
  EXPECT_EQ(log_likelihood("loaded"), log_likelihood("stored"));
}

TEST_F(ServerProcessTest, SaysInOneLineWhyItCannotConvert) {
  const auto error = [&](const std::string& stored, const std::string& settings) {
    return StartError(Model("a", stored, settings));
  };
  // The model, its directory and the reason.
  const auto says = [&](const std::string& stored, const std::string& reason) {
    return HasSubstr("model a: " + (directory_.path() / stored).string() + ": " + reason);
  };
  EXPECT_THAT(error("mha", "attention=mla,rank=25"),
              says("mha", "rank 25 is out of range; allowed: 1 to 24"));
  EXPECT_THAT(error("gqa", "attention=gqa,groups=4"), says("gqa", "groups 4 must divide its 2"));
  EXPECT_THAT(error("mla", "attention=mha"), says("mla", "attention is \"mla\""));
  ModelConfig rotary = SmallModel(AttentionKind::kMha);
  rotary.position_embedding = PositionEmbedding::kRope;
  WriteRandomCheckpoint(directory_.path() / "rotary", rotary);
  EXPECT_THAT(error("rotary", "attention=mla,rope-head-dim=3"),
              says("rotary", "decoupled rotary keys of width 3"));
}

TEST_F(ServerProcessTest, TheClientProgramWorksWithIt) {
  ServerProcess server(Models({"mha", "gqa", "mla"}));
  const auto run = [&](const Args& arguments) {
    Args argv = {TRIPTYCH_CLI, "--server", server.address()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return Process(argv, {}).Wait();
  };
  const auto run_well = [&](const Args& arguments) {
    const Process::Result result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, Not(IsEmpty()));
    return result.out;
  };

  Process::Result result =
      run({"generate", "--model", "mla", "-n", "12", "--seed", "3", "--ignore-eos", "To be"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, Not(IsEmpty()));
  EXPECT_THAT(result.err, HasSubstr("6 prompt + 12 new tokens"));
  EXPECT_THAT(result.err, HasSubstr("cache: 17 positions"));

  const std::string compared = run_well({"compare", "-n", "8", "--ignore-eos", "To be"});
  for (const char* kind : {"mha", "gqa", "mla"}) EXPECT_THAT(compared, HasSubstr(kind));
  const auto models = nlohmann::json::parse(run_well({"models", "--json"}));
  EXPECT_EQ(models.at("models").size(), 3);
  EXPECT_THAT(run_well({"models"}), HasSubstr("gqa"));
  const auto stats = nlohmann::json::parse(run_well({"kv", "--json"}));
  EXPECT_EQ(stats.at("totalUsedBytes"), "0");
  EXPECT_THAT(run_well({"kv"}), HasSubstr("mla"));
  const auto score = nlohmann::json::parse(run_well({"score", "--model", "gqa", "--json", "abc"}));
  EXPECT_EQ(score.at("results").at(0).at("scoredTokens"), 3);

  result = run({"generate", "--model", "mqa", "x"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("model \"mqa\" is not loaded"));
  result = run({"generate", "--model", "mha", std::string(100, 'a')});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("context"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;

  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

}  // namespace
}  // namespace triptych::server::process_test
