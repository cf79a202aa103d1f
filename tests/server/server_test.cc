// Tests of the whole server: clients that leave, full queues, and shutdown.

#include <future>

#include "tests/server/any_method.h"
#include "tests/server/captured_log.h"
#include "tests/server/test_server.h"

namespace triptych::server::server_test {
namespace {

using namespace std::chrono_literals;
using grpc::StatusCode;
using grpc::health::v1::HealthCheckResponse;
using testing::AnyOf;
using testing::SizeIs;
using Inference = v1::InferenceService::Stub;

const char* const kServices[] = {"triptych.v1.InferenceService", "triptych.v1.ModelService",
                                 "triptych.v1.KvCacheService"};

TEST(ServerTest, ACancelFreesTheBlocks) {
  const TestServer server(OneEndlessModel());
  GenerateCall stream(server.inference(), Endless());
  ASSERT_TRUE(stream.Read());
  EXPECT_GT(server.Stats("endless").used_bytes(), 0);
  stream.Cancel();
  EXPECT_EQ(stream.Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
}

TEST(ServerTest, ACancelWhileQueuedLeavesTheQueue) {
  const TestServer server({.models = {EndlessModel()}, .max_running = 1});
  GenerateCall running(server.inference(), Endless());
  ASSERT_TRUE(running.Read());
  GenerateCall queued(server.inference(), Endless());
  ASSERT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.waiting_sequences() == 1; }));
  queued.Cancel();
  EXPECT_EQ(queued.Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.waiting_sequences() == 0; }));
  EXPECT_TRUE(running.Read());  // undisturbed
}

TEST(ServerTest, CancelsAtAnyMomentLeaveNothing) {
  const TestServer server(OneEndlessModel());
  for (int i = 0; i < 50; ++i) {
    GenerateCall stream(server.inference(), Endless());
    for (int read = 0; read < i % 3; ++read) ASSERT_TRUE(stream.Read());
    stream.Cancel();
    EXPECT_EQ(stream.Finish().error_code(), StatusCode::CANCELLED);
  }
  EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
}

TEST(ServerTest, ADeadlineFreesTheBlocks) {
  const TestServer server(OneEndlessModel());
  GenerateCall stream(server.inference(), Endless(), 200ms);
  EXPECT_EQ(stream.Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
}

TEST(ServerTest, AFullQueueSaysWhenToTryAgain) {
  const TestServer server({.models = {EndlessModel()}, .max_running = 1, .max_waiting = 1});
  GenerateCall running(server.inference(), Endless());
  ASSERT_TRUE(running.Read());
  GenerateCall queued(server.inference(), Endless());
  ASSERT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.waiting_sequences() == 1; }));

  GenerateCall refused(server.inference(), Endless());
  const grpc::Status status = refused.Finish();
  EXPECT_TRUE(IsError(status, StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL"));
  const auto retry = GetDetail<google::rpc::RetryInfo>(status);
  ASSERT_TRUE(retry.has_value());
  EXPECT_GT(retry->retry_delay().seconds() + retry->retry_delay().nanos(), 0);
  EXPECT_EQ(refused.Trailer("grpc-retry-pushback-ms"),
            std::to_string(retry->retry_delay().seconds() * 1000 +
                           retry->retry_delay().nanos() / 1'000'000));
  v1::ScoreRequest score;
  score.add_inputs()->set_text("a");
  v1::ScoreResponse response;
  EXPECT_TRUE(IsError(CallUnary(server.inference(), &Inference::Score, score, &response),
                      StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL"));

  // Accepted requests continue: the queued one runs after the first.
  running.Cancel();
  EXPECT_TRUE(queued.Read());
}

TEST(ServerTest, ARequestsIdIsToldFirst) {
  const TestServer server(OneEndlessModel());
  GenerateCall first(server.inference(), Endless());
  const std::string id = first.RequestId();
  EXPECT_THAT(id, testing::MatchesRegex("[0-9a-f]{8}-[0-9]+"));
  v1::ListSequencesResponse live;
  ASSERT_TRUE(CallUnary(server.kv_cache(), &v1::KvCacheService::Stub::ListSequences,
                        v1::ListSequencesRequest(), &live)
                  .ok());
  ASSERT_EQ(live.sequences_size(), 1);
  EXPECT_EQ(live.sequences(0).request_id(), id);
  EXPECT_EQ(live.sequences(0).client(), "127.0.0.1") << "for admin, as who is on this machine is";
  const auto second = Generate(server.inference(), Greedy("", "a", 1));
  EXPECT_EQ(second->completion().request_id(), second->RequestId());
  EXPECT_NE(second->RequestId(), id);
}

// gRPC's retries need a rejection without initial metadata: after it, a call is not retried.
TEST(ServerTest, ARefusedCallIsTriedAgainByGrpc) {
  const CapturedLog log;
  const TestServer server({.models = {EndlessModel()}, .max_running = 1, .max_waiting = 1});
  GenerateCall running(server.inference(), Endless());
  ASSERT_TRUE(running.Read());
  GenerateCall queued(server.inference(), Endless());
  ASSERT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.waiting_sequences() == 1; }));
  GenerateCall refused(server.inference(), Endless());
  EXPECT_TRUE(IsError(refused.Finish(), StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL"));
  EXPECT_EQ(refused.RequestId(), "");

  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 1);
  arguments.SetServiceConfigJSON(R"({"methodConfig": [{
      "name": [{"service": "triptych.v1.InferenceService"}],
      "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "0.01s",
                      "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]})");
  const auto stub = v1::InferenceService::NewStub(
      OwnConnection(server.address(), grpc::InsecureChannelCredentials(), arguments));
  GenerateCall retried(*stub, Endless());
  const auto refusals = [&] {
    const std::string text = log.text();
    size_t count = 0;
    for (size_t at = 0; (at = text.find("QUEUE_FULL", at)) != text.npos; ++at) ++count;
    return count;
  };
  while (refusals() < 2) std::this_thread::yield();  // the first attempt's
  queued.Cancel();
  EXPECT_EQ(queued.Finish().error_code(), StatusCode::CANCELLED);
  running.Cancel();
  EXPECT_TRUE(retried.Read());
  EXPECT_NE(retried.RequestId(), "");
}

TEST(ServerTest, OneClientsShareIsBounded) {
  const TestServer server(
      {.models = {EndlessModel()}, .admission = {.max_client_requests = 2, .client_rate = 0}});
  GenerateCall first(server.inference(), Endless()), second(server.inference(), Endless());
  ASSERT_TRUE(first.Read());
  ASSERT_TRUE(second.Read());
  GenerateCall refused(server.inference(), Endless());
  EXPECT_TRUE(IsError(refused.Finish(), StatusCode::RESOURCE_EXHAUSTED, "CLIENT_LIMIT"));
  EXPECT_NE(refused.Trailer("grpc-retry-pushback-ms"), "");
  EXPECT_EQ(refused.RequestId(), "");
  v1::ScoreRequest score;
  score.add_inputs()->set_text("a");
  v1::ScoreResponse response;
  EXPECT_TRUE(IsError(CallUnary(server.inference(), &Inference::Score, score, &response),
                      StatusCode::RESOURCE_EXHAUSTED, "CLIENT_LIMIT"));
}

TEST(ServerTest, OneClientsRateIsBounded) {
  const TestServer server(
      {.models = {EndlessModel()}, .admission = {.max_client_requests = 0, .client_rate = 0.001}});
  Generate(server.inference(), Greedy("", "a", 1));
  GenerateCall refused(server.inference(), Greedy("", "a", 1));
  const grpc::Status status = refused.Finish();
  EXPECT_TRUE(IsError(status, StatusCode::RESOURCE_EXHAUSTED, "CLIENT_RATE"));
  // A thousand seconds, minus the test's time.
  EXPECT_GT(GetDetail<google::rpc::RetryInfo>(status)->retry_delay().seconds(), 800);
  EXPECT_GT(std::stoll(refused.Trailer("grpc-retry-pushback-ms")), 800'000);
}

TEST(ServerTest, AScoreThatIsCancelledFreesAllItsInputs) {
  const TestServer server({.models = {EndlessModel()}, .max_running = 1});
  GenerateCall running(server.inference(), Endless());
  ASSERT_TRUE(running.Read());
  v1::ScoreRequest score;
  for (int i = 0; i < 10; ++i) score.add_inputs()->set_text("a");
  grpc::ClientContext context;
  std::future<grpc::Status> ended = std::async(std::launch::async, [&] {
    v1::ScoreResponse response;
    return server.inference().Score(&context, score, &response);
  });
  ASSERT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.waiting_sequences() == 10; }));
  context.TryCancel();
  EXPECT_EQ(ended.get().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.waiting_sequences() == 0; }));
}

// Bytes that cannot be parsed never reach a service: gRPC answers, as the proto documents.
TEST(ServerTest, GrpcAnswersInvalidMessages) {
  const TestServer server(OneEndlessModel());
  for (const std::string& bytes : {std::string("\xff\xff\xff"), std::string("\x12\x01\xff")}) {
    for (const std::string method : {"Generate", "Score", "Tokenize"}) {
      const grpc::Status status =
          CallWithBytes(OwnConnection(server.address()), "/triptych.v1.InferenceService/" + method,
                        method == "Score" ? "\x12\x03\x0a\x01\xff" : bytes);
      EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED) << status.error_message();
      EXPECT_EQ(status.error_details(), "");
    }
  }
  Generate(server.inference(), Greedy("", "a", 1));
}

TEST(ServerTest, ASlowReaderIsCutOffAndDelaysNoOtherClient) {
  TestServer server(OneEndlessModel());
  const auto stub = v1::InferenceService::NewStub(SmallConnection(server.address()));
  // 200 bytes each: several times the limit of pending output.
  constexpr int32_t kTokens = 20'000;
  v1::GenerateRequest request = Greedy("", "a", kTokens);
  request.set_logprobs(20);
  GenerateCall slow(*stub, request);
  const std::string id = slow.RequestId();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Generate(server.inference(), Greedy("", "b", 100))->tokens(), SizeIs(100));
  }
  ASSERT_TRUE(server.WaitForStats("endless", IsIdle));
  const grpc::Status status = slow.Finish();
  ASSERT_TRUE(IsError(status, StatusCode::RESOURCE_EXHAUSTED, "SLOW_READER"));
  EXPECT_EQ(GetDetail<google::rpc::ErrorInfo>(status)->metadata().at("request_id"), id);
  EXPECT_LT(std::ssize(slow.tokens()), kTokens);
}

TEST(ServerTest, DrainingLetsLiveStreamsEnd) {
  TestServer server(OneEndlessModel());
  constexpr int32_t kTokens = 2000;
  std::vector<std::unique_ptr<GenerateCall>> streams;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(std::make_unique<GenerateCall>(server.inference(), Greedy("", "a", kTokens)));
    ASSERT_TRUE(streams.back()->Read());
  }
  std::future<bool> drained =
      std::async(std::launch::async, [&] { return server.Shutdown(kForever); });
  for (const auto& stream : streams) {
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_THAT(stream->tokens(), SizeIs(kTokens));
    EXPECT_EQ(stream->completion().finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_TRUE(drained.get());
}

TEST(ServerTest, DrainingRefusesNewRequests) {
  TestServer server(OneEndlessModel());
  for (const std::string service : {"", kServices[0], kServices[1], kServices[2]}) {
    EXPECT_EQ(server.Health(service), HealthCheckResponse::SERVING) << service;
  }
  grpc::ClientContext watching;
  const auto health = server.health().Watch(&watching, {});
  HealthCheckResponse state;
  ASSERT_TRUE(health->Read(&state));
  EXPECT_EQ(state.status(), HealthCheckResponse::SERVING);
  GenerateCall live(server.inference(), Endless());
  ASSERT_TRUE(live.Read());
  std::future<bool> drained =
      std::async(std::launch::async, [&] { return server.Shutdown(kForever); });
  ASSERT_TRUE(health->Read(&state));
  EXPECT_EQ(state.status(), HealthCheckResponse::NOT_SERVING);
  watching.TryCancel();

  // The engine notices a moment later and can still accept a request, so it is a short one. gRPC
  // cancels calls that were sent before the client read the GOAWAY.
  const auto end = std::chrono::steady_clock::now() + kForever;
  grpc::Status status;
  do {
    GenerateCall refused(server.inference(), Greedy("", "a", 1));
    status = refused.Finish();
    ASSERT_LT(std::chrono::steady_clock::now(), end);
  } while (status.ok());
  EXPECT_THAT(status.error_code(), AnyOf(StatusCode::UNAVAILABLE, StatusCode::CANCELLED));
  while (status.error_code() == StatusCode::CANCELLED) {
    status = GenerateCall(server.inference(), Greedy("", "a", 1)).Finish();
    ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE) << status.error_message();

  // Live requests continue.
  EXPECT_TRUE(live.Read());
  live.Cancel();
  EXPECT_EQ(live.Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(drained.get());
}

TEST(ServerTest, AfterTheDrainTimeoutWhatIsLiveIsEnded) {
  TestServer server({.models = {EndlessModel()}, .max_running = 2});
  std::vector<std::unique_ptr<GenerateCall>> streams;
  for (int i = 0; i < 4; ++i) {  // two of them wait
    streams.push_back(std::make_unique<GenerateCall>(server.inference(), Endless()));
    if (i < 2) {
      ASSERT_TRUE(streams.back()->Read());
    }
  }
  std::future<bool> drained = std::async(std::launch::async, [&] { return server.Shutdown(0ms); });
  for (const auto& stream : streams) {
    EXPECT_THAT(stream->Finish().error_code(),
                AnyOf(StatusCode::UNAVAILABLE, StatusCode::CANCELLED));
  }
  EXPECT_FALSE(drained.get());

  GenerateCall late(server.inference(), Endless());
  EXPECT_EQ(late.Finish().error_code(), StatusCode::UNAVAILABLE);
}

TEST(ServerTest, EndsWithoutAShutdown) {
  auto server = std::make_unique<TestServer>(OneEndlessModel());
  GenerateCall stream(server->inference(), Endless());
  ASSERT_TRUE(stream.Read());
  server.reset();
  EXPECT_FALSE(stream.Finish().ok());
}

TEST(ServerTest, HealthOfAnUnknownServiceIsNotFound) {
  const TestServer server(OneEndlessModel());
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("triptych.v1.Nothing");
  grpc::health::v1::HealthCheckResponse response;
  EXPECT_EQ(CallUnary(server.health(), &grpc::health::v1::Health::Stub::Check, request, &response)
                .error_code(),
            StatusCode::NOT_FOUND);
}

TEST(ServerTest, ReflectionListsTheServices) {
  const TestServer server(OneEndlessModel());
  const std::vector<std::string> methods = ListMethods(OwnConnection(server.address()));
  for (const std::string service : kServices) {
    EXPECT_THAT(methods, testing::Contains(testing::StartsWith("/" + service + "/")));
  }
  EXPECT_THAT(methods, testing::Contains("/grpc.health.v1.Health/Check"));
}

}  // namespace
}  // namespace triptych::server::server_test
