#include "client/client.h"

#include <algorithm>
#include <utility>

#include "client/prefix_key.h"

namespace triptych::client {
namespace {

template <typename Response>
grpc::Status ReadAll(grpc::ClientContext* context, grpc::ClientReader<Response>& reader,
                     const std::function<void(const Response&)>& on_message) {
  Response response;
  try {
    while (reader.Read(&response)) on_message(response);
  } catch (...) {
    context->TryCancel();  // else Finish waits for the unread messages
    reader.Finish();
    throw;
  }
  return reader.Finish();
}

void AddPrefixKey(const v1::GenerateRequest& request, grpc::ClientContext* context) {
  if (!request.bypass_prefix_cache()) context->AddMetadata(kPrefixKeyField, PrefixKey(request));
}

}  // namespace

// One RPC's context, known to Cancel() during its lifetime.
class Client::Call {
 public:
  explicit Call(Client& client) : client_(client) {
    client.Prepare(&context_);
    const MutexLock lock(client.mutex_);
    client.in_flight_.insert(&context_);
    if (client.cancelled_) context_.TryCancel();
  }
  ~Call() {
    const MutexLock lock(client_.mutex_);
    client_.in_flight_.erase(&context_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  grpc::ClientContext* context() { return &context_; }

 private:
  Client& client_;
  grpc::ClientContext context_;
};

Client::Client(const std::shared_ptr<grpc::ChannelInterface>& channel, CallOptions options)
    : inference_(v1::InferenceService::NewStub(channel)),
      models_(v1::ModelService::NewStub(channel)),
      kv_cache_(v1::KvCacheService::NewStub(channel)),
      admin_(v1::AdminService::NewStub(channel)),
      health_(grpc::health::v1::Health::NewStub(channel)),
      options_(std::move(options)) {}

void Client::Prepare(grpc::ClientContext* context) const {
  if (options_.timeout) {
    context->set_deadline(
        std::min(context->deadline(), std::chrono::system_clock::now() + *options_.timeout));
  }
  if (!options_.token.empty()) context->AddMetadata("authorization", "Bearer " + options_.token);
}

void Client::Cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : in_flight_) context->TryCancel();
}

grpc::Status Client::Generate(const v1::GenerateRequest& request,
                              const std::function<void(const v1::GenerateResponse&)>& on_message) {
  Call call(*this);
  AddPrefixKey(request, call.context());
  return ReadAll(call.context(), *inference_->Generate(call.context(), request), on_message);
}

void Client::Generate(grpc::ClientContext* context, const v1::GenerateRequest* request,
                      grpc::ClientReadReactor<v1::GenerateResponse>* reactor) {
  Prepare(context);
  AddPrefixKey(*request, context);
  inference_->async()->Generate(context, request, reactor);
}

grpc::Status Client::Score(const v1::ScoreRequest& request, v1::ScoreResponse* response) {
  Call call(*this);
  return inference_->Score(call.context(), request, response);
}

grpc::Status Client::Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response) {
  Call call(*this);
  return inference_->Tokenize(call.context(), request, response);
}

grpc::Status Client::GetModel(const v1::GetModelRequest& request, v1::GetModelResponse* response) {
  Call call(*this);
  return models_->GetModel(call.context(), request, response);
}

grpc::Status Client::ListModels(v1::ListModelsResponse* response) {
  response->Clear();
  v1::ListModelsRequest request;
  do {
    v1::ListModelsResponse page;
    Call call(*this);
    const grpc::Status status = models_->ListModels(call.context(), request, &page);
    if (!status.ok()) return status;
    request.set_page_token(page.next_page_token());
    page.clear_next_page_token();
    response->MergeFrom(page);
  } while (!request.page_token().empty());
  return grpc::Status::OK;
}

grpc::Status Client::GetKvCacheStats(const std::string& model,
                                     v1::GetKvCacheStatsResponse* response) {
  v1::GetKvCacheStatsRequest request;
  request.set_model(model);
  Call call(*this);
  return kv_cache_->GetKvCacheStats(call.context(), request, response);
}

grpc::Status Client::ListSequences(const std::string& model, v1::ListSequencesResponse* response) {
  response->Clear();
  v1::ListSequencesRequest request;
  request.set_model(model);
  do {
    v1::ListSequencesResponse page;
    Call call(*this);
    const grpc::Status status = kv_cache_->ListSequences(call.context(), request, &page);
    if (!status.ok()) return status;
    request.set_page_token(page.next_page_token());
    response->mutable_sequences()->MergeFrom(page.sequences());
  } while (!request.page_token().empty());
  return grpc::Status::OK;
}

grpc::Status Client::WatchKvCacheStats(
    const v1::WatchKvCacheStatsRequest& request,
    const std::function<void(const v1::GetKvCacheStatsResponse&)>& on_stats) {
  Call call(*this);
  return ReadAll<v1::WatchKvCacheStatsResponse>(
      call.context(), *kv_cache_->WatchKvCacheStats(call.context(), request),
      [&](const v1::WatchKvCacheStatsResponse& response) { on_stats(response.stats()); });
}

grpc::Status Client::Drain(const v1::DrainRequest& request, v1::DrainResponse* response) {
  Call call(*this);
  return admin_->Drain(call.context(), request, response);
}

grpc::Status Client::CheckHealth(const std::string& service,
                                 grpc::health::v1::HealthCheckResponse* response) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  Call call(*this);
  return health_->Check(call.context(), request, response);
}

}  // namespace triptych::client
