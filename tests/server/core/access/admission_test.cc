#include "server/core/access/admission.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triptych::server::admission_test {
namespace {

using namespace std::chrono_literals;

class AdmissionTest : public testing::Test {
 protected:
  Admission Make(const AdmissionLimits& limits) {
    return Admission(limits, [this] { return now_; });
  }
  // Takes a permit and keeps it; returns the error if there is none.
  std::optional<Error> Enter(Admission& admission, const std::string& client,
                             int64_t requests = 1) {
    Result<Admission::Permit> place = admission.Enter(client, requests);
    if (!place.ok()) return place.error();
    places_.push_back(std::move(place).value());
    return std::nullopt;
  }

  Admission::Clock::time_point now_ = Admission::Clock::time_point(1h);
  std::vector<Admission::Permit> places_;
};

TEST_F(AdmissionTest, AClientHasAsManyLiveRequestsAsAreAllowedAndNoMore) {
  Admission admission = Make({.max_client_requests = 3, .client_rate = 0});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Enter(admission, "a"), std::nullopt);
  const std::optional<Error> error = Enter(admission, "a");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error->reason, "CLIENT_LIMIT");
  EXPECT_GT(error->retry_delay, 0ms);
  EXPECT_EQ(Enter(admission, "b"), std::nullopt) << "others are not held up";
  EXPECT_EQ(admission.live(), 4);
  places_.erase(places_.begin());
  EXPECT_EQ(Enter(admission, "a"), std::nullopt);
}

TEST_F(AdmissionTest, ACallCountsForItsRequestsAndOneIsAlwaysAdmitted) {
  Admission admission = Make({.max_client_requests = 3, .client_rate = 0});
  EXPECT_EQ(Enter(admission, "a", 64), std::nullopt);
  EXPECT_TRUE(Enter(admission, "a").has_value());
  places_.clear();
  EXPECT_EQ(Enter(admission, "a"), std::nullopt);
  EXPECT_TRUE(Enter(admission, "a", 3).has_value());
  EXPECT_EQ(Enter(admission, "a", 2), std::nullopt);
}

TEST_F(AdmissionTest, ZeroIsNoLimit) {
  Admission admission = Make({.max_client_requests = 0, .client_rate = 0});
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(Enter(admission, "a"), std::nullopt);
}

TEST_F(AdmissionTest, TheRateAdmitsABurstAndThenOneCallAtATime) {
  Admission admission = Make({.max_client_requests = 0, .client_rate = 4});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Enter(admission, "a"), std::nullopt);
  std::optional<Error> error = Enter(admission, "a");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->reason, "CLIENT_RATE");
  EXPECT_EQ(error->retry_delay, 250ms);
  EXPECT_EQ(Enter(admission, "b"), std::nullopt);

  now_ += 100ms;
  EXPECT_EQ(Enter(admission, "a")->retry_delay, 150ms) << "when the next one may come";
  now_ += 149ms;
  EXPECT_EQ(Enter(admission, "a")->retry_delay, 1ms);
  now_ += 1ms;
  EXPECT_EQ(Enter(admission, "a"), std::nullopt) << "it keeps what it was told";
  EXPECT_TRUE(Enter(admission, "a").has_value());

  now_ += 1h;  // no client saves up more than the burst
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Enter(admission, "a"), std::nullopt);
  EXPECT_TRUE(Enter(admission, "a").has_value());
}

TEST_F(AdmissionTest, LessThanOneCallASecond) {
  Admission admission = Make({.max_client_requests = 0, .client_rate = 0.25});
  EXPECT_EQ(Enter(admission, "a"), std::nullopt);
  EXPECT_EQ(Enter(admission, "a")->retry_delay, 4000ms);
  now_ += 4s;
  EXPECT_EQ(Enter(admission, "a"), std::nullopt);
}

TEST_F(AdmissionTest, AMillionClientsLeaveNothing) {
  Admission admission = Make({.max_client_requests = 1, .client_rate = 2});
  for (int i = 0; i < 1'000'000; ++i) {
    ASSERT_EQ(Enter(admission, "client " + std::to_string(i)), std::nullopt);
    places_.clear();
    now_ += 1ms;
    ASSERT_LT(admission.clients(), 3000u);
  }
  Admission no_rate = Make({.max_client_requests = 1, .client_rate = 0});
  EXPECT_EQ(Enter(no_rate, "a"), std::nullopt);
  EXPECT_EQ(no_rate.clients(), 1u);
  places_.clear();
  EXPECT_EQ(no_rate.clients(), 0u);
}

TEST_F(AdmissionTest, APlaceMayOutliveIt) {
  std::optional<Admission> admission = Make({});
  EXPECT_EQ(Enter(*admission, "a"), std::nullopt);
  EXPECT_FALSE(admission->AwaitNone(Admission::Clock::now()));
  admission.reset();
  places_.clear();
}

}  // namespace
}  // namespace triptych::server::admission_test
