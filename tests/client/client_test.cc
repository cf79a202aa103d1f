#include "client/client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/client/fake_server.h"

namespace triptych::client {
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
}  // namespace triptych::client
