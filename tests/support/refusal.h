// Message of the exception that a call throws.
#ifndef TRIPTYCH_TESTS_SUPPORT_REFUSAL_H_
#define TRIPTYCH_TESTS_SUPPORT_REFUSAL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace triptych {

inline constexpr char kAccepted[] = "accepted";

// The message of the exception of type `Exception` that `call` throws, or kAccepted.
template <typename Exception, typename Call>
std::string RefusalOf(const Call& call) {
  try {
    call();
  } catch (const Exception& e) {
    return e.what();
  }
  return kAccepted;
}

// RefusalOf without `prefix`, which the message must begin with.
template <typename Exception, typename Call>
std::string RefusalAfter(const std::string& prefix, const Call& call) {
  const std::string message = RefusalOf<Exception>(call);
  if (message == kAccepted) return message;
  EXPECT_THAT(message, testing::StartsWith(prefix));
  return message.substr(std::min(prefix.size(), message.size()));
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_REFUSAL_H_
