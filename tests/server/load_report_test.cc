// Tests of load reports in the trailers of calls. gRPC's client hides them from applications, so
// the test uses curl.
#include <openssl/evp.h>

#include <map>
#include <optional>
#include <string>

#include "tests/server/test_server.h"
#include "tests/support/process.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace triptych::server::load_report_test {
namespace {

// The trailer in base64, after a call of InferenceService; nothing without curl.
std::optional<std::string> Trailer(const TestServer& server, const std::string& method,
                                   const std::string& message) {
  const TempDir directory;
  const std::string file = directory.path() / "request";
  const auto size = static_cast<uint32_t>(message.size());
  std::string frame(5, '\0');  // flag "not compressed", then the length
  for (int i = 0; i < 4; ++i) frame[4 - i] = static_cast<char>(size >> (8 * i));
  WriteFile(file, frame + message);
  const Process::Result result =
      Process(
          {"/usr/bin/env", "curl", "--http2-prior-knowledge", "-sS", "-D", "-", "-o", "/dev/null",
           "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary",
           "@" + file, "http://" + server.address() + "/triptych.v1.InferenceService/" + method},
          {})
          .Wait();
  if (result.exit_code == 127) return std::nullopt;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string name = "\nendpoint-load-metrics-bin: ";
  const size_t at = result.out.find(name);
  if (at == result.out.npos) return "";
  const size_t begin = at + name.size();
  return result.out.substr(begin, result.out.find_first_of("\r\n", begin) - begin);
}

std::map<std::string, double> LoadOf(std::string base64) {
  const size_t missing = (4 - base64.size() % 4) % 4;
  base64.append(missing, '=');
  std::string bytes(base64.size() / 4 * 3, '\0');
  EXPECT_EQ(EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                            reinterpret_cast<const unsigned char*>(base64.data()),
                            static_cast<int>(base64.size())),
            std::ssize(bytes));
  bytes.resize(bytes.size() - missing);
  xds::data::orca::v3::OrcaLoadReport report;
  EXPECT_TRUE(report.ParseFromString(bytes));
  return {report.named_metrics().begin(), report.named_metrics().end()};
}

TEST(LoadReportTest, CallsEndWithTheLoadOfTheirEngine) {
  const TestServer server({.models = {EndlessModel()}, .max_running = 2});
  GenerateCall other(server.inference(), Greedy("", "a", kEndlessPositions - 10));
  ASSERT_TRUE(other.Read());
  const auto trailer = Trailer(server, "Generate", Greedy("", "a", 3).SerializeAsString());
  if (!trailer) GTEST_SKIP() << "curl is missing";
  EXPECT_EQ(trailer->size(), 130) << "as server/README.md says";
  const std::map<std::string, double> load = LoadOf(*trailer);
  EXPECT_EQ(load.at("requests_running"), 1) << "the other one";
  EXPECT_EQ(load.at("requests_waiting"), 0);
  EXPECT_GT(load.at("kv_cache_utilization_ratio"), 0);
  EXPECT_LE(load.at("kv_cache_utilization_ratio"), 1);

  v1::ScoreRequest score;
  score.add_inputs()->set_text("abc");
  EXPECT_EQ(LoadOf(*Trailer(server, "Score", score.SerializeAsString())).at("requests_running"), 1);
  score.mutable_inputs(0)->set_text("");
  score.set_model("none");
  EXPECT_EQ(*Trailer(server, "Score", score.SerializeAsString()), "") << "no engine took it";
}

}  // namespace
}  // namespace triptych::server::load_report_test
