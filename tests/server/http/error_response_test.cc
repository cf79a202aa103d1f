// Tests of the HTTP status of each error.
#include "server/http/error_response.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace triptych::server::error_response_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

TEST(ErrorResponseTest, EveryErrorHasItsStatus) {
  const struct {
    Error error;
    int status;
    std::string type, code;
  } errors[] = {
      {InvalidArgument("n", "is 3"), 400, "invalid_request_error", "invalid_field"},
      {ModelNotFound("a", "b"), 404, "not_found_error", "model_not_found"},
      {Unauthenticated("who?"), 401, "authentication_error", "unauthenticated"},
      {PermissionDenied("ann", "admin"), 403, "permission_error", "scope_missing"},
      {ClientLimit(2, 1), 429, "rate_limit_error", "client_limit"},
      {ClientRate(1, 1500ms), 429, "rate_limit_error", "client_rate"},
      {TextsWaiting(), 429, "rate_limit_error", "texts_waiting"},
      {SlowReader(1), 429, "rate_limit_error", "slow_reader"},
      {QueueFull(), 503, "overloaded_error", "queue_full"},
      {QueueTimeout(), 503, "overloaded_error", "queue_timeout"},
      {StatisticsLimit("streams", 1), 503, "overloaded_error", "statistics_limit"},
      {MemoryPressure(), 503, "overloaded_error", "memory_pressure"},
      {Draining(), 503, "overloaded_error", "draining"},
      {Starting(), 503, "overloaded_error", "starting"},
      {Internal("a step failed"), 500, "server_error", "step_failed"},
      {Cancelled(), 500, "server_error", "cancelled"},
  };
  for (const auto& [error, status, type, code] : errors) {
    const HttpResponse response = ErrorResponse(error);
    EXPECT_EQ(response.status, status) << code;
    const json body = json::parse(response.body).at("error");
    EXPECT_EQ(body.at("type"), type);
    EXPECT_EQ(body.at("code"), code);
    EXPECT_EQ(body.at("message"), error.Message());
  }
}

TEST(ErrorResponseTest, SaysWhenToTryAgain) {
  using Headers = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(ErrorResponse(ClientRate(1, 1500ms)).headers,
            (Headers{{"Retry-After", "2"}, {"Retry-After-Ms", "1500"}}));
  EXPECT_EQ(ErrorResponse(Draining()).headers,
            (Headers{{"Retry-After", "1"}, {"Retry-After-Ms", "1000"}}));
  EXPECT_EQ(ErrorResponse(InvalidArgument("n", "is 3")).headers, Headers());
}

}  // namespace
}  // namespace triptych::server::error_response_test
