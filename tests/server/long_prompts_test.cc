// Texts that take long to tokenize, and concurrent calls, over gRPC.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "server/core/access/auth_gate.h"
#include "server/core/requests/tokenization_queue.h"
#include "server/grpc/grpc_server.h"
#include "tests/server/fake_core.h"
#include "tests/server/test_server.h"

namespace triptych::server::long_prompts_test {
namespace {

using grpc::StatusCode;

// One client's calls may hold eight times as much.
constexpr int64_t kMaxMessageBytes = int64_t{5} << 20;

class GrpcTokenizationQueueTest : public testing::Test {
 protected:
  GrpcTokenizationQueueTest() { gate_.Open(fake_.core()); }
  ~GrpcTokenizationQueueTest() override { fake_.LetGo(); }

  // From now on texts are not encoded until they are released; returns when the call's is to be.
  void Hold(const v1::GenerateRequest& request) {
    fake_.HoldTexts();
    held_ = std::make_unique<GenerateCall>(*inference_, request);
    while (fake_.held_texts() == 0) std::this_thread::yield();
  }

  TransportOptions Options() {
    TransportOptions options;
    options.listen = "127.0.0.1:0";
    options.limits.max_message_bytes = kMaxMessageBytes;
    options.is_memory_short = [this] {  // asked when a call that computes has come
      ++calls_;
      return false;
    };
    return options;
  }

  std::atomic<int> calls_ = 0;
  FakeCore fake_{kMaxMessageBytes};
  AuthGate gate_{Options()};
  GrpcServer server_{Options(), gate_};
  const std::shared_ptr<grpc::Channel> channel_ = OwnConnection(server_.address());
  const std::unique_ptr<v1::InferenceService::Stub> inference_ =
      v1::InferenceService::NewStub(channel_);
  std::unique_ptr<GenerateCall> held_;
  const std::string long_text_ = std::string(TokenizationQueue::kMaxQuickBytes + 1, 'a');
};

TEST_F(GrpcTokenizationQueueTest, HoldUpNoOtherCalls) {
  Hold(Greedy("", long_text_, 1));
  std::vector<std::unique_ptr<GenerateCall>> calls;
  for (int i = 0; i < 48; ++i) {
    calls.push_back(std::make_unique<GenerateCall>(*inference_, Greedy("", long_text_, 1)));
  }
  v1::DetokenizeRequest request;
  request.add_token_ids('a');
  v1::DetokenizeResponse response;
  for (int i = 0; i < 48; ++i) {
    const grpc::Status status =
        CallUnary(*inference_, &v1::InferenceService::Stub::Detokenize, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(fake_.held_texts(), 1);
  fake_.LetGo();
  for (const auto& call : calls) {
    const grpc::Status status = call->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(call->completion().usage().prompt_tokens(), std::ssize(long_text_) + 1);
  }
}

TEST_F(GrpcTokenizationQueueTest, GrammarsHoldUpNoOtherCalls) {
  v1::GenerateRequest request = Greedy("", "a", 10);
  request.set_grammar("root ::= [a-c]{3}");
  Hold(request);
  std::vector<std::unique_ptr<GenerateCall>> calls;
  for (int i = 0; i < 48; ++i)
    calls.push_back(std::make_unique<GenerateCall>(*inference_, request));
  v1::DetokenizeRequest other;
  other.add_token_ids('a');
  v1::DetokenizeResponse response;
  for (int i = 0; i < 48; ++i) {
    EXPECT_TRUE(
        CallUnary(*inference_, &v1::InferenceService::Stub::Detokenize, other, &response).ok());
  }
  EXPECT_EQ(fake_.held_texts(), 1);
  fake_.LetGo();
  for (const auto& call : calls) {
    EXPECT_TRUE(call->Finish().ok());
    EXPECT_THAT(call->text(), testing::MatchesRegex("[a-c]{3}"));
  }
}

TEST_F(GrpcTokenizationQueueTest, AreAnsweredAsOthersAre) {
  fake_.LetGo();
  const auto generation = Generate(*inference_, Greedy("", long_text_, 3));
  EXPECT_EQ(generation->tokens().size(), 3u);
  EXPECT_FALSE(generation->RequestId().empty());
  v1::GenerateRequest invalid = Greedy("", long_text_, 1);
  invalid.set_max_new_tokens(-1);
  EXPECT_TRUE(RefusesField(GenerateCall(*inference_, invalid).Finish(), "max_new_tokens"));
  EXPECT_EQ(GenerateCall(*inference_, Greedy("none", long_text_, 1)).Finish().error_code(),
            StatusCode::NOT_FOUND);

  v1::ScoreRequest score;
  for (int i = 0; i < 2; ++i) score.add_inputs()->set_text(long_text_.substr(0, 10'000));
  v1::ScoreResponse scores;
  EXPECT_TRUE(CallUnary(*inference_, &v1::InferenceService::Stub::Score, score, &scores).ok());
  ASSERT_EQ(scores.results_size(), 2);
  EXPECT_EQ(scores.results(1).scored_tokens(), 10'000);
  score.set_model("none");
  EXPECT_EQ(CallUnary(*inference_, &v1::InferenceService::Stub::Score, score, &scores).error_code(),
            StatusCode::NOT_FOUND);

  v1::TokenizeRequest tokenize;
  tokenize.set_text(long_text_);
  v1::TokenizeResponse tokens;
  EXPECT_TRUE(
      CallUnary(*inference_, &v1::InferenceService::Stub::Tokenize, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.token_ids_size(), std::ssize(long_text_));
  tokenize.set_model("none");
  EXPECT_EQ(
      CallUnary(*inference_, &v1::InferenceService::Stub::Tokenize, tokenize, &tokens).error_code(),
      StatusCode::NOT_FOUND);
}

TEST_F(GrpcTokenizationQueueTest, TokensStandForFourMebibytesAtMost) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Resize((4 << 20) + 1, 'a');
  v1::DetokenizeResponse response;
  const grpc::Status status =
      CallUnary(*inference_, &v1::InferenceService::Stub::Detokenize, request, &response);
  EXPECT_TRUE(RefusesField(status, "token_ids"));
}

// Its generation begins after the call was cancelled.
TEST_F(GrpcTokenizationQueueTest, AClientThatGoesWhileItsTextIsEncodedFreesItsRequest) {
  Hold(Greedy("", long_text_, FakeCore::kPositions / 2));
  GenerateCall waits(*inference_, Greedy("", long_text_, FakeCore::kPositions / 2));
  EXPECT_EQ(fake_.core().requests.live_requests(), 1);
  for (GenerateCall* call : {held_.get(), &waits}) {
    call->Cancel();
    EXPECT_EQ(call->Finish().error_code(), StatusCode::CANCELLED);
  }
  fake_.LetEncode(2);
  for (int steps = 0; fake_.core().requests.live_requests() > 0; std::this_thread::yield()) {
    if (fake_.begun_steps() <= steps) continue;
    fake_.LetCompute(1);  // or the engine waits in a step, and learns nothing
    ++steps;
  }
  EXPECT_THAT(fake_.core().stats.Metrics(), testing::HasSubstr("outcome=\"length\"} 0\n"));
}

TEST_F(GrpcTokenizationQueueTest, WaitingForItsTurnIsTimeInTheQueue) {
  Hold(Greedy("", long_text_, 1));
  GenerateCall waits(*inference_, Greedy("", long_text_, 1));
  while (calls_ < 2) std::this_thread::yield();
  const auto held = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - held;
  fake_.LetGo();
  for (GenerateCall* call : {held_.get(), &waits}) {
    ASSERT_TRUE(call->Finish().ok());
    const auto& queue_time = call->completion().usage().queue_time();
    EXPECT_GE(google::protobuf::util::TimeUtil::DurationToNanoseconds(queue_time), time.count());
  }
}

// The memory of a message counts, which may be many times the bytes received: an empty string
// takes two bytes there and forty here.
TEST_F(GrpcTokenizationQueueTest, WaitingTextsAreBounded) {
  Hold(Greedy("", long_text_, 1));
  v1::GenerateRequest request = Greedy("", long_text_, 1);
  for (int i = 0; i < 700'000; ++i) request.add_stop("");
  ASSERT_LT(request.ByteSizeLong(), kMaxMessageBytes);
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < 2; ++i) {
    calls.push_back(std::async(std::launch::async,
                               [&] { return GenerateCall(*inference_, request).Finish(); }));
  }
  const auto is_over = [](const std::future<grpc::Status>& call) {
    return call.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  auto over = calls.end();
  while (over == calls.end()) over = std::find_if(calls.begin(), calls.end(), is_over);
  const grpc::Status refused = over->get();
  EXPECT_TRUE(IsError(refused, StatusCode::RESOURCE_EXHAUSTED, "TEXTS_WAITING"));
  EXPECT_TRUE(GetDetail<google::rpc::RetryInfo>(refused).has_value());
  fake_.LetGo();
  calls.erase(over);
  EXPECT_TRUE(RefusesField(calls.front().get(), "stop"));
  EXPECT_TRUE(held_->Finish().ok());
  while (true) {  // until what was held for the other has been given back
    const grpc::Status status = GenerateCall(*inference_, request).Finish();
    if (status.error_code() == StatusCode::RESOURCE_EXHAUSTED) continue;
    EXPECT_TRUE(RefusesField(status, "stop"));
    break;
  }
}

TEST_F(GrpcTokenizationQueueTest, TextsThatWaitAtADrainAreRefused) {
  Hold(Greedy("", long_text_, 1));
  GenerateCall waits(*inference_, Greedy("", long_text_, 1));
  while (calls_ < 2) std::this_thread::yield();
  server_.StartDrain();
  fake_.core().requests.StartDrain();
  fake_.LetGo();
  EXPECT_EQ(waits.Finish().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(held_->Finish().ok());
  EXPECT_TRUE(fake_.core().requests.Drain(kForever));
}

}  // namespace
}  // namespace triptych::server::long_prompts_test
