// Tests of the load of `triptych bench`: its requests, its measurements and its counts.

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/length_distribution.h"
#include "client/load_generator.h"
#include "client/sample_set.h"
#include "client/workload.h"
#include "tests/client/fake_server.h"
#include "tests/client/run_cli.h"
#include "tests/support/temp_dir.h"

namespace triptych::client::bench_test {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using Generation = Stream<v1::GenerateResponse>;

TEST(SampleSetTest, PercentilesAreByNearestRank) {
  SampleSet samples;
  EXPECT_EQ(samples.Percentile(0.5), 0);
  for (int i = 1000; i >= 1; --i) samples.Add(i);
  EXPECT_EQ(samples.Percentile(0.5), 500);
  EXPECT_EQ(samples.Percentile(0.9), 900);
  EXPECT_EQ(samples.Percentile(0.99), 990);
  EXPECT_EQ(samples.Percentile(0.999), 999);
  EXPECT_EQ(samples.Percentile(1), 1000);
  EXPECT_EQ(samples.max(), 1000);
  EXPECT_EQ(samples.mean(), 500.5);
  EXPECT_EQ(samples.count(), 1000);
  EXPECT_TRUE(samples.exact());

  samples.Add(2000, 1000);  // after a percentile was read
  EXPECT_EQ(samples.Percentile(0.5), 1000);
  EXPECT_EQ(samples.Percentile(0.501), 2000);

  SampleSet one;
  one.Add(7);
  for (const double p : {0.001, 0.5, 0.999, 1.0}) EXPECT_EQ(one.Percentile(p), 7);
}

TEST(SampleSetTest, KeepsWhatItCanOfManyAndTheExtremesOfAll) {
  SampleSet samples;
  const int64_t count = 3 * static_cast<int64_t>(SampleSet::kKept);
  for (int64_t i = 0; i < count; ++i) samples.Add(static_cast<double>(i));
  EXPECT_FALSE(samples.exact());
  EXPECT_EQ(samples.count(), count);
  EXPECT_EQ(samples.max(), static_cast<double>(count - 1));
  EXPECT_EQ(samples.mean(), static_cast<double>(count - 1) / 2);
  // 6 standard deviations of the median of `total` samples; the seed is fixed.
  const auto total = static_cast<double>(count);
  EXPECT_NEAR(samples.Percentile(0.5), total / 2, total * 0.003);
  EXPECT_NEAR(samples.Percentile(0.99), total * 0.99, total * 0.0006);
}

TEST(LengthDistributionTest, TakesThreeForms) {
  for (const std::string good : {"1", "128", "64:512", "7:7", "lognormal:200:0.8"}) {
    EXPECT_TRUE(LengthDistribution::Parse(good)) << good;
  }
  for (const std::string bad :
       {"", "0", "-1", "1.5", "512:64", "1:", ":2", "1:2:3", "0:2", "lognormal",
        "lognormal:", "lognormal:200", "lognormal:0:1", "lognormal:200:0", "lognormal:200:11",
        "lognormal:200:nan", "normal:1:2", "2147483648"}) {
    EXPECT_FALSE(LengthDistribution::Parse(bad)) << bad;
  }
}

TEST(LengthDistributionTest, DrawsWhatItSays) {
  Random random;
  const auto draw = [&](const std::string& text) {
    SampleSet lengths;
    for (int i = 0; i < 20000; ++i) lengths.Add(LengthDistribution::Parse(text)->Draw(random));
    return lengths;
  };
  EXPECT_EQ(draw("128").Percentile(0.001), 128);
  EXPECT_EQ(draw("128").max(), 128);

  const SampleSet uniform = draw("3:6");
  for (const auto& [p, length] : {std::pair(0.0001, 3),
                                  {0.24, 3},
                                  {0.26, 4},
                                  {0.49, 4},
                                  {0.51, 5},
                                  {0.74, 5},
                                  {0.76, 6},
                                  {1.0, 6}}) {
    EXPECT_EQ(uniform.Percentile(p), length) << p;
  }
  const SampleSet lognormal = draw("lognormal:1000:0.5");
  EXPECT_NEAR(lognormal.Percentile(0.5), 1000, 25);
  EXPECT_NEAR(lognormal.Percentile(0.841), 1000 * std::exp(0.5), 50);
  EXPECT_NEAR(lognormal.Percentile(0.159), 1000 * std::exp(-0.5), 25);
  EXPECT_GE(draw("lognormal:1:10").Percentile(0.0001), 1);
}

WorkloadOptions SmallLoad() {
  WorkloadOptions options;
  options.model = std::string("m");  // GCC 12 warns about the plain literal
  options.vocabulary = 50;
  options.context = 100;
  options.prompt_tokens = *LengthDistribution::Parse("5:20");
  options.output_tokens = *LengthDistribution::Parse("4:8");
  options.seed = 7;
  return options;
}

TEST(WorkloadTest, ASeedNamesALoad) {
  WorkloadOptions options = SmallLoad();
  const Workload one(options), same(options);
  options.seed = 8;
  const Workload other(options);
  int different = 0;
  for (int64_t i = 19; i >= 0; --i) {
    EXPECT_TRUE(MessageDifferencer::Equals(one.Make(i).request, same.Make(i).request));
    different += !MessageDifferencer::Equals(one.Make(i).request, other.Make(i).request);
    EXPECT_FALSE(MessageDifferencer::Equals(one.Make(i).request, one.Make(i + 1).request));
  }
  EXPECT_EQ(different, 20);
}

TEST(WorkloadTest, RequestsAreAsAsked) {
  WorkloadOptions options = SmallLoad();
  options.priority = v1::PRIORITY_LOW;
  options.bypass_prefix_cache = true;
  const Workload workload(options);
  for (int64_t i = 0; i < 200; ++i) {
    const PlannedRequest planned = workload.Make(i);
    const v1::GenerateRequest& request = planned.request;
    EXPECT_EQ(request.model(), "m");
    EXPECT_GE(request.tokens().ids_size(), 5);
    EXPECT_LE(request.tokens().ids_size(), 20);
    for (const int32_t id : request.tokens().ids()) EXPECT_TRUE(id >= 0 && id < 50) << id;
    EXPECT_GE(request.max_new_tokens(), 4);
    EXPECT_LE(request.max_new_tokens(), 8);
    EXPECT_TRUE(request.ignore_eos());
    EXPECT_EQ(request.priority(), v1::PRIORITY_LOW);
    EXPECT_TRUE(request.bypass_prefix_cache());
    EXPECT_FALSE(planned.cancel);
    EXPECT_FALSE(planned.shortened);
  }
}

TEST(WorkloadTest, PromptsBeginWithOneOfThePrefixes) {
  WorkloadOptions options = SmallLoad();
  options.shared_prefix_tokens = 30;
  options.prefixes = 3;
  const Workload workload(options);
  std::map<std::vector<int32_t>, int> prefixes;
  for (int64_t i = 0; i < 300; ++i) {
    const PlannedRequest planned = workload.Make(i);
    const auto& ids = planned.request.tokens().ids();
    ASSERT_GE(ids.size(), 35);
    ++prefixes[{ids.begin(), ids.begin() + 30}];
  }
  EXPECT_EQ(prefixes.size(), 3u);
}

TEST(WorkloadTest, FitsTheContextAndSaysSo) {
  WorkloadOptions options = SmallLoad();
  options.prompt_tokens = *LengthDistribution::Parse("lognormal:50:3");
  options.output_tokens = *LengthDistribution::Parse("lognormal:50:3");
  options.shared_prefix_tokens = 10;
  const Workload workload(options);
  int shortened = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const PlannedRequest planned = workload.Make(i);
    const int32_t prompt = planned.request.tokens().ids_size();
    EXPECT_GE(prompt, 11);
    EXPECT_GE(planned.request.max_new_tokens(), 1);
    EXPECT_LE(prompt + planned.request.max_new_tokens(), 100);
    shortened += planned.shortened;
  }
  EXPECT_GT(shortened, 50);
  EXPECT_LT(shortened, 300);
}

TEST(WorkloadTest, CancelsTheShareAtEveryMoment) {
  WorkloadOptions options = SmallLoad();
  options.cancel_ratio = 0.3;
  const Workload workload(options);
  int cancelled = 0, early = 0;
  std::set<int32_t> tokens;
  for (int64_t i = 0; i < 2000; ++i) {
    const PlannedRequest planned = workload.Make(i);
    if (!planned.cancel) continue;
    ++cancelled;
    early += planned.cancel->tokens == 0;
    tokens.insert(planned.cancel->tokens);
    EXPECT_LE(planned.cancel->tokens, planned.request.max_new_tokens());
    EXPECT_TRUE(planned.cancel->before_first_token >= 0 && planned.cancel->before_first_token < 1);
  }
  EXPECT_NEAR(cancelled, 600, 100);
  EXPECT_NEAR(early, 300, 80);
  EXPECT_EQ(tokens, (std::set<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(ArrivalsTest, AreAPoissonProcess) {
  Arrivals arrivals(50, 1);
  SampleSet gaps;
  double last = 0;
  for (int i = 0; i < 20000; ++i) {
    const double next = arrivals.Next();
    gaps.Add(next - last);
    last = next;
  }
  EXPECT_NEAR(gaps.mean(), 0.02, 0.0006);
  EXPECT_NEAR(gaps.Percentile(0.5), 0.02 * std::log(2), 0.0006);
  EXPECT_NEAR(gaps.Percentile(0.99), 0.02 * std::log(100), 0.006);
  EXPECT_EQ(Arrivals(50, 1).Next(), Arrivals(50, 1).Next());
  EXPECT_NE(Arrivals(50, 1).Next(), Arrivals(50, 2).Next());
}

TEST(StreamTimesTest, CountsFromTheScheduledTimeAndEveryToken) {
  StreamTimes times(/*scheduled=*/10);  // regardless of the time of sending
  times.OnMessage(10.5, 0);             // no token yet
  times.OnMessage(11, 2);
  times.OnMessage(12, 1);
  times.OnMessage(12.5, 0);
  times.OnMessage(16, 4);
  EXPECT_EQ(times.tokens(), 7);
  SampleSet first, inter_token, gap, end;
  times.AddTo(17, first, inter_token, gap, end);
  EXPECT_EQ(first.count(), 1);
  EXPECT_EQ(first.max(), 1);
  EXPECT_EQ(inter_token.count(), 5);  // one of 1 s, four of a quarter of 4 s
  EXPECT_EQ(inter_token.mean(), 1);
  EXPECT_EQ(gap.count(), 2);
  EXPECT_EQ(gap.max(), 4);
  EXPECT_EQ(end.max(), 7);
}

v1::GenerateResponse Tokens(int count) {
  v1::GenerateResponse response;
  for (int i = 0; i < count; ++i) response.add_token_ids(i);
  return response;
}

// The last message of a request whose cache peaked at `bytes`.
v1::GenerateResponse Last(int count, int64_t bytes) {
  v1::GenerateResponse response = Tokens(count);
  v1::Usage& usage = *response.mutable_completion()->mutable_usage();
  usage.set_cached_prompt_tokens(3);
  usage.set_preemptions(1);
  usage.mutable_kv_cache()->set_used_bytes(bytes / 2);
  usage.mutable_kv_cache()->set_peak_allocated_bytes(bytes);
  usage.mutable_kv_cache()->set_own_bytes(bytes / 4);
  usage.mutable_kv_cache()->set_shared_bytes(bytes / 8);
  return response;
}

LoadPace Closed(int32_t concurrency, int64_t requests) {
  LoadPace pace;
  pace.concurrency = concurrency;
  pace.requests = requests;
  return pace;
}

LoadPace Open(double rate, int64_t requests) {
  LoadPace pace;
  pace.rate = rate;
  pace.requests = requests;
  return pace;
}

// Runs a load of `pace` against `server`; returns its results.
LoadResults Load(const FakeServer& server, const WorkloadOptions& options, const LoadPace& pace) {
  const Workload workload(options);
  Client client(Connect(server.address()));
  return LoadGenerator(workload, {&client}, pace).Run([](const LoadProgress&) {});
}

TEST(LoadGeneratorTest, CountsAddUpExactly) {
  FakeServer server;
  std::atomic<int> calls = 0;
  std::atomic<int64_t> prompt_tokens = 0;
  server.generate = [&](const v1::GenerateRequest& request) -> Generation {
    const auto then = Generation::Then::kFinish;
    switch (calls++ % 5) {
      case 0:
        return {{}, then, grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full")};
      case 1:
        prompt_tokens += request.tokens().ids_size();
        return {{Tokens(2)}, then, grpc::Status(grpc::StatusCode::INTERNAL, "broken")};
      case 2:
        prompt_tokens += request.tokens().ids_size();
        return {{Tokens(1)}};  // without a completion
      default:
        prompt_tokens += request.tokens().ids_size();
        return {{Tokens(1), Tokens(2), Last(1, 800)}};
    }
  };
  const LoadResults results = Load(server, SmallLoad(), Closed(4, 50));
  EXPECT_EQ(calls, 50);
  EXPECT_EQ(results.started, 50);
  EXPECT_EQ(results.completed, 20);
  EXPECT_EQ(results.failed, 30);
  EXPECT_EQ(results.cancelled + results.interrupted, 0);
  ASSERT_EQ(results.errors.size(), 3u);
  EXPECT_EQ(results.errors.at(grpc::StatusCode::RESOURCE_EXHAUSTED).count, 10);
  EXPECT_EQ(results.errors.at(grpc::StatusCode::RESOURCE_EXHAUSTED).first.error_message(), "full");
  EXPECT_EQ(results.errors.at(grpc::StatusCode::INTERNAL).count, 10);
  EXPECT_EQ(results.errors.at(grpc::StatusCode::UNKNOWN).count, 10);
  EXPECT_EQ(results.prompt_tokens, prompt_tokens);
  EXPECT_EQ(results.generated_tokens, 10 * 2 + 10 * 1 + 20 * 4);
  EXPECT_EQ(results.cached_prompt_tokens, 20 * 3);
  EXPECT_EQ(results.preemptions, 20);
  EXPECT_EQ(results.time_to_first_token.count(), 20);
  EXPECT_EQ(results.inter_token.count(), 20 * 3);
  EXPECT_EQ(results.message_gap.count(), 20 * 2);
  EXPECT_EQ(results.end_to_end.count(), 20);
  EXPECT_EQ(results.start_delay.count(), 50);
  EXPECT_EQ(results.peak_allocated_bytes.count(), 20);
  EXPECT_EQ(results.peak_allocated_bytes.mean(), 800);
  EXPECT_EQ(results.used_bytes.max(), 400);
  EXPECT_EQ(results.own_bytes.max(), 200);
  EXPECT_EQ(results.shared_bytes.max(), 100);
}

TEST(LoadGeneratorTest, CancelsAsPlanned) {
  FakeServer server;
  server.generate = [](const auto&) {  // endless tokens
    return Generation{{Tokens(1)}, Generation::Then::kRepeat};
  };
  WorkloadOptions options = SmallLoad();
  options.cancel_ratio = 1;
  const LoadResults results = Load(server, options, Closed(5, 60));
  EXPECT_EQ(results.started, 60);
  EXPECT_EQ(results.cancelled, 60);
  EXPECT_EQ(results.completed + results.failed + results.interrupted, 0);
  EXPECT_EQ(results.end_to_end.count(), 0);
}

TEST(LoadGeneratorTest, ClosedLoopWaitsForAnswers) {
  FakeServer server;
  std::atomic<int> arrived = 0;
  server.generate = [&](const auto&) {
    ++arrived;
    return Generation{{Tokens(1)}, Generation::Then::kHold};
  };
  const Workload workload(SmallLoad());
  Client client(Connect(server.address()));
  LoadGenerator generator(workload, {&client}, Closed(3, 100));
  std::thread interrupt([&] {
    while (arrived < 3) std::this_thread::yield();
    generator.Interrupt();
  });
  const LoadResults results = generator.Run([](const LoadProgress&) {});
  interrupt.join();
  EXPECT_EQ(results.started, 3);
  EXPECT_EQ(results.interrupted, 3);
}

TEST(LoadGeneratorTest, OpenLoopDoesNotWaitForAnswers) {
  constexpr int kRequests = 40;
  FakeServer server;
  std::mutex mutex;
  std::condition_variable all_are_there;
  int arrived = 0;  // Guarded by mutex.
  // No stream ends before the last has arrived: a load that waits for one would never end.
  server.generate = [&](const auto&) {
    const std::lock_guard lock(mutex);
    if (++arrived == kRequests) all_are_there.notify_all();
    return Generation{{Tokens(1)}, Generation::Then::kHold};
  };
  const Workload workload(SmallLoad());
  Client client(Connect(server.address()));
  LoadGenerator generator(workload, {&client}, Open(2000, kRequests));
  std::thread release([&] {
    std::unique_lock lock(mutex);
    all_are_there.wait(lock, [&] { return arrived == kRequests; });
    lock.unlock();
    generator.Interrupt();
  });
  const LoadResults results = generator.Run([](const LoadProgress&) {});
  release.join();
  EXPECT_EQ(results.started, kRequests);
  EXPECT_EQ(results.interrupted, kRequests);
}

TEST(LoadGeneratorTest, SpreadsOverItsClients) {
  FakeServer servers[2];
  std::atomic<int> calls[2] = {0, 0};
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 2; ++i) {
    servers[i].generate = [&calls, i](const auto&) {
      ++calls[i];
      return Generation{{Last(1, 8)}};
    };
    clients.push_back(std::make_unique<Client>(Connect(servers[i].address())));
  }
  const Workload workload(SmallLoad());
  LoadGenerator generator(workload, {clients[0].get(), clients[1].get()}, Closed(2, 20));
  EXPECT_EQ(generator.Run([](const LoadProgress&) {}).completed, 20);
  EXPECT_EQ(calls[0], 10);
  EXPECT_EQ(calls[1], 10);
}

class BenchTest : public testing::Test {
 protected:
  BenchTest() {
    server_.get_model = [](const v1::GetModelRequest&, v1::GetModelResponse* response) {
      response->mutable_model()->set_name("tiny");
      response->mutable_model()->set_config_json(R"({"vocab_size": 50})");
      response->mutable_model()->set_max_positions(512);
      return grpc::Status::OK;
    };
    server_.generate = [](const auto&) { return Generation{{Tokens(2), Last(1, 4096)}}; };
  }
  Process::Result Run(const Args& args, const Process::Options& options = {}) const {
    Args command = {"bench"};
    command.insert(command.end(), args.begin(), args.end());
    return Process(CliCommand(server_.address(), command), options).Wait();
  }

  FakeServer server_;
};

TEST_F(BenchTest, ShowsTheFiguresInAHundredColumns) {
  const auto result = Run({"--requests", "20", "--concurrency", "2", "--seed", "9"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, StartsWith("tiny at " + server_.address() +
                                     ": concurrency 2 over 1 connection, seed 9\n"
                                     "20 requests in "));
  EXPECT_THAT(result.out, HasSubstr(": 20 completed, 0 cancelled as planned, 0 failed\n"));
  EXPECT_THAT(result.out, HasSubstr("\ngenerated tokens       60 "));
  EXPECT_THAT(result.out, HasSubstr("\ntime to first token  "));
  EXPECT_THAT(result.out, HasSubstr("\npeak allocated     4.0 KiB  4.0 KiB"));
  EXPECT_THAT(result.out, HasSubstr("\n60 prefix hit tokens, 20 preemptions\n"));
  for (const auto& line : Lines(result.out)) EXPECT_LE(CharacterCount(line), 100u) << line;
}

TEST_F(BenchTest, WritesJson) {
  const TempDir directory;
  const std::string file = (directory.path() / "result.json").string();
  const auto instead = Run({"--requests", "5", "--json"});
  EXPECT_EQ(instead.exit_code, 0) << instead.err;
  const auto beside = Run({"--requests", "5", "--json", file});
  EXPECT_THAT(beside.out, HasSubstr("5 completed"));
  for (const std::string& text : {instead.out, ReadFile(file)}) {
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json["load"]["model"], "tiny");
    EXPECT_EQ(json["requests"]["completed"], 5);
    EXPECT_EQ(json["tokens"]["generated"], 15);
    EXPECT_EQ(json["tokens"]["prompt"], 5 * 128);
    EXPECT_EQ(json["seconds_to_first_token"]["count"], 5);
    EXPECT_EQ(json["cache_bytes"]["peak_allocated"]["p50"], 4096);
  }
  const auto bad = Run({"--requests", "5", "--json=/no/such/file"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, StartsWith("triptych: --json: /no/such/file"));
}

TEST_F(BenchTest, ShowsErrorsByCode) {
  std::atomic<int> calls = 0;
  server_.generate = [&](const auto&) {
    if (calls++ % 2 == 0) return Generation{{Last(1, 8)}};
    return Generation{{},
                      Generation::Then::kFinish,
                      grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full")};
  };
  const auto some = Run({"--requests", "6"});
  EXPECT_EQ(some.exit_code, 0);
  EXPECT_THAT(some.out, HasSubstr("\n     3  resource exhausted: the queue is full\n"));

  server_.generate = nullptr;
  const auto all = Run({"--requests", "2"});
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_THAT(all.out, HasSubstr("\n     2  unimplemented: not set up\n"));
  EXPECT_EQ(all.err, "triptych: every request failed\n");
}

TEST_F(BenchTest, CtrlCEndsItWithTheFiguresSoFar) {
  std::atomic<int> calls = 0;
  server_.generate = [&](const auto&) {
    if (calls++ < 3) return Generation{{Last(1, 8)}};
    return Generation{{Tokens(1)}, Generation::Then::kHold};
  };
  Process process(CliCommand(server_.address(), {"bench"}), {});
  ASSERT_TRUE(process.WaitForOutput("concurrency"));
  while (calls < 4) std::this_thread::yield();
  process.Signal(SIGINT);
  const auto result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.out, HasSubstr("4 requests in "));
  EXPECT_THAT(result.out,
              HasSubstr(": 3 completed, 0 cancelled as planned, 0 failed, 1 interrupted"));
  EXPECT_EQ(result.err, "");
}

TEST_F(BenchTest, RefusesALoadThatDoesNotFit) {
  ExpectError(Run({"--prompt-tokens", "512"}), 2,
              "--prompt-tokens: prefix, prompt and one output token need at least 513 tokens; "
              "allowed: at most 512, the context of tiny");
  ExpectError(Run({"--prompt-tokens", "20:10"}), 2,
              "--prompt-tokens: must be N, LOW:HIGH or lognormal:MEDIAN:SIGMA");
  ExpectError(Run({"--rate", "1", "--concurrency", "2"}), 2, "excludes");
  ExpectError(Run({"--prefixes", "2"}), 2, "--prefixes requires --shared-prefix-tokens");
  ExpectError(Run({"--cancel-ratio", "1.5"}), 2, "--cancel-ratio: must be a number, 0 to 1");
  server_.get_model = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no model 'x'");
  };
  ExpectError(Run({"--model", "x"}), 1, "not found: no model 'x'");
}

}  // namespace
}  // namespace triptych::client::bench_test
