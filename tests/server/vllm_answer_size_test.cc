// Answers of VllmEngine.Generate that one message cannot hold.
#include "server/core/access/auth_gate.h"
#include "server/grpc/grpc_server.h"
#include "tests/server/fake_core.h"
#include "tests/server/test_server.h"
#include "vllm/grpc/engine/vllm_engine.grpc.pb.h"

namespace triptych::server::vllm_answer_size_test {
namespace {

namespace wire = ::vllm::grpc::engine;
using grpc::StatusCode;
using testing::HasSubstr;

constexpr int kMostScored = 20'215;  // prompt tokens, with 20 likely tokens of each

class VllmAnswerSizeTest : public testing::Test {
 protected:
  VllmAnswerSizeTest() {
    gate_.Open(fake_.core());
    fake_.LetGo();
  }

  static TransportOptions Options() {
    TransportOptions options;
    options.listen = "127.0.0.1:0";
    options.limits.max_message_bytes = kMaxMessageBytes;
    return options;
  }
  static wire::GenerateRequest Request(int prompt, uint32_t tokens) {
    wire::GenerateRequest request;
    for (int i = 0; i < prompt; ++i) request.mutable_tokenized()->add_input_ids(97);
    request.mutable_sampling_params()->set_max_tokens(tokens);
    request.mutable_sampling_params()->set_ignore_eos(true);
    request.mutable_sampling_params()->set_temperature(0);
    return request;
  }
  // Sets `tokens_` and `scored_` to what has arrived.
  grpc::Status Generate(const wire::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kForever);
    const auto stream = stub_->Generate(&context, request);
    tokens_ = scored_ = 0;
    wire::GenerateResponse response;
    while (stream->Read(&response)) {
      tokens_ += response.chunk().token_ids_size() + response.complete().output_ids_size();
      scored_ += response.chunk().input_logprobs().token_ids_size() +
                 response.complete().input_logprobs().token_ids_size();
    }
    return stream->Finish();
  }

  static constexpr int64_t kMaxMessageBytes = int64_t{1} << 20;
  FakeCore fake_{kMaxMessageBytes};
  AuthGate gate_{Options()};
  GrpcServer server_{Options(), gate_};
  const std::unique_ptr<wire::VllmEngine::Stub> stub_ =
      wire::VllmEngine::NewStub(OwnConnection(server_.address()));
  int tokens_ = 0, scored_ = 0;
};

TEST_F(VllmAnswerSizeTest, TheLogProbabilitiesOfAPromptFitOrAreRefused) {
  for (const bool streamed : {false, true}) {
    wire::GenerateRequest request = Request(kMostScored, 1);
    request.set_stream(streamed);
    request.mutable_sampling_params()->set_prompt_logprobs(20);
    const grpc::Status fits = Generate(request);
    EXPECT_TRUE(fits.ok()) << fits.error_message();
    EXPECT_EQ(scored_, kMostScored);
    request.mutable_tokenized()->add_input_ids(97);
    const grpc::Status status = Generate(request);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(),
              "sampling_params.prompt_logprobs are those of 20216 tokens; allowed: at most 20215, "
              "which one message holds");
    EXPECT_EQ(scored_, 0);
  }
}

TEST_F(VllmAnswerSizeTest, AChoiceFitsOrIsStreamed) {
  constexpr int kTokens = 21'000;
  wire::GenerateRequest request = Request(1, kTokens);
  request.mutable_sampling_params()->set_logprobs(20);
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("allowed: \"stream\", or fewer tokens"));
  EXPECT_EQ(tokens_, 0);
  request.set_stream(true);
  EXPECT_TRUE(Generate(request).ok());
  EXPECT_EQ(tokens_, kTokens);
}

}  // namespace
}  // namespace triptych::server::vllm_answer_size_test
