// Server in the test's process, with small random models, and client helpers.
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
#include "engine/serving/speculation.h"
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

// Timeout: longer than any wait here; a test that reaches it has failed.
constexpr std::chrono::minutes kForever{2};

struct TestModel {
  std::string name;
  ModelConfig config;
  std::optional<int64_t> kv_cache_bytes = {};
  std::optional<ChatTemplateText> chat_template = {};  // option of the model
  std::optional<std::string> own_chat_template = {};   // file of its directory
  std::optional<std::string> tokenizer_config = {};    // file of its directory
  std::optional<std::string> tokenizer_json = {};      // file; without it, bytes are tokens
  std::optional<std::string> generation_config = {};   // file
};

// "mha", "gqa" and "mla": 64 positions of context in float32.
std::vector<TestModel> OneOfEachKind();

// The model "mha" under the name "own", with a generation_config.json of its own.
TestModel OwnDefaultsModel(const std::string& generation_config);

// "special", whose tokenizer has bytes and two special tokens: "</s>", 256, which ends texts, and
// "<s>", 257, which is put before them.
TestModel SpecialTokensModel();

// A tiny model with a context long enough for requests of minutes.
TestModel EndlessModel();
constexpr int64_t kEndlessPositions = 1 << 20;

// Bytes per position of the model in a float32 cache.
int64_t BytesPerPosition(const ModelConfig& config);
// Bytes per position if every layer were MHA.
int64_t MhaBytesPerPosition(const ModelConfig& config);

// Writes a random model, the same in every call.
void WriteRandomCheckpoint(const std::filesystem::path& directory, const ModelConfig& config);

struct TestServerOptions {
  std::vector<TestModel> models = OneOfEachKind();
  int64_t kv_cache_bytes = 32 << 20;
  int64_t max_batch_tokens = 512;
  int64_t max_running = 64;
  int64_t max_waiting = 1024;
  serving::Speculation speculation = serving::Speculation::kOff;
  std::optional<int64_t> expand_from = {};
  std::optional<ChatTemplateText> chat_template = {};
  AdmissionLimits admission = {};
  TransportOptions transport = {};  // `listen` is ignored
  // Credentials of the test server's own stubs.
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
};

// The same options, with HTTP.
inline TestServerOptions WithHttp(TestServerOptions options = {}) {
  options.transport.http = "127.0.0.1:0";
  return options;
}

// EndlessModel only.
TestServerOptions OneEndlessModel(const TransportLimits& limits = {});
// A request that keeps a sequence alive until it is cancelled.
v1::GenerateRequest Endless();
// No sequence runs or waits, and none has a block.
bool IsIdle(const v1::KvCacheStats& stats);

// A channel to a server that shares its connection with no other channel of this process.
std::shared_ptr<grpc::Channel> OwnConnection(const std::string& address,
                                             const std::shared_ptr<grpc::ChannelCredentials>&
                                                 credentials = grpc::InsecureChannelCredentials(),
                                             grpc::ChannelArguments arguments = {});

// An OwnConnection with a fixed receive window of 64 KiB.
std::shared_ptr<grpc::Channel> SmallConnection(const std::string& address);

class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {});
  ~TestServer();

  bool Shutdown(std::chrono::milliseconds drain_timeout);

  const std::string& address() const { return address_; }
  // The HTTP address, if `transport` enables HTTP.
  std::string http_address() const;
  v1::InferenceService::Stub& inference() const { return *inference_; }
  v1::ModelService::Stub& models() const { return *models_; }
  v1::KvCacheService::Stub& kv_cache() const { return *kv_cache_; }
  grpc::health::v1::Health::Stub& health() const { return *health_; }

  // Statistics of one model, or of all together.
  v1::KvCacheStats Stats(const std::string& model) const;
  v1::GetKvCacheStatsResponse Stats() const;
  // Polls a model's statistics until `holds` is true for them. Returns false if it did not become
  // true.
  bool WaitForStats(const std::string& model,
                    const std::function<bool(const v1::KvCacheStats&)>& holds) const;
  // The health of a service; of the whole server if empty.
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

// A greedy request that ignores end tokens and generates `max_new_tokens` (0: up to the context's
// end).
v1::GenerateRequest Greedy(const std::string& model, const std::string& text,
                           int32_t max_new_tokens);

// Tokens of a reply that exceeds a SmallConnection's window but not the limit of pending output:
// its stream lives until the reply is read.
constexpr int32_t kLongReplyTokens = 2000;
v1::GenerateRequest LongReply();

// A Generate call in progress. Cancelled if it is destroyed before its end.
class GenerateCall {
 public:
  GenerateCall(v1::InferenceService::Stub& stub, const v1::GenerateRequest& request,
               std::chrono::milliseconds deadline = kForever);
  ~GenerateCall();

  // Waits for the next message. Returns false at the end.
  bool Read();
  // Reads to the end.
  grpc::Status Finish();
  void Cancel() { context_.TryCancel(); }

  // The messages read so far.
  const std::vector<v1::GenerateResponse>& messages() const { return messages_; }
  std::string text() const;
  std::vector<int32_t> tokens() const;
  std::vector<v1::TokenLogprobs> logprobs() const;
  // The last message's completion.
  const v1::Completion& completion() const { return messages_.back().completion(); }
  // Waits for the initial metadata; returns its request id, empty if there is none.
  std::string RequestId();
  // A trailer's value, empty if it is absent. REQUIRES: Finish has returned.
  std::string Trailer(const std::string& name) const;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  std::vector<v1::GenerateResponse> messages_;
  std::optional<grpc::Status> status_;
};

// Runs a call to its end, and expects OK.
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

// The detail of a type in a status, if there is one.
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

// Succeeds if the status is INVALID_ARGUMENT, and its message and its BadRequest name `field`.
testing::AssertionResult RefusesField(const grpc::Status& status, const std::string& field);

// Succeeds if the status has this code and an ErrorInfo with this reason.
testing::AssertionResult IsError(const grpc::Status& status, grpc::StatusCode code,
                                 const std::string& reason);

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_TEST_SERVER_H_
