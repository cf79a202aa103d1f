// Tests of the `triptych` program, run as a process against a fake server.

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/client/fake_server.h"
#include "tests/client/run_cli.h"
#include "tests/support/process.h"

namespace triptych::client::cli_test {
namespace {

using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageDifferencer;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

using Generation = Stream<v1::GenerateResponse>;
using Watching = Stream<v1::WatchKvCacheStatsResponse>;

v1::GenerateResponse Text(const std::string& text) {
  v1::GenerateResponse response;
  response.set_text(text);
  for (const char c : text) response.add_token_ids(static_cast<unsigned char>(c));
  return response;
}

// The last message of a request whose cache is `times` smaller than MHA's.
v1::GenerateResponse Last(const std::string& text, int times = 8) {
  v1::GenerateResponse response = Text(text);
  v1::Completion& completion = *response.mutable_completion();
  completion.set_finish_reason(v1::FINISH_REASON_LENGTH);
  completion.set_request_id("r1");
  completion.set_seed(42);
  v1::Usage& usage = *completion.mutable_usage();
  usage.set_prompt_tokens(24);
  usage.set_generated_tokens(1001);
  usage.mutable_queue_time()->set_nanos(2'000'000);
  usage.mutable_prefill_time()->set_nanos(10'300'000);
  usage.mutable_decode_time()->set_seconds(2);
  v1::KvCacheUsage& cache = *usage.mutable_kv_cache();
  cache.set_positions(1024);
  cache.set_bytes_per_position(4096 / times);
  cache.set_used_bytes(1024 * 4096 / times);
  cache.set_allocated_bytes(1040 * 4096 / times);
  cache.set_peak_allocated_bytes(1056 * 4096 / times);
  cache.set_mha_used_bytes(1024 * 4096);
  return response;
}

v1::Model MakeModel(const std::string& name, v1::AttentionKind attention, int times) {
  v1::Model model;
  model.set_name(name);
  model.set_attention(attention);
  model.set_parameters(3276800);
  model.set_parameter_bytes(6553600);
  model.set_weight_dtype("bfloat16");
  model.set_kv_cache_dtype("bfloat16");
  model.set_elements_per_position(2048 / times);
  model.set_bytes_per_position(4096 / times);
  model.set_mha_bytes_per_position(4096);
  model.set_max_positions(512);
  model.set_pool_positions(87381 * times);
  if (attention == v1::ATTENTION_KIND_MLA) {
    model.add_latent_forms("factored");
    model.set_expand_from(0);
  }
  return model;
}

grpc::Status ListThree(const v1::ListModelsRequest&, v1::ListModelsResponse* response) {
  *response->add_models() = MakeModel("shakespeare-mha", v1::ATTENTION_KIND_MHA, 1);
  *response->add_models() = MakeModel("shakespeare-gqa", v1::ATTENTION_KIND_GQA, 4);
  *response->add_models() = MakeModel("shakespeare-mla", v1::ATTENTION_KIND_MLA, 8);
  return grpc::Status::OK;
}

v1::GetKvCacheStatsResponse MakeStats(int64_t used) {
  v1::GetKvCacheStatsResponse stats;
  for (const std::string name : {"shakespeare-mha", "shakespeare-mla"}) {
    v1::KvCacheStats& model = *stats.add_models();
    model.set_model(name);
    model.set_pool_bytes(64 << 20);
    model.set_used_bytes(used);
    model.set_total_blocks(1024);
    model.set_free_blocks(1000);
    model.set_preemptions(7);
  }
  stats.set_total_pool_bytes(128 << 20);
  stats.set_total_used_bytes(2 * used);
  return stats;
}

v1::WatchKvCacheStatsResponse Update(int64_t used) {
  v1::WatchKvCacheStatsResponse response;
  *response.mutable_stats() = MakeStats(used);
  return response;
}

// A file that is removed at the end of the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    std::string path = testing::TempDir() + "triptych_cli_XXXXXX";
    close(mkstemp(path.data()));
    path_ = path;
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class CliTest : public testing::Test {
 public:
  ~CliTest() override {
    const std::lock_guard lock(mutex_);  // synchronises with the server's threads
    requests_.clear();
  }

 private:
  // Declared before the server, which uses them until it has ended.
  std::mutex mutex_;
  std::vector<v1::GenerateRequest> requests_;  // Guarded by mutex_.

 protected:
  // The program's arguments, including the server's address.
  Args Command(const Args& args) const { return CliCommand(server_.address(), args); }
  Process::Result Run(const Args& args, const Process::Options& options = {}) const {
    return Process(Command(args), options).Wait();
  }
  // Makes the server answer Generate with `stream`, and record the request.
  void AnswerGenerate(const Generation& stream) {
    server_.generate = [this, stream](const v1::GenerateRequest& request) {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      return stream;
    };
  }
  std::vector<v1::GenerateRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  FakeServer server_;
};

using GenerateTest = CliTest;
using KvTest = CliTest;
using HealthTest = CliTest;
using CompareTest = CliTest;

TEST_F(GenerateTest, PrintsTheTextAsItIsAndASummary) {
  AnswerGenerate({{Text("To be,"), Text(""), Text(" or\n\tñot"), Last(" 日本")}});
  const auto result = Run({"generate", "Hamlet: "});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "To be, or\n\tñot 日本");
  EXPECT_EQ(result.err,
            "\n24 prompt + 1,001 new tokens (length), 500.0 tokens/s, first token after 12.3 ms, "
            "seed 42\n"
            "cache: 1,024 positions x 512 B = 512.0 KiB used, 520.0 KiB allocated (peak 528.0 "
            "KiB); MHA would use 4.0 MiB (8.0x)\n");
}

TEST_F(GenerateTest, QuietLeavesOutTheSummary) {
  AnswerGenerate({{Last("text")}});
  const auto result = Run({"generate", "--quiet", "Hamlet"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "text");
  EXPECT_EQ(result.err, "");
}

TEST_F(GenerateTest, JsonIsOneLineForEachMessageAndParsesBack) {
  std::vector<v1::GenerateResponse> messages = {Text("a\n\"é"), Text(""), Last("end")};
  v1::TokenLogprobs& logprobs = *messages[0].add_logprobs();
  logprobs.mutable_chosen()->set_logprob(-0.5);
  logprobs.add_top()->set_token_id(65);
  AnswerGenerate({messages});
  const auto result = Run({"generate", "--json", "--logprobs", "1", "Hamlet"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  const auto lines = Lines(result.out);
  ASSERT_EQ(lines.size(), messages.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    v1::GenerateResponse parsed;
    ASSERT_TRUE(JsonStringToMessage(lines[i], &parsed).ok()) << lines[i];
    EXPECT_TRUE(MessageDifferencer::Equals(parsed, messages[i])) << lines[i];
  }
  EXPECT_THAT(lines[1], HasSubstr("\"tokenIds\":[]"));  // Empty fields are printed.
  EXPECT_THAT(lines[2], HasSubstr("\"preemptions\":0"));
  ASSERT_EQ(requests().size(), 1u);
  EXPECT_EQ(requests()[0].logprobs(), 1);
}

TEST_F(GenerateTest, EveryFlagReachesTheRequest) {
  AnswerGenerate({{Last("")}});
  const std::string flags =
      "generate --model=shakespeare-mla -n 7 --temperature 0 --top-k 40 --top-p 0.9 --min-p 0.05 "
      "--repetition-penalty 1.5 --presence-penalty -1.5 --frequency-penalty 0.25 "
      "--logit-bias 10=-1000 --logit-bias 65=2.5 --seed 18446744073709551615 --stop [a,b] "
      "--ignore-eos --json --logprobs 0 --tokens 1,255,0 --stop-tokens 3,4 --include-stop "
      "--min-new-tokens 2 --allowed-tokens 5,6,7 --priority high --no-prefix-cache --choices 1 "
      "--echo --prompt-logprobs 3 --stop";
  std::istringstream words(flags);
  Args args{std::istream_iterator<std::string>(words), {}};
  args.push_back("\n\n");
  const auto result = Run(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  v1::GenerateRequest expected;
  expected.set_model("shakespeare-mla");
  for (const int id : {1, 255, 0}) expected.mutable_tokens()->add_ids(id);
  expected.set_max_new_tokens(7);
  v1::SamplingParams& sampling = *expected.mutable_sampling();
  sampling.set_temperature(0);
  sampling.set_top_k(40);
  sampling.set_top_p(0.9f);
  sampling.set_min_p(0.05f);
  sampling.set_repetition_penalty(1.5f);
  sampling.set_presence_penalty(-1.5f);
  sampling.set_frequency_penalty(0.25f);
  (*sampling.mutable_logit_bias())[10] = -1000;
  (*sampling.mutable_logit_bias())[65] = 2.5f;
  sampling.set_seed(18446744073709551615u);
  expected.add_stop("[a,b]");
  expected.add_stop("\n\n");
  expected.set_ignore_eos(true);
  for (const int id : {3, 4}) expected.add_stop_token_ids(id);
  expected.set_include_stop(true);
  expected.set_min_new_tokens(2);
  for (const int id : {5, 6, 7}) sampling.add_allowed_token_ids(id);
  expected.set_priority(v1::PRIORITY_HIGH);
  expected.set_bypass_prefix_cache(true);
  expected.set_n(1);
  expected.set_echo(true);
  expected.set_prompt_logprobs(3);
  expected.set_logprobs(0);
  ASSERT_EQ(requests().size(), 1u);
  EXPECT_TRUE(MessageDifferencer::Equals(requests()[0], expected)) << requests()[0].DebugString();
}

// The model decides about flags that are not given.
TEST_F(GenerateTest, OnlyFlagsThatAreGivenReachTheRequest) {
  AnswerGenerate({{Last("")}});
  EXPECT_EQ(Run({"generate", "x"}).exit_code, 0);
  v1::GenerateRequest expected;
  expected.set_text("x");
  expected.mutable_sampling();
  ASSERT_EQ(requests().size(), 1u);
  EXPECT_TRUE(MessageDifferencer::Equals(requests()[0], expected)) << requests()[0].DebugString();

  EXPECT_EQ(Run({"generate", "--temperature", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0",
                 "--repetition-penalty", "1", "x"})
                .exit_code,
            0);
  v1::SamplingParams& sampling = *expected.mutable_sampling();
  sampling.set_temperature(1);
  sampling.set_top_k(0);
  sampling.set_top_p(1);
  sampling.set_min_p(0);
  sampling.set_repetition_penalty(1);
  ASSERT_EQ(requests().size(), 2u);
  EXPECT_TRUE(MessageDifferencer::Equals(requests()[1], expected)) << requests()[1].DebugString();
}

TEST_F(GenerateTest, HowATextBecomesTokensReachesTheRequest) {
  AnswerGenerate({{Last("")}});
  const auto result = Run({"generate", "--parse-special-tokens", "--no-begin-token", "<s>Hamlet"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  v1::GenerateRequest expected;
  expected.set_text("<s>Hamlet");
  expected.set_parse_special_tokens(true);
  expected.set_begin_token(false);
  expected.mutable_sampling();
  ASSERT_EQ(requests().size(), 1u);
  EXPECT_TRUE(MessageDifferencer::Equals(requests()[0], expected)) << requests()[0].DebugString();
}

TEST_F(GenerateTest, TheFormAndTheDraftsOfTheOutputReachTheRequest) {
  AnswerGenerate({{Last("")}});
  const TemporaryFile file("root ::= [a]\n");
  struct Case {
    Args flags;
    std::function<void(v1::GenerateRequest&)> set;
  };
  const std::vector<Case> cases = {
      {{"--json-schema", "true"}, [](auto& request) { request.set_json_schema("true"); }},
      {{"--json-schema-file", file.path()},
       [](auto& request) { request.set_json_schema("root ::= [a]\n"); }},
      {{"--json-object"}, [](auto& request) { request.set_json_object(true); }},
      {{"--regex", "-?[0-9]+"}, [](auto& request) { request.set_regex("-?[0-9]+"); }},
      {{"--choice", "a b", "--choice", "c"},
       [](auto& request) {
         for (const char* const text : {"a b", "c"}) request.mutable_choice()->add_texts(text);
       }},
      {{"--grammar", "root ::= [b]"}, [](auto& request) { request.set_grammar("root ::= [b]"); }},
      {{"--grammar-file", file.path()},
       [](auto& request) { request.set_grammar("root ::= [a]\n"); }},
      {{"--max-draft-tokens", "0"}, [](auto& request) { request.set_max_draft_tokens(0); }},
      {{"--prediction-file", file.path()},
       [](auto& request) { request.set_prediction("root ::= [a]\n"); }},
  };
  for (const auto& [flags, set] : cases) {
    Args args = {"generate"};
    args.insert(args.end(), flags.begin(), flags.end());
    args.push_back("x");
    const auto result = Run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    v1::GenerateRequest expected;
    expected.set_text("x");
    expected.mutable_sampling();
    set(expected);
    ASSERT_FALSE(requests().empty());
    EXPECT_TRUE(MessageDifferencer::Equals(requests().back(), expected))
        << requests().back().DebugString();
  }
  EXPECT_EQ(requests().size(), cases.size());
}

TEST_F(GenerateTest, PrintsChoicesOneAfterTheOther) {
  const auto of = [](int choice, v1::GenerateResponse response) {
    response.set_choice(choice);
    return response;
  };
  v1::GenerateResponse shared = Last("!");
  shared.mutable_completion()->mutable_usage()->set_cached_prompt_tokens(16);
  shared.mutable_completion()->mutable_usage()->mutable_kv_cache()->set_shared_bytes(2048);
  AnswerGenerate(
      {{of(1, Text("b")), of(0, Text("a")), of(2, Last("c")), of(1, shared), of(0, Last("!"))}});
  const auto result = Run({"generate", "--choices", "3", "x"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::string rule;
  for (int i = 0; i < 88; ++i) rule += "─";
  EXPECT_EQ(result.out, "── choice 0 " + rule + "\na!\n── choice 1 " + rule + "\nb!\n── choice 2 " +
                            rule + "\nc\n");
  EXPECT_EQ(Lines(result.err).size(), 9u);
  EXPECT_THAT(result.err, HasSubstr("24 prompt (16 prefix hits) + 1,001 new tokens"));
  EXPECT_THAT(result.err,
              HasSubstr("520.0 KiB allocated (2.0 KiB of them shared, peak 528.0 KiB)"));
  ASSERT_EQ(requests().size(), 1u);
  EXPECT_EQ(requests()[0].n(), 3);

  AnswerGenerate({{of(0, Last("a"))}});  // without the second choice
  EXPECT_EQ(Run({"generate", "--choices", "2", "x"}).exit_code, 1);
}

TEST_F(GenerateTest, FlagsNotGivenAreAbsent) {
  AnswerGenerate({{Last("")}});
  EXPECT_EQ(Run({"generate", "Hamlet"}).exit_code, 0);
  v1::GenerateRequest expected;
  expected.set_text("Hamlet");
  expected.mutable_sampling();
  ASSERT_EQ(requests().size(), 1u);
  EXPECT_TRUE(MessageDifferencer::Equals(requests()[0], expected)) << requests()[0].DebugString();
}

TEST_F(GenerateTest, ReadsThePromptFromEverywhere) {
  AnswerGenerate({{Last("")}});
  const TemporaryFile file("from a file\n");
  const std::string with_null("from\0stdin\n", 11);
  struct Case {
    std::string name;
    Args args;
    std::string input;
    std::string prompt;
  };
  const std::vector<Case> cases = {
      {"a file", {"--file", file.path()}, "", "from a file\n"},
      {"standard input", {}, with_null, with_null},
      {"standard input as a file", {"--file", "-"}, "the same", "the same"},
      {"an argument", {"models"}, "not this", "models"},
      {"an argument like a flag", {"--", "--help"}, "", "--help"},
      {"an argument like a list", {"[a, b]"}, "", "[a, b]"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Args args = {"generate"};
    args.insert(args.end(), c.args.begin(), c.args.end());
    EXPECT_EQ(Run(args, {.input = c.input}).exit_code, 0);
    ASSERT_FALSE(requests().empty());
    EXPECT_EQ(requests().back().text(), c.prompt);
  }
  EXPECT_EQ(requests().size(), cases.size());
}

TEST_F(GenerateTest, TheServerIsNamedBeforeOrAfterTheCommandOrInTheEnvironment) {
  AnswerGenerate({{Last("text")}});
  const std::string address = server_.address();
  struct Case {
    std::string name;
    Args args;
    std::string variable;
  };
  const std::vector<Case> cases = {
      {"after the command", {"generate", "x", "--server", address}, "A=B"},
      {"before another flag", {"--timeout", "60", "generate", "x", "--server=" + address}, "A=B"},
      {"in the environment", {"generate", "x"}, "TRIPTYCH_SERVER=" + address},
      {"the flag goes first", {"generate", "x", "--server", address}, "TRIPTYCH_SERVER=h:1"},
      {"no proxy", {"generate", "x", "--server", address}, "http_proxy=http://192.0.2.1:1"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Args command = {TRIPTYCH_CLI};
    command.insert(command.end(), c.args.begin(), c.args.end());
    EXPECT_EQ(Process(command, {.environment = {c.variable}}).Wait().out, "text");
  }
}

TEST_F(GenerateTest, EchoesThePromptOnATerminalAndKeepsItHarmless) {
  AnswerGenerate({{Text(" or\x1b[2J"), Last("\u009bK not\r é")}});
  const auto result = Run({"generate", "To be"}, {.terminal = true});
  EXPECT_EQ(result.exit_code, 0);
  // The terminal turns newlines into CR LF.
  EXPECT_EQ(result.out, "\x1b[2mTo be\x1b[0m or\ufffd[2J\ufffdK not\ufffd é\r\n");
  EXPECT_THAT(result.err, StartsWith("\n24 prompt"));
}

TEST_F(GenerateTest, CtrlCCancelsAndKeepsWhatWasPrinted) {
  for (const bool terminal : {false, true}) {
    FakeServer server;
    server.generate = [](const auto&) {
      return Generation{{Text("To be,"), Text(" or not")}, Generation::Then::kHold};
    };
    Process process({TRIPTYCH_CLI, "--server", server.address(), "generate", "x"},
                    {.terminal = terminal});
    ASSERT_TRUE(process.WaitForOutput("To be, or not"));  // Streamed before the end.
    process.Signal(SIGINT);
    server.WaitForCancel();
    const auto result = process.Wait();
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_THAT(result.out, EndsWith(terminal ? "To be, or not\r\n" : "To be, or not"));
    EXPECT_EQ(result.err, "");
  }
}

TEST_F(GenerateTest, CtrlCEndsTheReadingOfAPrompt) {
  Process process(Command({"generate", "--file", "-"}), {.terminal = true});
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait().exit_code, 130);
}

TEST_F(GenerateTest, ABrokenPipeEndsItQuietly) {
  AnswerGenerate({{Text("line\n")}, Generation::Then::kRepeat});
  const auto result = Process({"/bin/sh", "-c", "\"$@\" | head -n 2", "sh", TRIPTYCH_CLI,
                               "--server", server_.address(), "generate", "x"},
                              {})
                          .Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "line\nline\n");
  EXPECT_EQ(result.err, "");
  server_.WaitForCancel();
}

TEST_F(GenerateTest, SaysThatItCannotWrite) {
  AnswerGenerate({{Last("text")}});
  const auto result = Process({"/bin/sh", "-c", "exec \"$@\" > /dev/full", "sh", TRIPTYCH_CLI,
                               "--server", server_.address(), "generate", "x"},
                              {})
                          .Wait();
  ExpectError(result, 1, "cannot write to standard output: No space left on device");
}

TEST_F(GenerateTest, RefusesInputsItCannotUse) {
  AnswerGenerate({{Last("")}});
  const TemporaryFile latin1("caf\xe9");
  struct Case {
    std::string name;
    Args args;
    std::string input;
    std::string error;
  };
  const std::vector<Case> cases = {
      {"an absent file",
       {"--file", "/no/such/file"},
       "",
       "--file: cannot read '/no/such/file': No such file or directory"},
      {"a directory", {"--file", "/"}, "", "--file: cannot read '/': Is a directory"},
      {"a file in Latin-1", {"--file", latin1.path()}, "", "not valid UTF-8 (byte 3)"},
      {"bytes of standard input", {}, "\xff", "not valid UTF-8 (byte 0)"},
      {"bytes of an argument", {"a\xc3"}, "", "not valid UTF-8 (byte 1)"},
      {"empty standard input", {}, "", "the text is empty"},
      {"an empty argument", {""}, "", "the text is empty"},
      {"an endless file", {"--file", "/dev/zero"}, "", "longer than"},
      {"a text and tokens", {"x", "--tokens", "1"}, "", "give only one of"},
      {"a file and tokens", {"--file", "x", "--tokens", "1"}, "", "give only one of"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Args args = {"generate"};
    args.insert(args.end(), c.args.begin(), c.args.end());
    ExpectError(Run(args, {.input = c.input}), 2, c.error);
  }
  const auto result = Run({"generate"}, {.terminal = true});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("nothing to read: give the text"));
  EXPECT_TRUE(requests().empty());
}

TEST_F(GenerateTest, SaysWhyTheServerRefused) {
  struct Case {
    grpc::StatusCode code;
    std::string expected;
  };
  for (const auto& [code, expected] :
       std::vector<Case>{{grpc::StatusCode::CANCELLED, "cancelled: why"},
                         {grpc::StatusCode::UNKNOWN, "unknown error: why"},
                         {grpc::StatusCode::INVALID_ARGUMENT, "invalid argument: why"},
                         {grpc::StatusCode::DEADLINE_EXCEEDED, "deadline exceeded: why"},
                         {grpc::StatusCode::NOT_FOUND, "not found: why"},
                         {grpc::StatusCode::ALREADY_EXISTS, "already exists: why"},
                         {grpc::StatusCode::PERMISSION_DENIED, "permission denied: why"},
                         {grpc::StatusCode::RESOURCE_EXHAUSTED, "resource exhausted: why"},
                         {grpc::StatusCode::FAILED_PRECONDITION, "failed precondition: why"},
                         {grpc::StatusCode::ABORTED, "aborted: why"},
                         {grpc::StatusCode::OUT_OF_RANGE, "out of range: why"},
                         {grpc::StatusCode::UNIMPLEMENTED, "unimplemented: why"},
                         {grpc::StatusCode::INTERNAL, "internal error: why"},
                         {grpc::StatusCode::UNAVAILABLE, "unavailable: why\n"},
                         {grpc::StatusCode::DATA_LOSS, "data loss: why"},
                         {grpc::StatusCode::UNAUTHENTICATED, "unauthenticated: why"}}) {
    SCOPED_TRACE(expected);
    AnswerGenerate({{}, Generation::Then::kFinish, grpc::Status(code, "why")});
    ExpectError(Run({"generate", "x"}), 1, expected);
  }
}

TEST_F(GenerateTest, SaysTheDetailsOfARefusal) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  google::rpc::Status details;
  details.add_details()->PackFrom(retry);
  AnswerGenerate({{},
                  Generation::Then::kFinish,
                  grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full",
                               details.SerializeAsString())});
  ExpectError(Run({"generate", "x"}), 1, "resource exhausted: the queue is full; retry in 2 s\n");
}

TEST_F(GenerateTest, TheTimeoutIsADeadline) {
  AnswerGenerate({{}, Generation::Then::kHold});
  ExpectError(Run({"generate", "x", "--timeout", "0.01"}), 1, "deadline exceeded: ");
}

TEST_F(GenerateTest, SaysThatTheServerWentAway) {
  AnswerGenerate({{Text("text")}, Generation::Then::kHold});
  Process process(Command({"generate", "x"}), {});
  ASSERT_TRUE(process.WaitForOutput("text"));
  server_.ShutDown();
  const auto result = process.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "text");
  EXPECT_EQ(Lines(result.err).size(), 1u) << result.err;
}

TEST_F(GenerateTest, SaysThatThereIsNoServer) {
  // A reserved port with no listener.
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  ASSERT_EQ(bind(socket_fd, reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(getsockname(socket_fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  for (const Args& args : {Args{"generate", "x"}, Args{"compare", "x"}, Args{"score", "x"},
                           Args{"models"}, Args{"kv"}, Args{"kv", "--watch"}, Args{"health"}}) {
    Args command = {TRIPTYCH_CLI, "--server", address};
    command.insert(command.end(), args.begin(), args.end());
    ExpectError(Process(command, {}).Wait(), 1,
                "unavailable: Connection refused (is triptych-server running at " + address + "?)");
  }
  close(socket_fd);
}

TEST_F(GenerateTest, AStreamWithoutACompletionIsAnError) {
  AnswerGenerate({{Text("text")}});
  for (const Args& args : {Args{"generate", "x"}, Args{"generate", "--json", "x"}}) {
    const auto result = Run(args);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err, "triptych: the server ended the stream without a completion\n");
  }
}

TEST_F(CliTest, RefusesBadFlagsInOneLine) {
  struct Case {
    Args args;
    std::string expected;
  };
  for (const auto& [args, expected] : std::vector<Case>{
           {{}, "A command is required"},
           {{"sing"}, "not expected: sing"},
           {{"generate", "to", "be"},
            "not expected: be (see --help; text of several words needs quotes)"},
           {{"generate", "x", "--frobnicate"}, "--frobnicate"},
           {{"generate", "x", "--temperature", "hot"},
            "--temperature: must be a number, 0 to 100, not 'hot'"},
           {{"generate", "x", "--temperature", "100.5"}, "0 to 100, not '100.5'"},
           {{"generate", "x", "--temperature", "nan"}, "not 'nan'"},
           {{"generate", "x", "--temperature", ""}, "not ''"},
           {{"generate", "x", "--temperature"}, "--temperature: "},
           {{"generate", "x", "--temperature", "1\n2"}, "not '1 2'"},
           {{"generate", "x", "--top-p", "0"}, "--top-p: must be a number, above 0, up to 1"},
           {{"generate", "x", "--min-p", "1.1"}, "--min-p: must be a number, 0 to 1, not '1.1'"},
           {{"generate", "x", "--top-k", "-1"}, "--top-k: must be a whole number, 0 to"},
           {{"generate", "x", "--top-k", "1.5"}, "not '1.5'"},
           {{"generate", "x", "-n", "0"}, "--max-new-tokens: must be a whole number, 1 to"},
           {{"generate", "x", "-n", "99999999999"}, "not '99999999999'"},
           {{"generate", "x", "--seed", "18446744073709551616"}, "--seed: "},
           {{"generate", "x", "--seed", "1", "--seed", "2"}, "--seed: "},
           {{"generate", "x", "--repetition-penalty", "0"}, "--repetition-penalty: "},
           {{"generate", "x", "--presence-penalty", "101"}, "--presence-penalty: "},
           {{"generate", "x", "--frequency-penalty", "-101"}, "--frequency-penalty: "},
           {{"generate", "x", "--logit-bias", "7"}, "--logit-bias: must be ID=VALUE"},
           {{"generate", "x", "--logit-bias", "-7=1"}, "not '-7=1'"},
           {{"generate", "x", "--logit-bias", "7=1001"}, "from -1000 to 1000, not '7=1001'"},
           {{"generate", "x", "--stop", ""}, "--stop: must not be empty"},
           {{"generate", "x", "--stop", "\xff"}, "--stop: must be valid UTF-8"},
           {{"generate", "x", "--model", "\xff"}, "--model: must be valid UTF-8"},
           {{"generate", "x", "--logprobs", "1"}, "--logprobs requires --json"},
           {{"generate", "x", "--json", "--logprobs", "21"}, "--logprobs: "},
           {{"generate", "--tokens", "1,,2"}, "--tokens: must be a list of token ids"},
           {{"generate", "--tokens", "1", "--no-begin-token"}, "excludes"},
           {{"score", "--tokens", "1", "--parse-special-tokens"}, "excludes"},
           {{"tokenize", "--tokens", "1"}, "--tokens"},
           {{"tokenize", "x", "--file", "y"}, "give only one of an argument and --file"},
           {{"generate", "--tokens", "1,"}, "not '1,'"},
           {{"generate", "--tokens", ""}, "--tokens: "},
           {{"generate", "--tokens", "-1"}, "--tokens: "},
           {{"models", "--timeout", "0"}, "--timeout: must be a number, 0.001 to 1000000"},
           {{"generate", "x", "--regex", "a", "--grammar", "root ::= [a]"},
            "--grammar: another form of the output is given, too; allowed: one"},
           {{"compare", "x", "--json-object", "--choice", "a"}, "another form of the output"},
           {{"generate", "x", "--regex", ""}, "--regex: must not be empty"},
           {{"generate", "x", "--grammar-file", "/dev/null"},
            "--grammar-file: '/dev/null' must not be empty"},
           {{"generate", "x", "--json-schema-file", "/no/such/file"},
            "--json-schema-file: cannot read '/no/such/file'"},
           {{"generate", "x", "--priority", "urgent"},
            "--priority: must be high, normal or low, not 'urgent'"},
           {{"generate", "x", "--choices", "17"}, "--choices: must be a whole number, 1 to 16"},
           {{"generate", "x", "--stop-tokens", "a"}, "--stop-tokens: must be a list of token ids"},
           {{"drain", "--within", "-1"}, "--within: must be a number, 0 to 86400"},
           {{"kv", "--server", "192.0.2.1:1,192.0.2.2:1"}, "--server: must be one address here"},
           {{"kv", "--server", "dns:///localhost:1"}, "--server: must be one address here"},
           {{"models", "--server", "localhost"}, "--server: "},
           {{"models", "--server", "::1:50051"}, "--server: must be HOST:PORT"},
           {{"models", "--server", "localhost:0"}, "--server: must be HOST:PORT"},
           {{"models", "x"}, "not expected: x"},
           {{"kv", "--model", "\xff"}, "--model: must be valid UTF-8"},
           {{"kv", "--interval", "1"}, "--interval requires --watch"},
           {{"kv", "--watch", "--interval", "0.01"}, "--interval: must be a number, 0.05 to 3600"},
           {{"kv", "--watch", "--sequences"}, "excludes"}}) {
    SCOPED_TRACE(testing::PrintToString(args));
    Args command = {TRIPTYCH_CLI};
    command.insert(command.end(), args.begin(), args.end());
    ExpectError(Process(command, {}).Wait(), 2, expected);
  }
  ExpectError(Process({TRIPTYCH_CLI, "models"}, {.environment = {"TRIPTYCH_SERVER=here"}}).Wait(),
              2, "unix:PATH, not 'here'");
}

TEST_F(CliTest, HelpSaysHowEveryCommandIsUsed) {
  for (const std::string command :
       {"generate", "compare", "score", "tokenize", "models", "kv", "health", "bench", "drain"}) {
    const auto result = Process({TRIPTYCH_CLI, command, "--help"}, {}).Wait();
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("Examples:\n  triptych " + command));
    for (const auto& line : Lines(result.out)) EXPECT_LE(line.size(), 110u) << line;
  }
  const auto result = Process({TRIPTYCH_CLI, "--help"}, {}).Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("TRIPTYCH_SERVER"));
  EXPECT_THAT(result.out, HasSubstr("triptych generate -n 200"));
}

TEST_F(CliTest, ScoreShowsHowLikelyATextIs) {
  v1::ScoreResponse answer;
  answer.add_results()->set_log_likelihood(-1234.5);
  answer.mutable_results(0)->set_scored_tokens(1000);
  answer.mutable_results(0)->add_token_logprobs(-0.5);
  v1::ScoreRequest seen;
  server_.score = [&](const v1::ScoreRequest& request, v1::ScoreResponse* response) {
    seen = request;
    *response = answer;
    return grpc::Status::OK;
  };
  auto result = Run({"score", "--model", "shakespeare-gqa"}, {.input = "To be"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out,
            "log-likelihood  tokens  nats per token  perplexity  text\n"
            "──────────────  ──────  ──────────────  ──────────  ─────\n"
            "    -1,234.500   1,000          1.2345       3.437  To be\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(seen.model(), "shakespeare-gqa");
  EXPECT_EQ(seen.inputs(0).text(), "To be");

  result = Run({"score", "--json", "--tokens", "1"});
  v1::ScoreResponse parsed;
  ASSERT_TRUE(JsonStringToMessage(result.out, &parsed).ok()) << result.out;
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, answer));
  EXPECT_EQ(seen.inputs(0).tokens().ids_size(), 1);

  answer.Clear();
  EXPECT_THAT(Run({"score", "x"}).out, Not(HasSubstr("nan")));
}

TEST_F(CliTest, ScoresEachLine) {
  v1::ScoreRequest seen;
  server_.score = [&](const v1::ScoreRequest& request, v1::ScoreResponse* response) {
    seen = request;
    for (int i = 1; i <= request.inputs_size(); ++i) {
      v1::ScoreResult& result = *response->add_results();
      result.set_log_likelihood(-i);
      result.set_scored_tokens(1);
    }
    return grpc::Status::OK;
  };
  const std::string unlikely = "[a,b] " + std::string(37, 'x') + "\u00e9\u00e9";
  const auto result = Run({"score", "--lines", "--priority", "low", "--no-begin-token"},
                          {.input = "To be\tor not\n\n" + unlikely + "\n"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[2], EndsWith("       2.718  To be or not"));
  EXPECT_THAT(lines[3], EndsWith("       7.389  [a,b] " + std::string(37, 'x') + "..."));
  ASSERT_EQ(seen.inputs_size(), 2);
  EXPECT_EQ(seen.inputs(0).text(), "To be\tor not");
  EXPECT_EQ(seen.inputs(1).text(), unlikely);
  EXPECT_TRUE(seen.inputs(1).has_begin_token());
  EXPECT_FALSE(seen.inputs(1).begin_token());
  EXPECT_EQ(seen.priority(), v1::PRIORITY_LOW);

  std::string many;
  for (int i = 0; i < 65; ++i) many += "line\n";
  struct Case {
    std::string name;
    Args args;
    std::string input;
    std::string error;
  };
  for (const Case& c :
       std::vector<Case>{{"too many", {}, many, "--lines: must find 1 to 64 lines of text, not 65"},
                         {"none", {}, "\n", "not 0"},
                         {"tokens", {"--tokens", "1"}, "", "excludes"}}) {
    SCOPED_TRACE(c.name);
    Args args = {"score", "--lines"};
    args.insert(args.end(), c.args.begin(), c.args.end());
    ExpectError(Run(args, {.input = c.input}), 2, c.error);
  }
}

TEST_F(CliTest, TokenizeShowsWhatEachTokenStandsFor) {
  v1::TokenizeResponse answer;
  for (const int id : {257, 97, 0xC3, 0xA9}) answer.add_token_ids(id);
  answer.set_pieces("a\u00e9");
  for (const int offset : {0, 0, 1, 2}) answer.add_offsets(offset);
  v1::TokenizeRequest seen;
  server_.tokenize = [&](const v1::TokenizeRequest& request, v1::TokenizeResponse* response) {
    seen = request;
    *response = answer;
    return grpc::Status::OK;
  };
  auto result =
      Run({"tokenize", "--model", "m", "--parse-special-tokens", "--begin-token", "a\u00e9"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "token  offset  piece\n"
            "─────  ──────  ──────\n"
            "  257       0  \"\"\n"
            "   97       0  \"a\"\n"
            "  195       1  \"\\xc3\"\n"
            "  169       2  \"\\xa9\"\n");
  v1::TokenizeRequest expected;
  expected.set_model("m");
  expected.set_text("a\u00e9");
  expected.set_parse_special_tokens(true);
  expected.set_begin_token(true);
  expected.set_pieces(true);
  EXPECT_TRUE(MessageDifferencer::Equals(seen, expected)) << seen.DebugString();

  result = Run({"tokenize", "--json"}, {.input = "a\u00e9"});
  v1::TokenizeResponse parsed;
  ASSERT_TRUE(JsonStringToMessage(result.out, &parsed).ok()) << result.out;
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, answer));
  EXPECT_FALSE(seen.begin_token());

  // Invalid answers of a server.
  for (const std::vector<int>& offsets :
       std::vector<std::vector<int>>{{}, {0, 0, 1}, {0, 2, 1, 2}, {0, 0, 1, 4}, {-1, 0, 1, 2}}) {
    answer.clear_offsets();
    for (const int offset : offsets) answer.add_offsets(offset);
    ExpectError(Run({"tokenize", "x"}), 1,
                "triptych: the server's answer has no consistent offset for each token\n");
  }
}

TEST_F(CliTest, DrainsAServer) {
  v1::DrainRequest seen;
  server_.drain = [&](const v1::DrainRequest& request, v1::DrainResponse* response) {
    seen = request;
    response->set_live_requests(3);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"drain"}).out, "draining, 3 live requests\n");
  EXPECT_FALSE(seen.has_timeout());
  EXPECT_EQ(Run({"drain", "--within", "1.5"}).exit_code, 0);
  EXPECT_EQ(seen.timeout().seconds(), 1);
  EXPECT_EQ(seen.timeout().nanos(), 500'000'000);
}

TEST_F(CliTest, ModelsOfEveryPage) {
  server_.list_models = [](const v1::ListModelsRequest& request, v1::ListModelsResponse* response) {
    const bool first = request.page_token().empty();
    *response->add_models() = MakeModel(first ? "one" : "two", v1::ATTENTION_KIND_MHA, 1);
    response->set_server_version("1.2.3");
    if (first) response->set_next_page_token("more");
    return grpc::Status::OK;
  };
  v1::ListModelsResponse parsed;
  ASSERT_TRUE(JsonStringToMessage(Run({"models", "--json"}).out, &parsed).ok());
  ASSERT_EQ(parsed.models_size(), 2);
  EXPECT_EQ(parsed.models(1).name(), "two");
  EXPECT_EQ(parsed.next_page_token(), "");
  EXPECT_EQ(parsed.server_version(), "1.2.3");
}

TEST_F(CliTest, ModelsFitAHundredColumns) {
  server_.list_models = ListThree;
  const auto result = Run({"models"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(
      Lines(result.out),
      ElementsAre("                                                   elements/    bytes/    vs"
                  "           positions",
                  "model            kind  parameters  dtype    bytes   position  position   MHA"
                  "  context   that fit",
                  "───────────────  ────  ──────────  ─────  ───────  ─────────  ────────  ────"
                  "  ───────  ─────────",
                  "shakespeare-mha   MHA   3,276,800   bf16  6.2 MiB      2,048   4.0 KiB  1.0x"
                  "      512     87,381",
                  "shakespeare-gqa   GQA   3,276,800   bf16  6.2 MiB        512   1.0 KiB  4.0x"
                  "      512    349,524",
                  "shakespeare-mla   MLA   3,276,800   bf16  6.2 MiB        256     512 B  8.0x"
                  "      512    699,048"));
  for (const auto& line : Lines(result.out)) EXPECT_LE(CharacterCount(line), 100u) << line;
}

TEST_F(CliTest, OneModelIsShownWithItsTokenizer) {
  v1::GetModelResponse answer;
  *answer.mutable_model() = MakeModel("shakespeare-mla", v1::ATTENTION_KIND_MLA, 8);
  v1::Tokenizer& tokenizer = *answer.mutable_model()->mutable_tokenizer();
  tokenizer.set_kind("byte-level BPE");
  tokenizer.set_vocab_size(1258);
  for (const int id : {1256, 7}) tokenizer.add_end_token_ids(id);
  std::string model;
  server_.get_model = [&](const v1::GetModelRequest& request, v1::GetModelResponse* response) {
    model = request.model();
    *response = answer;
    return grpc::Status::OK;
  };
  const auto shown = [&] { return Run({"models", "--model", "shakespeare-mla"}).out; };
  const std::string without = shown();
  EXPECT_EQ(model, "shakespeare-mla");
  EXPECT_THAT(without, HasSubstr("\nshakespeare-mla   MLA   3,276,800   bf16"));
  EXPECT_THAT(without, EndsWith("\n\n"
                                "tokenizer       tokens  begin token  end tokens\n"
                                "──────────────  ──────  ───────────  ──────────\n"
                                "byte-level BPE   1,258            -     1256, 7\n"));
  tokenizer.set_begin_token_id(1257);
  for (const auto& [id, text] : {std::pair(1256, "</s>"), {1257, "<s>\n"}}) {
    v1::SpecialToken& special = *tokenizer.add_special_tokens();
    special.set_id(id);
    special.set_text(text);
  }
  EXPECT_THAT(shown(), EndsWith("byte-level BPE   1,258         1257     1256, 7\n\n"
                                "special token    id\n"
                                "─────────────  ────\n"
                                "</s>           1256\n"
                                "<s>\\x0a        1257\n"));
  v1::GenerationDefaults& defaults = *answer.mutable_model()->mutable_generation_defaults();
  v1::SamplingParams& sampling = *defaults.mutable_sampling();
  sampling.set_temperature(0.6f);
  sampling.set_top_k(1000);
  sampling.set_top_p(0.95f);
  sampling.set_min_p(0);
  sampling.set_repetition_penalty(1.05f);
  EXPECT_THAT(shown(), HasSubstr("\n\n"
                                 "default\n"
                                 "────────────────────  ─────\n"
                                 "--temperature           0.6\n"
                                 "--top-k               1,000\n"
                                 "--top-p                0.95\n"
                                 "--min-p                   0\n"
                                 "--repetition-penalty   1.05\n"
                                 "--max-new-tokens          -\n"
                                 "\n"
                                 "tokenizer "));
  defaults.set_max_new_tokens(2048);
  EXPECT_THAT(shown(), HasSubstr("\n--max-new-tokens      2,048\n"));
  const auto json = Run({"models", "--json", "--model", "shakespeare-mla"});
  v1::GetModelResponse parsed;
  ASSERT_TRUE(JsonStringToMessage(json.out, &parsed).ok()) << json.out;
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, answer));
}

TEST_F(CliTest, ModelsAsJson) {
  server_.list_models = ListThree;
  const auto result = Run({"models", "--json"});
  v1::ListModelsResponse parsed, expected;
  ListThree({}, &expected);
  ASSERT_TRUE(JsonStringToMessage(result.out, &parsed).ok()) << result.out;
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, expected));
}

TEST_F(HealthTest, SucceedsOnlyWhenServing) {
  HealthCheckResponse::ServingStatus status = HealthCheckResponse::SERVING;
  std::string service;
  server_.check_health = [&](const HealthCheckRequest& request, HealthCheckResponse* response) {
    service = request.service();
    response->set_status(status);
    return grpc::Status::OK;
  };
  auto result = Run({"health"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "SERVING\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(service, "");

  EXPECT_EQ(Run({"health", "triptych.v1.InferenceService"}).exit_code, 0);
  EXPECT_EQ(service, "triptych.v1.InferenceService");

  struct Case {
    int status;
    Args args;
    std::string error;
  };
  const std::vector<Case> cases = {
      {HealthCheckResponse::NOT_SERVING,
       {"health"},
       "triptych: the server at " + server_.address() + " is NOT_SERVING\n"},
      {HealthCheckResponse::NOT_SERVING,
       {"health", "triptych.v1.ModelService"},
       "triptych: triptych.v1.ModelService at " + server_.address() + " is NOT_SERVING\n"},
      {HealthCheckResponse::UNKNOWN, {"health"}, "is UNKNOWN"},
      {77, {"health"}, "is 77"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.error);
    status = static_cast<HealthCheckResponse::ServingStatus>(c.status);
    ExpectError(Run(c.args), 1, c.error);
  }
}

TEST_F(HealthTest, SaysThatThereIsNoSuchService) {
  server_.check_health = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "");
  };
  ExpectError(Run({"health", "none.Such"}), 1,
              "triptych: no service 'none.Such' at " + server_.address() + "\n");
}

TEST_F(HealthTest, SaysThatTheCheckFailed) {
  server_.check_health = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "why");
  };
  ExpectError(Run({"health"}), 1, "unauthenticated: why");
}

TEST_F(HealthTest, DoesNotWaitForAServerThatIsStuck) {
  // A server that accepts connections and never answers.
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  ASSERT_EQ(bind(socket_fd, reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(socket_fd, 1), 0);
  ASSERT_EQ(getsockname(socket_fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  ExpectError(Process({TRIPTYCH_CLI, "--server", address, "health"}, {}).Wait(), 1,
              "deadline exceeded");
  close(socket_fd);
}

TEST_F(KvTest, ShowsEveryModelAndTheTotal) {
  std::string model;
  server_.get_stats = [&](const v1::GetKvCacheStatsRequest& request, auto* response) {
    model = request.model();
    *response = MakeStats(3 << 20);
    return grpc::Status::OK;
  };
  const auto result = Run({"kv", "--model", "shakespeare-mla"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(model, "shakespeare-mla");
  EXPECT_THAT(result.out,
              StartsWith("                     shakespeare-mha  shakespeare-mla      total\n"
                         "───────────────────  ───────────────  ───────────────  ─────────\n"
                         "pool                        64.0 MiB         64.0 MiB  128.0 MiB\n"
                         "used                         3.0 MiB          3.0 MiB    6.0 MiB\n"));
  EXPECT_THAT(result.out, HasSubstr("preemptions                        7                7\n"));

  const auto json = Run({"kv", "--json"});
  v1::GetKvCacheStatsResponse parsed;
  ASSERT_TRUE(JsonStringToMessage(json.out, &parsed).ok()) << json.out;
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, MakeStats(3 << 20)));
}

TEST_F(KvTest, WatchPrintsOneBlockForEachUpdate) {
  v1::WatchKvCacheStatsRequest seen;
  server_.watch_stats = [&](const v1::WatchKvCacheStatsRequest& request) {
    seen = request;
    return Watching{{Update(1 << 20), Update(2 << 20)}};
  };
  const auto plain = Run({"kv", "--watch", "--interval", "0.25", "--model", "m"});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_EQ(plain.err, "");
  EXPECT_THAT(plain.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(plain.out, HasSubstr("1.0 MiB"));
  EXPECT_THAT(plain.out, HasSubstr("\n\n"));
  EXPECT_THAT(plain.out, HasSubstr("  4.0 MiB"));
  EXPECT_EQ(seen.interval().nanos(), 250'000'000);
  EXPECT_EQ(seen.model(), "m");

  const auto json = Run({"kv", "--watch", "--json"});
  EXPECT_FALSE(seen.has_interval());
  const auto lines = Lines(json.out);
  ASSERT_EQ(lines.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    v1::GetKvCacheStatsResponse parsed;
    ASSERT_TRUE(JsonStringToMessage(lines[i], &parsed).ok());
    EXPECT_TRUE(MessageDifferencer::Equals(parsed, MakeStats((i + 1) << 20)));
  }
}

TEST_F(KvTest, WatchRefreshesATerminalInPlaceUntilCtrlC) {
  server_.watch_stats = [](const auto&) {
    return Watching{{Update(1 << 20), Update(2 << 20)}, Watching::Then::kHold};
  };
  Process process(Command({"kv", "--watch"}), {.terminal = true});
  ASSERT_TRUE(process.WaitForOutput("  4.0 MiB"));
  process.Signal(SIGINT);
  server_.WaitForCancel();
  const auto result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.err, "");
  const size_t refresh = result.out.find("\x1b[");
  ASSERT_NE(refresh, std::string::npos);
  const auto height = Lines(result.out.substr(0, refresh)).size();
  EXPECT_THAT(result.out.substr(refresh), StartsWith("\x1b[" + std::to_string(height) + "A\x1b[J"));
}

TEST_F(KvTest, FitsTheTerminal) {
  server_.get_stats = [](const auto&, auto* response) {
    *response = MakeStats(1 << 20);
    response->add_models()->set_model("shakespeare-gqa");
    return grpc::Status::OK;
  };
  for (const auto& [columns, width] : {std::pair(0, 81u), {81, 81u}, {80, 70u}}) {
    const auto result = Run({"kv"}, {.terminal = true, .columns = columns});
    EXPECT_EQ(result.exit_code, 0);
    size_t widest = 0;
    for (const std::string& line : Lines(result.out)) {
      widest = std::max(widest, CharacterCount(line.substr(0, line.find('\r'))));
    }
    EXPECT_EQ(widest, width) << result.out;
  }
}

TEST_F(KvTest, ListsSequencesOfEveryPage) {
  server_.list_sequences = [](const v1::ListSequencesRequest& request,
                              v1::ListSequencesResponse* response) {
    EXPECT_EQ(request.model(), "shakespeare-mla");
    const int page = request.page_token().empty() ? 0 : std::stoi(request.page_token());
    for (int i = 0; i < 2; ++i) {
      v1::Sequence& sequence = *response->add_sequences();
      sequence.set_request_id("r" + std::to_string(2 * page + i));
      sequence.set_model("shakespeare-mla");
      sequence.set_state(i == 0 ? v1::SEQUENCE_STATE_DECODE : v1::SEQUENCE_STATE_WAITING);
      sequence.mutable_kv_cache()->set_used_bytes(2048);
    }
    if (page < 2) response->set_next_page_token(std::to_string(page + 1));
    return grpc::Status::OK;
  };
  const auto result = Run({"kv", "--sequences", "--model", "shakespeare-mla"});
  EXPECT_EQ(result.exit_code, 0);
  const auto lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 9u);  // Two title lines, the rule, six sequences.
  EXPECT_THAT(lines[3], StartsWith("r0       shakespeare-mla  decode"));
  EXPECT_THAT(lines[8], StartsWith("r5       shakespeare-mla  waiting"));
  for (const auto& line : lines) EXPECT_LE(CharacterCount(line), 100u) << line;

  const auto json = Run({"kv", "--sequences", "--json", "--model", "shakespeare-mla"});
  v1::ListSequencesResponse parsed;
  ASSERT_TRUE(JsonStringToMessage(json.out, &parsed).ok()) << json.out;
  EXPECT_EQ(parsed.sequences_size(), 6);
  EXPECT_EQ(parsed.next_page_token(), "");
}

TEST_F(KvTest, SaysThatNothingIsLive) {
  server_.list_sequences = [](const auto&, auto*) { return grpc::Status::OK; };
  EXPECT_EQ(Run({"kv", "--sequences"}).out, "no live sequences\n");
}

TEST_F(CompareTest, ComparesEveryModelOnTheSameRequest) {
  server_.list_models = ListThree;
  std::vector<v1::GenerateRequest> seen;  // One call at a time.
  server_.generate = [&](const v1::GenerateRequest& request) {
    seen.push_back(request);
    const int times = request.model() == "shakespeare-mha" ? 1 : seen.size() == 2 ? 4 : 8;
    return Generation{{Text(" or"), Last(" not", times)}};
  };
  const auto result = Run({"compare", "-n", "9", "--temperature", "0", "To be"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  ASSERT_EQ(seen.size(), 3u);
  for (const auto& request : seen) {
    EXPECT_EQ(request.text(), "To be");
    EXPECT_EQ(request.max_new_tokens(), 9);
    EXPECT_EQ(request.sampling().temperature(), 0);
    EXPECT_TRUE(request.sampling().has_temperature());
  }
  EXPECT_EQ(seen[0].model(), "shakespeare-mha");
  EXPECT_EQ(seen[2].model(), "shakespeare-mla");

  for (const auto& line : Lines(result.out)) EXPECT_LE(CharacterCount(line), 100u) << line;
  EXPECT_THAT(result.out, StartsWith("── shakespeare-mha (MHA) ──"));
  EXPECT_THAT(result.out, HasSubstr("─\nTo be or not\n\n── shakespeare-gqa (GQA) ──"));
  EXPECT_THAT(
      result.out,
      HasSubstr("\nattention                          MHA              GQA              MLA\n"
                "elements per position            2,048              512              256\n"
                "bytes per position             4.0 KiB          1.0 KiB            512 B\n"
                "positions                        1,024            1,024            1,024\n"
                "cache used                     4.0 MiB          1.0 MiB        512.0 KiB\n"));
  EXPECT_THAT(
      result.out,
      HasSubstr("\nsmaller than MHA                  1.0x             4.0x             8.0x\n"
                "tokens/s                         500.0            500.0            500.0\n"
                "time to first token            12.3 ms          12.3 ms          12.3 ms\n"));
  EXPECT_THAT(result.out, EndsWith("  512 B    8.0x\n"));
}

TEST_F(CompareTest, ComparesTheNamedModels) {
  server_.list_models = ListThree;
  AnswerGenerate({{Last("text\n")}});
  const auto result =
      Run({"compare", "--model", "shakespeare-mla", "--model", "shakespeare-mha", "To be"});
  EXPECT_EQ(result.exit_code, 0);
  ASSERT_EQ(requests().size(), 2u);
  EXPECT_EQ(requests()[0].model(), "shakespeare-mla");
  EXPECT_EQ(requests()[1].model(), "shakespeare-mha");

  ExpectError(Run({"compare", "--model", "shakespeare-mqa", "To be"}), 1,
              "no model 'shakespeare-mqa' at the server; allowed: shakespeare-mha, "
              "shakespeare-gqa, shakespeare-mla");
}

TEST_F(CompareTest, CtrlCEndsItBetweenModelsToo) {
  server_.list_models = ListThree;
  AnswerGenerate({{Text(" or")}, Generation::Then::kHold});
  Process process(Command({"compare", "To be"}), {});
  ASSERT_TRUE(process.WaitForOutput("To be or"));
  process.Signal(SIGINT);
  server_.WaitForCancel();
  const auto result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, EndsWith("To be or"));
  EXPECT_EQ(requests().size(), 1u);
}

}  // namespace
}  // namespace triptych::client::cli_test
