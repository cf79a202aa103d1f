// Test of a server process whose GPU fails for good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/server/server_process.h"
#include "tests/server/test_server.h"

namespace triptych::server::lost_device_test {
namespace {

using grpc::health::v1::HealthCheckResponse;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kError = "cuda:0, Emulated GPU: CUDA: unspecified launch failure";

TEST(LostDevice, RequestsFailHealthSaysSoAndTheProcessEnds) {
  const std::string model = "mla=" TRIPTYCH_MODELS_DIR "/shakespeare-mla";
  ServerProcess server({"--model", model, "--device", "cuda", "--kv-cache-bytes", "4MiB"},
                       {"TRIPTYCH_EMULATED_STEPS=3"});
  ASSERT_NE(server.address(), "");
  const auto health_stub = grpc::health::v1::Health::NewStub(OwnConnection(server.address()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kForever);
  const auto health = health_stub->Watch(&context, {});
  HealthCheckResponse state;
  ASSERT_TRUE(health->Read(&state));
  ASSERT_EQ(state.status(), HealthCheckResponse::SERVING);

  const auto inference = server.Inference();
  GenerateCall call(*inference, Greedy("mla", "ROMEO:", 64));
  const grpc::Status status = call.Finish();
  EXPECT_TRUE(IsError(status, grpc::StatusCode::INTERNAL, "STEP_FAILED"));
  EXPECT_EQ(status.error_message(), kError);
  EXPECT_THAT(call.messages(), Not(IsEmpty()));

  ASSERT_TRUE(health->Read(&state));
  EXPECT_EQ(state.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_THAT(server.lines(), Contains(EndsWith(" critical " + kError + "; stopping")));
  EXPECT_THAT(server.lines(), Contains(HasSubstr(" critical ")).Times(1));
  EXPECT_THAT(server.err(), IsEmpty());
}

}  // namespace
}  // namespace triptych::server::lost_device_test
