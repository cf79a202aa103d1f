// Tests of a connection's limits, each at its value and one above. server/README.md has the table
// of limits.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "server/core/access/auth_gate.h"
#include "server/core/server_core.h"
#include "server/grpc/grpc_server.h"
#include "tests/server/any_method.h"
#include "tests/server/test_server.h"

namespace triptych::server::limits_test {
namespace {

using namespace std::chrono_literals;
using grpc::StatusCode;
using testing::HasSubstr;
using testing::SizeIs;

std::unique_ptr<v1::InferenceService::Stub> Inference(
    const std::shared_ptr<grpc::Channel>& channel) {
  return v1::InferenceService::NewStub(channel);
}

// Reads `tokens` more tokens of a stream. Returns false if it ends before.
bool ReadMore(GenerateCall& stream, size_t tokens) {
  const size_t end = stream.tokens().size() + tokens;
  while (stream.tokens().size() < end) {
    if (!stream.Read()) return false;
  }
  return true;
}

TEST(LimitsTest, StreamsOfAConnection) {
  TestServerOptions options = OneEndlessModel({.max_streams = 3});
  options.max_running = 1;
  const TestServer server(options);
  GenerateCall running(server.inference(), Endless());
  ASSERT_TRUE(running.Read());
  const auto stub = Inference(OwnConnection(server.address()));
  std::vector<std::unique_ptr<GenerateCall>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(std::make_unique<GenerateCall>(*stub, Endless()));
  ASSERT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.waiting_sequences() == 3; }));
  const auto tokenize = [&](std::chrono::milliseconds deadline) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    v1::TokenizeResponse response;
    return stub->Tokenize(&context, {}, &response).error_code();
  };
  // The call is not sent before there is room.
  EXPECT_EQ(tokenize(500ms), StatusCode::DEADLINE_EXCEEDED);
  waiting[0]->Cancel();
  EXPECT_EQ(waiting[0]->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_EQ(tokenize(kForever), StatusCode::OK);
}

TEST(LimitsTest, BytesOfAMessage) {
  const TestServer server;  // 64 positions of context
  constexpr int64_t kBytes = (64 << 10) + 64 * 32;
  v1::TokenizeRequest request;
  request.set_model("mha");
  request.set_text(std::string(kBytes - 64, 'a'));
  request.mutable_text()->append(kBytes - request.ByteSizeLong(), 'a');
  ASSERT_EQ(request.ByteSizeLong(), kBytes);
  v1::TokenizeResponse response;
  const auto tokenize = [&] {
    return CallUnary(server.inference(), &v1::InferenceService::Stub::Tokenize, request, &response);
  };
  grpc::Status status = tokenize();
  EXPECT_TRUE(status.ok()) << status.error_message();
  request.mutable_text()->push_back('a');
  status = tokenize();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr(std::to_string(kBytes)));
}

TEST(LimitsTest, BytesOfMetadata) {
  const TestServer server(OneEndlessModel({.max_metadata_bytes = 8192}));
  const auto code = [&](size_t bytes) {
    return CallWithNothing(OwnConnection(server.address()), "/triptych.v1.ModelService/ListModels",
                           {{"x-filler", std::string(bytes, 'a')}})
        .error_code();
  };
  EXPECT_EQ(code(7000), StatusCode::OK);  // besides gRPC's own metadata
  EXPECT_EQ(code(8192), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(code(7000), StatusCode::OK);
}

TEST(LimitsTest, NoMessageIsDecompressed) {
  const TestServer server;
  v1::TokenizeRequest request;
  request.set_model("mha");
  request.set_text(std::string(1000, 'a'));
  for (const auto algorithm : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kForever);
    context.set_compression_algorithm(algorithm);
    v1::TokenizeResponse response;
    EXPECT_EQ(server.inference().Tokenize(&context, request, &response).error_code(),
              algorithm == GRPC_COMPRESS_NONE ? StatusCode::OK : StatusCode::UNIMPLEMENTED);
  }
}

// Waits until the channel leaves READY. REQUIRES: it is READY.
bool Disconnects(const std::shared_ptr<grpc::Channel>& channel) {
  return channel->WaitForStateChange(GRPC_CHANNEL_READY,
                                     std::chrono::system_clock::now() + kForever);
}

bool Connects(const std::shared_ptr<grpc::Channel>& channel) {
  return channel->WaitForConnected(std::chrono::system_clock::now() + kForever);
}

TEST(LimitsTest, AConnectionWithoutCallsIsClosed) {
  const TestServer server(OneEndlessModel({.max_idle = 1s}));
  const auto idle = OwnConnection(server.address());
  const auto busy = OwnConnection(server.address());
  GenerateCall stream(*Inference(busy), Endless());
  ASSERT_TRUE(stream.Read());
  ASSERT_TRUE(Connects(idle));
  EXPECT_TRUE(Disconnects(idle));
  EXPECT_TRUE(ReadMore(stream, 100));
  EXPECT_EQ(busy->GetState(false), GRPC_CHANNEL_READY);
}

TEST(LimitsTest, AnOldConnectionTakesNoNewCallsAndKeepsItsOwn) {
  const TestServer server(OneEndlessModel({.max_age = 1s}));
  const auto channel = OwnConnection(server.address());
  GenerateCall stream(*Inference(channel), Endless());
  ASSERT_TRUE(stream.Read());
  ASSERT_TRUE(Connects(channel));
  EXPECT_TRUE(Disconnects(channel));
  EXPECT_TRUE(ReadMore(stream, 100));
  EXPECT_TRUE(CallWithNothing(channel, "/triptych.v1.ModelService/ListModels").ok());
}

// An HTTP/2 connection that sends frames that gRPC's clients do not send.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in server{};
    server.sin_family = AF_INET;
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.sin_port = htons(std::stoi(address.substr(address.rfind(':') + 1)));
    const timeval forever{.tv_sec = std::chrono::seconds(kForever).count(), .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&server), sizeof(server)), 0);
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    SendFrame(kSettings, "");
  }
  ~RawConnection() { close(socket_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  void SendPing() { SendFrame(kPing, "12345678"); }
  // Returns false if the connection ends before; its GOAWAY is stored then.
  bool ReadPingAnswer() {
    while (true) {
      std::string header = Receive(9);
      if (header.size() < 9) return false;
      const auto byte = [&](int i) { return static_cast<unsigned char>(header[i]); };
      const std::string payload = Receive(byte(0) << 16 | byte(1) << 8 | byte(2));
      if (byte(3) == kPing && byte(4) == kAck) return true;
      if (byte(3) == kGoAway) go_away_ = payload.substr(8);
    }
  }
  const std::string& go_away() const { return go_away_; }

 private:
  static constexpr char kSettings = 4, kPing = 6, kGoAway = 7, kAck = 1;

  void Send(const std::string& bytes) { send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void SendFrame(char kind, const std::string& payload) {
    std::string frame(9, '\0');
    frame[2] = static_cast<char>(payload.size());
    frame[3] = kind;
    Send(frame + payload);
  }
  std::string Receive(size_t size) {
    std::string bytes(size, '\0');
    const ssize_t received = size == 0 ? 0 : recv(socket_, bytes.data(), size, MSG_WAITALL);
    bytes.resize(std::max<ssize_t>(received, 0));
    return bytes;
  }

  const int socket_;
  std::string go_away_;
};

TEST(LimitsTest, PingsThatComeTooOften) {
  const TestServer server(OneEndlessModel({.min_ping_interval = 1h}));
  RawConnection connection(server.address());
  // One ping is allowed, and two more are tolerated; gRPC resets its count whenever it sends data.
  int answered = 0;
  do {
    connection.SendPing();
  } while (connection.ReadPingAnswer() && ++answered < 20);
  EXPECT_GE(answered, 3);
  EXPECT_EQ(connection.go_away(), "too_many_pings");
}

TEST(LimitsTest, PingsInGoodTime) {
  const TestServer server(OneEndlessModel({.min_ping_interval = 1ms}));
  RawConnection connection(server.address());
  for (int i = 0; i < 20; ++i) {
    connection.SendPing();
    EXPECT_TRUE(connection.ReadPingAnswer()) << i;
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_EQ(connection.go_away(), "");
}

TEST(LimitsTest, AClientThatTakesNothingIsGivenUp) {
  const TestServer server(OneEndlessModel({.stall_timeout = 1s}));
  const auto stub = Inference(SmallConnection(server.address()));
  GenerateCall stalled(*stub, LongReply());
  GenerateCall reader(server.inference(), Endless());
  ASSERT_TRUE(reader.Read());
  const grpc::Status status = [&] {
    // The reply is complete, or the server has cancelled it before.
    EXPECT_TRUE(server.WaitForStats(
        "endless", [](const v1::KvCacheStats& stats) { return stats.running_sequences() == 1; }));
    std::this_thread::sleep_for(3s);
    return stalled.Finish();
  }();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_LT(stalled.tokens().size(), kLongReplyTokens);
  EXPECT_TRUE(ReadMore(reader, 100));
}

// The status of a unary call whose client does not read for three seconds.
template <typename Response, typename Request>
grpc::Status CallAndStall(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                          const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kForever);
  const grpc::internal::RpcMethod as_stream(method, grpc::internal::RpcMethod::SERVER_STREAMING);
  const std::unique_ptr<grpc::ClientReader<Response>> reader(
      grpc::internal::ClientReaderFactory<Response>::Create(channel.get(), as_stream, &context,
                                                            request));
  std::this_thread::sleep_for(3s);
  Response response;
  while (reader->Read(&response)) {
  }
  return reader->Finish();
}

TEST(LimitsTest, AClientThatTakesNoTokensAndNoTextIsGivenUp) {
  // Far below the client's three seconds, of which a loaded machine needs a part for the text.
  const TestServer server(OneEndlessModel({.stall_timeout = 250ms}));
  const auto channel = SmallConnection(server.address());
  constexpr int kBytes = 1 << 20;
  v1::TokenizeRequest tokenize;
  tokenize.set_text(std::string(kBytes, 'a'));
  grpc::Status status = CallAndStall<v1::TokenizeResponse>(
      channel, "/triptych.v1.InferenceService/Tokenize", tokenize);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  v1::DetokenizeRequest detokenize;
  detokenize.mutable_token_ids()->Resize(kBytes, 'a');
  status = CallAndStall<v1::DetokenizeResponse>(channel, "/triptych.v1.InferenceService/Detokenize",
                                                detokenize);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
}

TEST(LimitsTest, BeforeModelsAreLoadedCallsAreRefused) {
  TransportOptions options;
  options.listen = "127.0.0.1:0";
  const AuthGate gate(options);
  const GrpcServer server(options, gate);
  const auto channel = OwnConnection(server.address());
  GenerateCall call(*Inference(channel), Endless());
  const grpc::Status status = call.Finish();
  EXPECT_TRUE(IsError(status, StatusCode::UNAVAILABLE, "STARTING"));
  EXPECT_TRUE(GetDetail<google::rpc::RetryInfo>(status).has_value());
  EXPECT_EQ(call.Trailer("grpc-retry-pushback-ms"), "1000");
  const auto health = grpc::health::v1::Health::NewStub(channel);
  for (const char* service : {"", "triptych.v1.InferenceService"}) {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(
        CallUnary(*health, &grpc::health::v1::Health::Stub::Check, request, &response).ok());
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  }
  // Another server cannot take its port.
  options.listen = server.address();
  try {
    const GrpcServer second(options, gate);
    ADD_FAILURE() << "two servers listen on " << server.address();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("--listen " + server.address()));
  }
}

TEST(LimitsTest, WithoutMemoryRequestsThatComputeAreRefused) {
  std::atomic<bool> is_short = false;
  TransportOptions options;
  options.listen = "127.0.0.1:0";
  options.is_memory_short = [&] { return is_short.load(); };
  ServerCore core({});  // without models: every request fails in the end
  AuthGate gate(options);
  gate.Open(core);
  const GrpcServer server(options, gate);
  const auto inference = Inference(OwnConnection(server.address()));
  v1::ScoreResponse scores;
  const auto generate = [&] { return GenerateCall(*inference, Endless()).Finish(); };
  const auto score = [&] {
    return CallUnary(*inference, &v1::InferenceService::Stub::Score, v1::ScoreRequest(), &scores);
  };
  for (const bool now : {false, true, false}) {
    is_short = now;
    for (const grpc::Status& status : {generate(), score()}) {
      if (now) {
        EXPECT_TRUE(IsError(status, StatusCode::RESOURCE_EXHAUSTED, "MEMORY_PRESSURE"));
        EXPECT_TRUE(GetDetail<google::rpc::RetryInfo>(status).has_value());
      } else {
        EXPECT_NE(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
      }
    }
    v1::TokenizeResponse tokens;
    EXPECT_NE(
        CallUnary(*inference, &v1::InferenceService::Stub::Tokenize, v1::TokenizeRequest(), &tokens)
            .error_code(),
        StatusCode::RESOURCE_EXHAUSTED);
  }
}

TEST(LimitsTest, ADrainDeliversWhatIsStillRead) {
  TestServer server(OneEndlessModel());
  const auto channel = SmallConnection(server.address());
  GenerateCall slow(*Inference(channel), LongReply());
  ASSERT_TRUE(slow.Read());
  ASSERT_TRUE(server.WaitForStats("endless", IsIdle));
  std::future<bool> drained =
      std::async(std::launch::async, [&] { return server.Shutdown(kForever); });
  ASSERT_TRUE(Disconnects(channel));  // by a GOAWAY
  EXPECT_EQ(drained.wait_for(2s), std::future_status::timeout);
  const grpc::Status status = slow.Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(slow.tokens(), SizeIs(kLongReplyTokens));
  EXPECT_TRUE(drained.get());
}

TEST(LimitsTest, WatchersDoNotHoldUpADrain) {
  TestServer server(OneEndlessModel());
  const auto channel = OwnConnection(server.address());
  grpc::ClientContext stats_context, health_context;
  v1::WatchKvCacheStatsRequest request;
  request.mutable_interval()->set_seconds(3600);
  const auto stats =
      v1::KvCacheService::NewStub(channel)->WatchKvCacheStats(&stats_context, request);
  v1::WatchKvCacheStatsResponse figures;
  ASSERT_TRUE(stats->Read(&figures));
  const auto health = grpc::health::v1::Health::NewStub(channel)->Watch(&health_context, {});
  grpc::health::v1::HealthCheckResponse state;
  ASSERT_TRUE(health->Read(&state));
  // A thousandth of the time that they need.
  std::future<bool> drained = std::async(std::launch::async, [&] { return server.Shutdown(1h); });
  ASSERT_EQ(drained.wait_for(kForever), std::future_status::ready);
  EXPECT_TRUE(drained.get());
  EXPECT_FALSE(stats->Read(&figures));
  EXPECT_NE(stats->Finish().error_code(), StatusCode::OK);
  while (health->Read(&state)) {
    EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  }
  health->Finish();
}

}  // namespace
}  // namespace triptych::server::limits_test
