#include "client/channel.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_dir.h"

namespace triptych::client::channel_test {
namespace {

using Clock = std::chrono::steady_clock;
using Generation = Stream<v1::GenerateResponse>;
using HealthCheckResponse = grpc::health::v1::HealthCheckResponse;
using HealthStream = Stream<HealthCheckResponse>;

constexpr char kPushback[] = "grpc-retry-pushback-ms";

Generation Fail(grpc::StatusCode code, const std::string& pushback) {
  return {{}, Generation::Then::kFinish, grpc::Status(code, "not now"), {{kPushback, pushback}}};
}

grpc::Status Generate(Client& client) {
  return client.Generate({}, [](const v1::GenerateResponse&) {});
}

class RetryTest : public testing::Test {
 protected:
  // Answers the first `failures` attempts with `stream`, later ones with success.
  void Answer(const Generation& stream, int failures = 1000) {
    server_.generate = [this, stream, failures](const auto&) {
      attempts_.push_back(Clock::now());
      return static_cast<int>(attempts_.size()) <= failures ? stream : Generation();
    };
  }

  std::vector<Clock::time_point> attempts_;  // Attempts do not overlap.
  FakeServer server_;
  Client client_{Connect(ChannelOptions{.address = server_.address()})};
};

TEST_F(RetryTest, CallsAgainUntilItIsTaken) {
  for (const auto code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::RESOURCE_EXHAUSTED,
                          grpc::StatusCode::CANCELLED}) {
    attempts_.clear();
    Answer(Fail(code, "0"), 2);
    EXPECT_TRUE(Generate(client_).ok());
    EXPECT_EQ(attempts_.size(), 3u);
  }
}

TEST_F(RetryTest, GivesUpAfterTheFifthAttempt) {
  Answer(Fail(grpc::StatusCode::UNAVAILABLE, "0"));
  const grpc::Status status = Generate(client_);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "not now");
  EXPECT_EQ(attempts_.size(), 5u);
}

TEST_F(RetryTest, StopsWhileMostCallsFail) {
  Answer(Fail(grpc::StatusCode::RESOURCE_EXHAUSTED, "0"));
  for (int call = 0; call < 100; ++call) EXPECT_FALSE(Generate(client_).ok());
  EXPECT_GT(attempts_.size(), 400u) << "a few failures are not most";
  attempts_.clear();
  EXPECT_FALSE(Generate(client_).ok());
  EXPECT_EQ(attempts_.size(), 1u);
}

TEST_F(RetryTest, WaitsAsLongAsTheServerSays) {
  Answer(Fail(grpc::StatusCode::RESOURCE_EXHAUSTED, "400"), 1);
  EXPECT_TRUE(Generate(client_).ok());
  ASSERT_EQ(attempts_.size(), 2u);
  // Longer than the client's first backoff, which is at most 120 ms.
  EXPECT_GE(attempts_[1] - attempts_[0], std::chrono::milliseconds(390));
}

TEST_F(RetryTest, DoesNotCallAgainWhenTheServerForbids) {
  Answer(Fail(grpc::StatusCode::UNAVAILABLE, "-1"));
  EXPECT_FALSE(Generate(client_).ok());
  EXPECT_EQ(attempts_.size(), 1u);
}

TEST_F(RetryTest, DoesNotRepeatWhatMayHaveHadAnEffect) {
  Answer(Fail(grpc::StatusCode::INTERNAL, "0"));
  EXPECT_FALSE(Generate(client_).ok());
  EXPECT_EQ(attempts_.size(), 1u);

  attempts_.clear();
  Generation broken = Fail(grpc::StatusCode::UNAVAILABLE, "0");
  broken.messages.emplace_back().set_text("a");
  Answer(broken);
  EXPECT_FALSE(Generate(client_).ok());
  EXPECT_EQ(attempts_.size(), 1u);
}

TEST_F(RetryTest, RepeatsARequestOfTheLargestSize) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "gRPC is not instrumented: each word of its megabytes looks like a race, and takes "
         "minutes to be suppressed";
#endif
  Answer(Fail(grpc::StatusCode::UNAVAILABLE, "0"), 1);
  v1::GenerateRequest request;
  request.set_text(std::string((4 << 20) - 16, 'a'));
  EXPECT_TRUE(client_.Generate(request, [](const v1::GenerateResponse&) {}).ok());
  EXPECT_EQ(attempts_.size(), 2u);
}

TEST_F(RetryTest, IsLeftOutWhereItIsNotWanted) {
  Answer(Fail(grpc::StatusCode::UNAVAILABLE, "0"));
  Client once(Connect(server_.address()));
  EXPECT_FALSE(Generate(once).ok());
  EXPECT_EQ(attempts_.size(), 1u);
}

// A port of 127.0.0.1 that is reserved, with no listener.
class DeadPort {
 public:
  DeadPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(name);
    bind(fd_, reinterpret_cast<sockaddr*>(&name), size);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  }
  ~DeadPort() { close(fd_); }
  const std::string& address() const { return address_; }

 private:
  int fd_;
  std::string address_;
};

// Two servers that count their calls.
class RoundRobinTest : public testing::Test {
 protected:
  RoundRobinTest() {
    for (int i = 0; i < 2; ++i) {
      servers_[i].list_models = [this, i](const auto&, auto*) {
        ++calls_[i];
        return grpc::Status::OK;
      };
    }
  }
  std::string Both() const { return servers_[0].address() + "," + servers_[1].address(); }
  static bool ListModels(Client& client) {
    v1::ListModelsResponse response;
    return client.ListModels(&response).ok();
  }

  FakeServer servers_[2];
  std::atomic<int> calls_[2] = {0, 0};
};

TEST_F(RoundRobinTest, TakesTurnsAroundADeadAddress) {
  const DeadPort dead;
  Client client(Connect(ChannelOptions{.address = dead.address() + "," + Both(), .retry = false}));
  // Until both are connected, one server gets every call.
  while (calls_[0] == 0 || calls_[1] == 0) ASSERT_TRUE(ListModels(client));
  const int before[] = {calls_[0], calls_[1]};
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(ListModels(client));
  EXPECT_EQ(calls_[0] - before[0], 10);
  EXPECT_EQ(calls_[1] - before[1], 10);
}

TEST_F(RoundRobinTest, GoesOnWhenAServerDies) {
  Client client(Connect(ChannelOptions{.address = Both()}));
  while (calls_[0] == 0 || calls_[1] == 0) ASSERT_TRUE(ListModels(client));
  servers_[0].ShutDown();
  const int before = calls_[0];
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(ListModels(client));
  EXPECT_EQ(calls_[0], before);
}

// More retries than a single server would get, see RetryTest.StopsWhileMostCallsFail.
TEST_F(RoundRobinTest, AsksAnotherServerForWhatOneRefuses) {
  servers_[0].list_models = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now");
  };
  Client client(Connect(ChannelOptions{.address = Both()}));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(ListModels(client));
  EXPECT_EQ(calls_[1], 20);
}

TEST_F(RoundRobinTest, LeavesOutAServerThatDoesNotServe) {
  std::mutex mutex;
  std::set<std::string> services;  // Guarded by mutex.
  for (int i = 0; i < 2; ++i) {
    servers_[i].watch_health = [&, i](const grpc::health::v1::HealthCheckRequest& request) {
      const std::lock_guard lock(mutex);
      services.insert(request.service());
      HealthCheckResponse response;
      response.set_status(i == 0 ? HealthCheckResponse::NOT_SERVING : HealthCheckResponse::SERVING);
      return HealthStream{{response}, HealthStream::Then::kHold};
    };
  }
  Client client(Connect(ChannelOptions{.address = Both(), .retry = false}));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(ListModels(client));
  EXPECT_EQ(calls_[0], 0);
  EXPECT_EQ(calls_[1], 20);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(services, std::set<std::string>{"triptych.v1.InferenceService"});
}

// Also for a name with several addresses. A single HOST:PORT is called regardless of its health.
TEST(ChannelTest, TheServersOfANameAreLeftOutWhileTheyDoNotServe) {
  FakeServer server;
  server.list_models = [](const auto&, auto*) { return grpc::Status::OK; };
  server.watch_health = [](const auto&) {
    HealthCheckResponse response;
    response.set_status(HealthCheckResponse::NOT_SERVING);
    return HealthStream{{response}, HealthStream::Then::kHold};
  };
  const std::string localhost = "localhost" + server.address().substr(9);
  for (const auto& [address, reached] :
       {std::pair(localhost, true), {"dns:///" + localhost, false}}) {
    Client client(Connect(ChannelOptions{.address = address, .retry = false}));
    v1::ListModelsResponse response;
    EXPECT_EQ(client.ListModels(&response).ok(), reached) << address;
  }
}

TEST(ChannelTest, ReachesIpv6UnixSocketsAndNames) {
  const TempDir directory;
  for (const std::string& listen : {std::string("127.0.0.1:0"), std::string("[::1]:0"),
                                    "unix:" + (directory.path() / "a socket").string()}) {
    if (listen == "[::1]:0") {  // if there is IPv6
      const int fd = socket(AF_INET6, SOCK_STREAM, 0);
      sockaddr_in6 name = {};
      name.sin6_family = AF_INET6;
      name.sin6_addr = in6addr_loopback;
      const bool works = bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
      close(fd);
      if (!works) continue;
    }
    FakeServer server({.listen = listen});
    server.list_models = [](const auto&, auto*) { return grpc::Status::OK; };
    std::vector<std::string> addresses = {server.address()};
    if (listen.ends_with(":0")) addresses.push_back(server.address() + "," + server.address());
    if (listen.starts_with("127")) {
      addresses.push_back("localhost" + server.address().substr(9));
      addresses.push_back("dns:///localhost" + server.address().substr(9));
    }
    for (const std::string& address : addresses) {
      Client client(Connect(ChannelOptions{.address = address}));
      v1::ListModelsResponse response;
      EXPECT_TRUE(client.ListModels(&response).ok()) << address;
    }
  }
}

TEST(ChannelTest, OwnConnectionsAreDistinct) {
  FakeServer server;
  std::mutex mutex;
  std::set<std::string> peers;  // Guarded by mutex.
  server.on_call = [&](const grpc::CallbackServerContext& context) {
    const std::lock_guard lock(mutex);
    peers.insert(context.peer());
  };
  for (const auto& [own, expected] : {std::pair(false, 1u), {true, 3u}}) {
    peers.clear();
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < 3; ++i) {
      channels.push_back(
          Connect(ChannelOptions{.address = server.address(), .own_connection = own}));
      v1::ListModelsResponse response;
      Client(channels.back()).ListModels(&response);
    }
    EXPECT_EQ(peers.size(), expected);
  }
}

TEST(ChannelTest, SaysWhichAddressesItTakes) {
  for (const std::string good :
       {"localhost:1", "a.b:65535", "192.0.2.1:50051", "[::1]:50051", "192.0.2.1:1,192.0.2.2:1",
        "[2001:db8::1]:1,[2001:db8::2]:2", "unix:/run/triptych.sock", "unix:a,b", "dns:///a.b:1"}) {
    EXPECT_EQ(FindBadAddress(good), std::nullopt) << good;
  }
  for (const std::string bad :
       {"", "localhost", "::1:50051", "localhost:0", "localhost:65536", ":1", "unix:", "a:1,b:2",
        "192.0.2.1:1,", ",192.0.2.1:1", "192.0.2.1:1,192.0.2.2", "192.0.2.1:1,[::1]:1", "[]:1,[]:1",
        "192.0.2.1:1, 192.0.2.2:1", "dns:///", "dns:///a", "dns:///a:1,b:1", "dns:a:1"}) {
    EXPECT_NE(FindBadAddress(bad), std::nullopt) << bad;
  }
  EXPECT_NE(FindBadAddress("unix:" + std::string(108, 'a')), std::nullopt);
}

}  // namespace
}  // namespace triptych::client::channel_test
