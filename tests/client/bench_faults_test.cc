// Tests of faults in `triptych bench`: clients with deadlines, clients that do not read, and
// reports of broken streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/client/fake_server.h"
#include "tests/client/run_cli.h"
#include "tests/support/temp_dir.h"

namespace triptych::client::bench_faults_test {
namespace {

using Generation = Stream<v1::GenerateResponse>;
using nlohmann::json;

v1::GenerateResponse Tokens(int32_t first, int32_t count, bool last = false) {
  v1::GenerateResponse message;
  for (int32_t t = 0; t < count; ++t) message.add_token_ids(first + t);
  if (last) message.mutable_completion();
  return message;
}

class BenchFaultsTest : public testing::Test {
 protected:
  BenchFaultsTest() {
    server_.get_model = [](const v1::GetModelRequest&, v1::GetModelResponse* response) {
      response->mutable_model()->set_name("tiny");
      response->mutable_model()->set_config_json(R"({"vocab_size": 50})");
      response->mutable_model()->set_max_positions(512);
      return grpc::Status::OK;
    };
  }
  Args Command(Args args) const {
    args.insert(args.begin(), "bench");
    return CliCommand(server_.address(), args);
  }
  Process::Result Run(Args args) const { return Process(Command(std::move(args)), {}).Wait(); }

  FakeServer server_;
};

TEST_F(BenchFaultsTest, RequestsHaveDeadlines) {
  server_.generate = [](const auto&) {
    return Generation{{Tokens(0, 1)}, Generation::Then::kHold};
  };
  const auto result = Run({"--requests", "3", "--deadline", "10:50", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json requests = json::parse(result.out)["requests"];
  EXPECT_EQ(requests["expired"], 3);
  EXPECT_EQ(requests["failed"], 0);
  EXPECT_THAT(Run({"--requests", "2", "--deadline", "10"}).out,
              testing::HasSubstr(", 0 failed, 2 ended by deadlines\n"));
}

TEST_F(BenchFaultsTest, AReaderThatStopsReadsOnLater) {
  // More than the buffers of the connection and the server's transport.
  constexpr int kMessages = 100;
  std::atomic<int> calls = 0;
  server_.generate = [&](const auto&) {
    ++calls;
    Generation generation;
    for (int i = 0; i < kMessages; ++i) generation.messages.push_back(Tokens(0, 10'000));
    generation.messages.push_back(Tokens(0, 1, /*last=*/true));
    return generation;
  };
  const auto result = Run(
      {"--requests", "2", "--concurrency", "2", "--stall-ratio", "1", "--stall", "1", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json results = json::parse(result.out);
  EXPECT_EQ(results["requests"]["completed"], 2);
  EXPECT_EQ(results["tokens"]["generated"], 2 * (kMessages * 10'000 + 1));
  EXPECT_GE(results["seconds_between_messages"]["max"], 1);
}

TEST_F(BenchFaultsTest, CtrlCEndsReadersThatStopped) {
  std::atomic<int> calls = 0;
  server_.generate = [&](const auto&) {
    ++calls;
    return Generation{{Tokens(0, 1000)}, Generation::Then::kRepeat};
  };
  Process process(Command({"--stall-ratio", "1", "--stall", "100000"}), {});
  ASSERT_TRUE(process.WaitForOutput("concurrency"));
  while (calls < 1) std::this_thread::yield();
  process.Signal(SIGINT);
  const auto result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.out, testing::HasSubstr("0 failed, 1 interrupted"));
}

TEST_F(BenchFaultsTest, CallsAgainOnlyIfItIsAskedTo) {
  std::atomic<int> calls = 0;
  server_.generate = [&](const auto&) {
    if (calls++ % 2 == 1) return Generation{{Tokens(0, 1, /*last=*/true)}};
    const grpc::Status refusal(grpc::StatusCode::UNAVAILABLE, "not now");
    return Generation{{}, Generation::Then::kFinish, refusal, {{"grpc-retry-pushback-ms", "0"}}};
  };
  const json once = json::parse(Run({"--requests", "4", "--json"}).out)["requests"];
  EXPECT_EQ(once["failed"], 2);
  const json again = json::parse(Run({"--requests", "4", "--retry", "--json"}).out)["requests"];
  EXPECT_EQ(again["completed"], 4);
}

TEST_F(BenchFaultsTest, CountsStreamsThatAreCutOff) {
  std::atomic<int> calls = 0;
  server_.generate = [&](const auto&) {
    Generation generation;
    if (calls++ % 2 == 0) generation.messages.push_back(Tokens(0, 1));
    generation.status = {grpc::StatusCode::UNAVAILABLE, "away"};
    return generation;
  };
  const auto result = Run({"--requests", "4", "--json"});
  const json requests = json::parse(result.out)["requests"];
  EXPECT_EQ(requests["failed"], 4);
  EXPECT_EQ(requests["truncated"], 2);
}

TEST_F(BenchFaultsTest, WritesOutputs) {
  const TempDir directory;
  const std::string file = (directory.path() / "outputs").string();
  std::atomic<int> calls = 0;
  server_.generate = [&](const auto&) {
    Generation generation;
    if (calls++ == 1) {
      generation.status = {grpc::StatusCode::UNAVAILABLE, "away"};
    } else {
      generation.messages = {Tokens(7, 2), Tokens(9, 1, /*last=*/true)};
    }
    return generation;
  };
  EXPECT_EQ(Run({"--requests", "3", "--outputs", file}).exit_code, 0);
  EXPECT_EQ(ReadFile(file), "0 7 8 9\n2 7 8 9\n");
  const auto bad = Run({"--requests", "1", "--outputs", "/no/such/file"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, testing::StartsWith("triptych: --outputs: /no/such/file"));
}

}  // namespace
}  // namespace triptych::client::bench_faults_test
