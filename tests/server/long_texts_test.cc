// Texts that take long to become tokens, and calls beside them, over gRPC.
#include "server/core/long_texts.h"

#include <atomic>
#include <thread>

#include "server/core/gate.h"
#include "server/grpc/grpc_server.h"
#include "tests/server/fake_host.h"
#include "tests/server/test_server.h"

namespace triptych {
namespace {

using grpc::StatusCode;

// One client may have one such text wait, and 4 KiB.
constexpr int64_t kHalf = LongTexts::kMaxWaitingBytes / 2;
constexpr int64_t kMaxMessageBytes = kHalf + 4096;

class GrpcLongTextsTest : public testing::Test {
 protected:
  GrpcLongTextsTest() { gate_.Open(host_.host()); }
  ~GrpcLongTextsTest() override { host_.LetGo(); }

  // From now on texts are not encoded until LetGo; returns when the call's is to be.
  void Hold(const v1::GenerateRequest& request) {
    host_.HoldTexts();
    held_ = std::make_unique<GenerateCall>(*inference_, request);
    while (host_.held_texts() == 0) std::this_thread::yield();
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
  FakeHost host_;
  Gate gate_{Options()};
  GrpcServer server_{Options(), gate_};
  const std::shared_ptr<grpc::Channel> channel_ = OwnConnection(server_.address());
  const std::unique_ptr<v1::InferenceService::Stub> inference_ =
      v1::InferenceService::NewStub(channel_);
  std::unique_ptr<GenerateCall> held_;
  const std::string long_text_ = std::string(LongTexts::kMaxQuickBytes + 1, 'a');
};

TEST_F(GrpcLongTextsTest, HoldUpNoOtherCalls) {
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
        Call(*inference_, &v1::InferenceService::Stub::Detokenize, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(host_.held_texts(), 1);
  host_.LetGo();
  for (const auto& call : calls) {
    const grpc::Status status = call->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(call->completion().usage().prompt_tokens(), std::ssize(long_text_) + 1);
  }
}

TEST_F(GrpcLongTextsTest, AreAnsweredAsOthersAre) {
  host_.LetGo();
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
  EXPECT_TRUE(Call(*inference_, &v1::InferenceService::Stub::Score, score, &scores).ok());
  ASSERT_EQ(scores.results_size(), 2);
  EXPECT_EQ(scores.results(1).scored_tokens(), 10'000);
  score.set_model("none");
  EXPECT_EQ(Call(*inference_, &v1::InferenceService::Stub::Score, score, &scores).error_code(),
            StatusCode::NOT_FOUND);

  v1::TokenizeRequest tokenize;
  tokenize.set_text(long_text_);
  v1::TokenizeResponse tokens;
  EXPECT_TRUE(Call(*inference_, &v1::InferenceService::Stub::Tokenize, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.token_ids_size(), std::ssize(long_text_));
  tokenize.set_model("none");
  EXPECT_EQ(
      Call(*inference_, &v1::InferenceService::Stub::Tokenize, tokenize, &tokens).error_code(),
      StatusCode::NOT_FOUND);
}

TEST_F(GrpcLongTextsTest, TokensStandForFourMebibytesAtMost) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Resize((4 << 20) + 1, 'a');
  v1::DetokenizeResponse response;
  const grpc::Status status =
      Call(*inference_, &v1::InferenceService::Stub::Detokenize, request, &response);
  EXPECT_TRUE(RefusesField(status, "token_ids"));
}

// Its generation begins after the call was cancelled.
TEST_F(GrpcLongTextsTest, AClientThatGoesWhileItsTextIsEncodedFreesItsRequest) {
  Hold(Greedy("", long_text_, FakeHost::kPositions / 2));
  GenerateCall waits(*inference_, Greedy("", long_text_, FakeHost::kPositions / 2));
  EXPECT_EQ(host_.host().live_requests(), 1);
  for (GenerateCall* call : {held_.get(), &waits}) {
    call->Cancel();
    EXPECT_EQ(call->Finish().error_code(), StatusCode::CANCELLED);
  }
  host_.LetGo();
  while (host_.host().live_requests() > 0) std::this_thread::yield();
  EXPECT_LT(host_.begun_steps(), FakeHost::kPositions / 4);
}

TEST_F(GrpcLongTextsTest, WhatWaitsIsBounded) {
  Hold(Greedy("", std::string(kHalf, 'a'), 1));
  GenerateCall refused(*inference_, Greedy("", long_text_, 1));
  const grpc::Status status = refused.Finish();
  EXPECT_TRUE(IsError(status, StatusCode::RESOURCE_EXHAUSTED, "MEMORY_PRESSURE"));
  EXPECT_TRUE(GetDetail<google::rpc::RetryInfo>(status).has_value());
  host_.LetGo();
  EXPECT_EQ(held_->Finish().error_code(), StatusCode::INVALID_ARGUMENT) << "it is too long";
  StatusCode code;
  do {  // until what was held for that text has been given back
    code = GenerateCall(*inference_, Greedy("", long_text_, 1)).Finish().error_code();
  } while (code == StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(code, StatusCode::OK);
}

TEST_F(GrpcLongTextsTest, WhatWaitsAtADrainIsRefused) {
  Hold(Greedy("", long_text_, 1));
  GenerateCall waits(*inference_, Greedy("", long_text_, 1));
  while (calls_ < 2) std::this_thread::yield();
  server_.StartDrain();
  host_.LetGo();
  EXPECT_EQ(waits.Finish().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(held_->Finish().ok());
  EXPECT_TRUE(host_.host().Drain(kForever));
}

}  // namespace
}  // namespace triptych
