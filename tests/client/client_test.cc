#include "client/client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/client/fake_server.h"

namespace triptych::client::client_test {
namespace {

using Generation = Stream<v1::GenerateResponse>;

v1::GenerateResponse Text(const std::string& text) {
  v1::GenerateResponse response;
  response.set_text(text);
  return response;
}

class ClientTest : public testing::Test {
 protected:
  FakeServer server_;
  Client client_{Connect(server_.address())};
};

TEST_F(ClientTest, CancelsFromAnotherThread) {
  server_.generate = [](const auto&) { return Generation{{Text("a")}, Generation::Then::kHold}; };
  std::thread canceller;
  const grpc::Status status = client_.Generate(
      {}, [&](const v1::GenerateResponse&) { canceller = std::thread([&] { client_.Cancel(); }); });
  canceller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  server_.WaitForCancel();
}

TEST_F(ClientTest, CancelEndsLaterCallsToo) {
  server_.list_models = [](const auto&, auto*) { return grpc::Status::OK; };
  v1::ListModelsResponse response;
  EXPECT_TRUE(client_.ListModels(&response).ok());
  client_.Cancel();
  EXPECT_EQ(client_.ListModels(&response).error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ClientTest, AnExceptionFromTheCallbackCancelsTheCall) {
  server_.generate = [](const auto&) { return Generation{{Text("a")}, Generation::Then::kRepeat}; };
  EXPECT_THROW(static_cast<void>(client_.Generate(
                   {}, [](const v1::GenerateResponse&) { throw std::runtime_error("enough"); })),
               std::runtime_error);
  server_.WaitForCancel();
}

TEST_F(ClientTest, TheTimeoutIsEachCallsDeadline) {
  server_.generate = [](const auto&) { return Generation{{}, Generation::Then::kHold}; };
  Client hasty(Connect(server_.address()), {.timeout = std::chrono::milliseconds(1), .token = ""});
  EXPECT_EQ(hasty.Generate({}, [](const auto&) {}).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
}

// The key that a proxy hashes. The digits are the output of
//   printf 'm\0To be, or not to be, that is the question: Whether it is nobler ' | sha256sum
TEST_F(ClientTest, PromptsWithACommonPrefixHaveTheSameKey) {
  std::string key;  // Key of the last call, which has ended.
  server_.on_call = [&](const grpc::CallbackServerContext& context) {
    const auto found = context.client_metadata().find("triptych-prefix");
    key = found == context.client_metadata().end()
              ? ""
              : std::string(found->second.data(), found->second.size());
  };
  server_.generate = [](const auto&) { return Generation(); };
  const auto key_of = [&](const v1::GenerateRequest& request) {
    EXPECT_TRUE(client_.Generate(request, [](const auto&) {}).ok());
    return key;
  };
  v1::GenerateRequest request;
  request.set_model("m");
  request.set_text("To be, or not to be, that is the question: Whether it is nobler ");  // 64 bytes
  const std::string text_key = key_of(request);
  EXPECT_EQ(text_key, "b9fd010a958bdba8");
  request.mutable_text()->append("in the mind");
  EXPECT_EQ(key_of(request), text_key);
  request.mutable_text()->front() = 't';
  EXPECT_NE(key_of(request), text_key);
  request.mutable_text()->front() = 'T';
  request.set_model("n");
  EXPECT_NE(key_of(request), text_key);

  for (int i = 0; i < 64; ++i) request.mutable_tokens()->add_ids(1000 * i);
  const std::string token_key = key_of(request);
  request.mutable_tokens()->add_ids(1);
  EXPECT_EQ(key_of(request), token_key);
  request.mutable_tokens()->set_ids(63, 7);
  EXPECT_NE(key_of(request), token_key);

  request.set_bypass_prefix_cache(true);
  EXPECT_EQ(key_of(request), "");
}

TEST_F(ClientTest, Tokenizes) {
  server_.tokenize = [](const v1::TokenizeRequest& request, v1::TokenizeResponse* response) {
    for (const char c : request.text()) response->add_token_ids(c);
    return grpc::Status::OK;
  };
  v1::TokenizeRequest request;
  request.set_text("ab");
  v1::TokenizeResponse response;
  ASSERT_TRUE(client_.Tokenize(request, &response).ok());
  EXPECT_EQ(response.token_ids_size(), 2);
  EXPECT_EQ(response.token_ids(1), 'b');
}

}  // namespace
}  // namespace triptych::client::client_test
