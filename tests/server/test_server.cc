#include "tests/server/test_server.h"

#include <fstream>
#include <set>
#include <thread>

#include "engine/decoder/write_weights.h"
#include "server/server.h"
#include "tests/support/random_model.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::server {
namespace {

ServerOptions MakeOptions(const TestServerOptions& test, const std::filesystem::path& directory) {
  ServerOptions options;
  options.admission = test.admission;
  options.transport = test.transport;
  options.transport.listen = "127.0.0.1:0";
  for (const TestModel& model : test.models) {
    WriteRandomCheckpoint(directory / model.name, model.config);
    if (model.own_chat_template) {
      std::ofstream(directory / model.name / "chat_template.jinja") << *model.own_chat_template;
    }
    if (model.tokenizer_config) {
      std::ofstream(directory / model.name / "tokenizer_config.json") << *model.tokenizer_config;
    }
    if (model.tokenizer_json) {
      std::ofstream(directory / model.name / "tokenizer.json") << *model.tokenizer_json;
    }
    if (model.generation_config) {
      std::ofstream(directory / model.name / "generation_config.json") << *model.generation_config;
    }
    options.models.push_back({.name = model.name,
                              .checkpoint = directory / model.name,
                              .kv_cache_bytes = model.kv_cache_bytes,
                              .chat_template = model.chat_template});
  }
  options.kv_cache_bytes = test.kv_cache_bytes;
  options.engine.max_batch_tokens = test.max_batch_tokens;
  options.engine.max_running = test.max_running;
  options.engine.max_waiting = test.max_waiting;
  options.engine.speculation = test.speculation;
  options.backend.expand_from = test.expand_from;
  options.chat_template = test.chat_template;
  return options;
}

}  // namespace

std::vector<TestModel> OneOfEachKind() {
  ModelConfig mla = SmallModel(AttentionKind::kMla);
  mla.kv_lora_rank = {5, 9};  // a rank for each layer
  return {{"mha", SmallModel(AttentionKind::kMha)},
          {"gqa", SmallModel(AttentionKind::kGqa)},
          {"mla", mla}};
}

TestModel OwnDefaultsModel(const std::string& generation_config) {
  return {.name = "own",
          .config = SmallModel(AttentionKind::kMha),
          .generation_config = generation_config};
}

TestModel SpecialTokensModel() {
  return {.name = "special",
          .config = SmallModel(AttentionKind::kMha),
          .tokenizer_json = BeginAndEndJson().dump()};
}

TestModel EndlessModel() {
  ModelConfig config = SmallModel(AttentionKind::kMla);
  config.num_hidden_layers = 1;
  config.kv_lora_rank = {2};
  config.position_embedding = PositionEmbedding::kNone;  // no table of a million positions
  config.max_position_embeddings = kEndlessPositions;
  return {.name = "endless",
          .config = config,
          .kv_cache_bytes = kEndlessPositions * BytesPerPosition(config)};
}

TestServerOptions OneEndlessModel(const TransportLimits& limits) {
  TestServerOptions options{.models = {EndlessModel()}};
  options.transport.limits = limits;
  return options;
}

v1::GenerateRequest Endless() { return Greedy("endless", "a", kEndlessPositions - 10); }

bool IsIdle(const v1::KvCacheStats& stats) {
  return stats.running_sequences() + stats.waiting_sequences() == 0 && stats.used_bytes() == 0 &&
         stats.allocated_bytes() == 0 &&
         stats.free_blocks() + stats.evictable_blocks() == stats.total_blocks();
}

int64_t BytesPerPosition(const ModelConfig& config) {
  int64_t elements = 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    elements += config.attention == AttentionKind::kMla
                    ? config.kv_lora_rank[layer]
                    : 2 * config.num_key_value_heads * config.head_dim;
  }
  return 4 * elements;
}

int64_t MhaBytesPerPosition(const ModelConfig& config) {
  return 4 * 2 * config.hidden_size * config.num_hidden_layers;
}

void WriteRandomCheckpoint(const std::filesystem::path& directory, const ModelConfig& config) {
  SaveCheckpoint(directory, config, RandomWeights(config, 1));
}

std::shared_ptr<grpc::Channel> OwnConnection(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    grpc::ChannelArguments arguments) {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

std::shared_ptr<grpc::Channel> SmallConnection(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return OwnConnection(address, grpc::InsecureChannelCredentials(), arguments);
}

TestServer::TestServer(const TestServerOptions& options)
    : server_(std::make_unique<Server>(MakeOptions(options, directory_.path()))),
      address_(server_->address()) {
  const auto channel = grpc::CreateChannel(address_, options.credentials);
  inference_ = v1::InferenceService::NewStub(channel);
  models_ = v1::ModelService::NewStub(channel);
  kv_cache_ = v1::KvCacheService::NewStub(channel);
  health_ = grpc::health::v1::Health::NewStub(channel);
}

TestServer::~TestServer() = default;

std::string TestServer::http_address() const { return server_->http_address(); }

bool TestServer::Shutdown(std::chrono::milliseconds drain_timeout) {
  return server_->Shutdown(drain_timeout);
}

v1::GetKvCacheStatsResponse TestServer::Stats() const {
  v1::GetKvCacheStatsResponse response;
  const grpc::Status status = CallUnary(kv_cache(), &v1::KvCacheService::Stub::GetKvCacheStats,
                                        v1::GetKvCacheStatsRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

v1::KvCacheStats TestServer::Stats(const std::string& model) const {
  const v1::GetKvCacheStatsResponse all = Stats();
  for (const v1::KvCacheStats& stats : all.models()) {
    if (stats.model() == model) return stats;
  }
  ADD_FAILURE() << "no statistics of " << model;
  return {};
}

bool TestServer::WaitForStats(const std::string& model,
                              const std::function<bool(const v1::KvCacheStats&)>& holds) const {
  const auto end = std::chrono::steady_clock::now() + kForever;
  while (std::chrono::steady_clock::now() < end) {
    const v1::KvCacheStats stats = Stats(model);
    if (testing::Test::HasFailure()) return false;
    if (holds(stats)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // yields to the engine
  }
  return false;
}

grpc::health::v1::HealthCheckResponse::ServingStatus TestServer::Health(
    const std::string& service) const {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      CallUnary(health(), &grpc::health::v1::Health::Stub::Check, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.status();
}

v1::GenerateRequest Greedy(const std::string& model, const std::string& text,
                           int32_t max_new_tokens) {
  v1::GenerateRequest request;
  request.set_model(model);
  request.set_text(text);
  if (max_new_tokens > 0) request.set_max_new_tokens(max_new_tokens);
  request.mutable_sampling()->set_temperature(0);
  request.set_ignore_eos(true);
  return request;
}

v1::GenerateRequest LongReply() {
  v1::GenerateRequest request = Greedy("", "a", kLongReplyTokens);
  request.set_logprobs(10);
  return request;
}

GenerateCall::GenerateCall(v1::InferenceService::Stub& stub, const v1::GenerateRequest& request,
                           std::chrono::milliseconds deadline) {
  context_.set_deadline(std::chrono::system_clock::now() + deadline);
  reader_ = stub.Generate(&context_, request);
}

GenerateCall::~GenerateCall() {
  if (status_) return;
  context_.TryCancel();
  Finish();
}

bool GenerateCall::Read() {
  v1::GenerateResponse message;
  if (!reader_->Read(&message)) return false;
  messages_.push_back(std::move(message));
  return true;
}

grpc::Status GenerateCall::Finish() {
  while (Read()) {
  }
  status_ = reader_->Finish();
  return *status_;
}

std::string GenerateCall::text() const {
  std::string text;
  for (const v1::GenerateResponse& message : messages_) text += message.text();
  return text;
}

std::vector<int32_t> GenerateCall::tokens() const {
  std::vector<int32_t> tokens;
  for (const v1::GenerateResponse& message : messages_) {
    tokens.insert(tokens.end(), message.token_ids().begin(), message.token_ids().end());
  }
  return tokens;
}

std::vector<v1::TokenLogprobs> GenerateCall::logprobs() const {
  std::vector<v1::TokenLogprobs> logprobs;
  for (const v1::GenerateResponse& message : messages_) {
    logprobs.insert(logprobs.end(), message.logprobs().begin(), message.logprobs().end());
  }
  return logprobs;
}

std::string GenerateCall::RequestId() {
  if (!status_ && messages_.empty()) reader_->WaitForInitialMetadata();
  const auto& metadata = context_.GetServerInitialMetadata();
  const auto found = metadata.find("triptych-request-id");
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

std::string GenerateCall::Trailer(const std::string& name) const {
  const auto& trailers = context_.GetServerTrailingMetadata();
  const auto found = trailers.find(name);
  return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
}

std::unique_ptr<GenerateCall> Generate(v1::InferenceService::Stub& stub,
                                       const v1::GenerateRequest& request) {
  auto generation = std::make_unique<GenerateCall>(stub, request);
  const grpc::Status status = generation->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(generation->messages().empty());
  return generation;
}

testing::AssertionResult RefusesField(const grpc::Status& status, const std::string& field) {
  if (status.error_code() != grpc::StatusCode::INVALID_ARGUMENT) {
    return testing::AssertionFailure()
           << "code " << status.error_code() << ": " << status.error_message();
  }
  const auto detail = GetDetail<google::rpc::BadRequest>(status);
  if (!detail || detail->field_violations_size() != 1) {
    return testing::AssertionFailure() << "no BadRequest of one field";
  }
  const auto& violation = detail->field_violations(0);
  if (violation.field() != field || violation.description().empty() ||
      status.error_message() != field + " " + violation.description()) {
    return testing::AssertionFailure()
           << "names " << violation.field() << " and says: " << status.error_message();
  }
  const auto info = GetDetail<google::rpc::ErrorInfo>(status);
  const std::set<std::string> reasons = {"INVALID_FIELD", "CONTEXT_LENGTH_EXCEEDED"};
  if (!info || !reasons.contains(info->reason()) || info->domain() != "triptych.v1") {
    return testing::AssertionFailure() << "no ErrorInfo of a field";
  }
  return testing::AssertionSuccess() << status.error_message();
}

testing::AssertionResult IsError(const grpc::Status& status, grpc::StatusCode code,
                                 const std::string& reason) {
  const auto detail = GetDetail<google::rpc::ErrorInfo>(status);
  if (status.error_code() == code && !status.error_message().empty() && detail &&
      detail->reason() == reason && detail->domain() == "triptych.v1") {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "code " << status.error_code() << ", " << (detail ? detail->reason() : "no ErrorInfo")
         << ": " << status.error_message();
}

}  // namespace triptych::server
