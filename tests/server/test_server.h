// A server in the test's own process, over small models with random weights, and its callers.
#ifndef TRIPTYCH_TESTS_SERVER_TEST_SERVER_H_
#define TRIPTYCH_TESTS_SERVER_TEST_SERVER_H_

#include <gmock/gmock.h>
#include <google/protobuf/any.pb.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/core/access/admission.h"
#include "server/core/chat/chat_template.h"
#include "server/core/transport_options.h"
#include "tests/support/temp_dir.h"
#include "triptych/v1/inference.grpc.pb.h"
#include "triptych/v1/kv_cache.grpc.pb.h"
#include "triptych/v1/model.grpc.pb.h"

namespace triptych::server {

class Server;

// Longer than anything here takes; a test that reaches it has failed.
constexpr std::chrono::minutes kForever{2};

struct TestModel {
  std::string name;
  ModelConfig config;
  std::optional<int64_t> kv_cache_bytes = {};
  std::optional<ChatTemplate> chat_template = {};     // what its options say
  std::optional<std::string> own_chat_template = {};  // what its directory says
  std::optional<std::string> tokenizer_json = {};     // as well; bytes are tokens without it
  std::optional<std::string> generation_config = {};  // as well
};

// "mha", "gqa" and "mla": 64 positions of context in float32.
std::vector<TestModel> OneOfEachKind();

// The model "mha" under the name "own", with a generation_config.json of its own.
TestModel OwnDefaultsModel(const std::string& generation_config);

// "special", whose tokenizer has bytes and two special tokens: "</s>", 256, which ends texts, and
// "<s>", 257, which is put before them.
TestModel SpecialTokensModel();

// A tiny model whose context is so long that a request can go on for minutes.
TestModel EndlessModel();
constexpr int64_t kEndlessPositions = 1 << 20;

// What a position of the model takes in a float32 cache.
int64_t BytesPerPosition(const ModelConfig& config);
// What it would take if every layer were MHA.
int64_t MhaBytesPerPosition(const ModelConfig& config);

// Writes a model whose weights are the same each time.
void WriteRandomCheckpoint(const std::filesystem::path& directory, const ModelConfig& config);

struct TestServerOptions {
  std::vector<TestModel> models = OneOfEachKind();
  int64_t kv_cache_bytes = 32 << 20;
  int64_t max_batch_tokens = 512;
  int64_t max_running = 64;
  int64_t max_waiting = 1024;
  std::optional<int64_t> expand_from = {};
  std::optional<ChatTemplate> chat_template = {};
  AdmissionLimits admission = {};
  TransportOptions transport = {};  // `listen` is ignored
  // Of the server's own callers here.
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
};

// The same, with HTTP.
inline TestServerOptions WithHttp(TestServerOptions options = {}) {
  options.transport.http = "127.0.0.1:0";
  return options;
}

// EndlessModel alone.
TestServerOptions OneEndlessModel(const TransportLimits& limits = {});
// Keeps a sequence alive until it is cancelled.
v1::GenerateRequest Endless();
// No sequence runs or waits, and none holds a block.
bool IsIdle(const v1::KvCacheStats& stats);

// A channel to a server with a connection of its own, which none of this process shares.
std::shared_ptr<grpc::Channel> OwnConnection(const std::string& address,
                                             const std::shared_ptr<grpc::ChannelCredentials>&
                                                 credentials = grpc::InsecureChannelCredentials(),
                                             grpc::ChannelArguments arguments = {});

// One that takes 64 KiB ahead of its reader, and stays with that.
std::shared_ptr<grpc::Channel> SmallConnection(const std::string& address);

class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {});
  ~TestServer();

  bool Shutdown(std::chrono::milliseconds drain_timeout);

  const std::string& address() const { return address_; }
  // Where it speaks HTTP, if `transport` says that it does.
  std::string http_address() const;
  v1::InferenceService::Stub& inference() const { return *inference_; }
  v1::ModelService::Stub& models() const { return *models_; }
  v1::KvCacheService::Stub& kv_cache() const { return *kv_cache_; }
  grpc::health::v1::Health::Stub& health() const { return *health_; }

  // Of one model, or of all together.
  v1::KvCacheStats Stats(const std::string& model) const;
  v1::GetKvCacheStatsResponse Stats() const;
  // Asks for a model's statistics until `holds` of them is true. False if it has not become so.
  bool WaitForStats(const std::string& model,
                    const std::function<bool(const v1::KvCacheStats&)>& holds) const;
  // The health of a service, of the whole server if empty.
  grpc::health::v1::HealthCheckResponse::ServingStatus Health(const std::string& service) const;

 private:
  TempDir directory_;
  std::unique_ptr<Server> server_;
  std::string address_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::unique_ptr<v1::KvCacheService::Stub> kv_cache_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

// A request whose continuation does not end by itself before `max_new_tokens` (as many as fit if
// 0), and always takes the most likely token.
v1::GenerateRequest Greedy(const std::string& model, const std::string& text,
                           int32_t max_new_tokens);

// One whose reply, of so many tokens, is more than a SmallConnection takes and less than may wait
// for a client: it lives until the reply is read.
constexpr int32_t kLongReplyTokens = 2000;
v1::GenerateRequest LongReply();

// A Generate call in progress. Cancelled if it is destroyed before its end.
class GenerateCall {
 public:
  GenerateCall(v1::InferenceService::Stub& stub, const v1::GenerateRequest& request,
               std::chrono::milliseconds deadline = kForever);
  ~GenerateCall();

  // Waits for one more message. False at the end.
  bool Read();
  // Reads to the end.
  grpc::Status Finish();
  void Cancel() { context_.TryCancel(); }

  // What has been read so far.
  const std::vector<v1::GenerateResponse>& messages() const { return messages_; }
  std::string text() const;
  std::vector<int32_t> tokens() const;
  std::vector<v1::TokenLogprobs> logprobs() const;
  // Of the last message.
  const v1::Completion& completion() const { return messages_.back().completion(); }
  // What the initial metadata says, empty if it says nothing. Waits for it.
  std::string RequestId();
  // A trailer's value, empty if it is not there. After Finish.
  std::string Trailer(const std::string& name) const;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  std::vector<v1::GenerateResponse> messages_;
  std::optional<grpc::Status> status_;
};

// Runs a call to its end, which is to be OK.
std::unique_ptr<GenerateCall> Generate(v1::InferenceService::Stub& stub,
                                       const v1::GenerateRequest& request);

// Calls a unary method of a stub: CallUnary(stub, &Stub::Method, request, &response).
template <typename Stub, typename Request, typename Response>
grpc::Status CallUnary(Stub& stub,
                       grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                    Response*),
                       const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kForever);
  return (stub.*method)(&context, request, response);
}

// The detail of that type in a status, if there is one.
template <typename Detail>
std::optional<Detail> GetDetail(const grpc::Status& status) {
  google::rpc::Status rich;
  if (!rich.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& any : rich.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

// The status is INVALID_ARGUMENT, and its message and its BadRequest name `field`.
testing::AssertionResult RefusesField(const grpc::Status& status, const std::string& field);

// The status has that code and an ErrorInfo of that reason.
testing::AssertionResult IsError(const grpc::Status& status, grpc::StatusCode code,
                                 const std::string& reason);

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_TEST_SERVER_H_
