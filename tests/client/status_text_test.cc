#include "client/status_text.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace triptych::client::status_text_test {
namespace {

constexpr char kAddress[] = "192.0.2.1:50051";

template <typename... Details>
grpc::Status MakeStatus(grpc::StatusCode code, const std::string& message,
                        const Details&... details) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  (status.add_details()->PackFrom(details), ...);
  return grpc::Status(code, message, status.SerializeAsString());
}

google::rpc::BadRequest Violation(const std::string& field, const std::string& description) {
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field(field);
  violation->set_description(description);
  return bad_request;
}

TEST(StatusTextTest, NamesTheViolatedField) {
  EXPECT_EQ(DescribeStatus(MakeStatus(grpc::StatusCode::INVALID_ARGUMENT, "bad request",
                                      Violation("sampling.top_k", "must be at least 0")),
                           kAddress),
            "invalid argument: bad request; sampling.top_k: must be at least 0");
}

TEST(StatusTextTest, DoesNotSayTheMessageTwice) {
  EXPECT_EQ(DescribeStatus(
                MakeStatus(grpc::StatusCode::INVALID_ARGUMENT, "sampling.top_k: must be at least 0",
                           Violation("sampling.top_k", "must be at least 0")),
                kAddress),
            "invalid argument: sampling.top_k: must be at least 0");
}

TEST(StatusTextTest, SaysEveryDetail) {
  google::rpc::BadRequest two = Violation("a", "is wrong");
  two.MergeFrom(Violation("b", "is too"));
  EXPECT_EQ(DescribeStatus(MakeStatus(grpc::StatusCode::INVALID_ARGUMENT, "", two), kAddress),
            "invalid argument: a: is wrong; b: is too");

  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  (*info.mutable_metadata())["queued"] = "64";
  (*info.mutable_metadata())["limit"] = "64";
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(500'000'000);
  EXPECT_EQ(DescribeStatus(
                MakeStatus(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full", info, retry),
                kAddress),
            "resource exhausted: the queue is full (QUEUE_FULL, limit=64, queued=64); "
            "retry in 0.5 s");
}

TEST(StatusTextTest, IgnoresDetailsItCannotRead) {
  EXPECT_EQ(DescribeStatus(MakeStatus(grpc::StatusCode::INTERNAL, "oops", google::rpc::Status()),
                           kAddress),
            "internal error: oops");
  EXPECT_EQ(
      DescribeStatus(grpc::Status(grpc::StatusCode::NOT_FOUND, "no model", "\xff\xff"), kAddress),
      "not found: no model");
}

TEST(StatusTextTest, NamesTheServerThatIsNotThere) {
  EXPECT_EQ(DescribeStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                        "failed to connect to all addresses; last error: UNKNOWN: "
                                        "ipv4:192.0.2.1:50051: Failed to connect to remote host: "
                                        "Connection refused"),
                           kAddress),
            "unavailable: Connection refused (is triptych-server running at 192.0.2.1:50051?)");
}

TEST(StatusTextTest, DoesNotDoubtTheServerThatAnswers) {
  EXPECT_EQ(
      DescribeStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down"),
                     kAddress),
      "unavailable: the server is shutting down");
}

TEST(StatusTextTest, IsOneLine) {
  EXPECT_EQ(DescribeStatus(grpc::Status(grpc::StatusCode::INTERNAL, "a\nb\x1b[2J"), kAddress),
            "internal error: a b [2J");
  EXPECT_EQ(DescribeStatus(grpc::Status(grpc::StatusCode::UNKNOWN, ""), kAddress), "unknown error");
}

TEST(StatusTextTest, WordsAPassedDeadline) {
  EXPECT_EQ(DescribeStatus(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"),
                           kAddress),
            "deadline exceeded: no complete answer in time");
}

}  // namespace
}  // namespace triptych::client::status_text_test
