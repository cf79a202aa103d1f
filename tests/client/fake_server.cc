#include "tests/client/fake_server.h"

#include <chrono>
#include <utility>

namespace triptych::client {
namespace {

template <typename Response>
class StreamReactor : public grpc::ServerWriteReactor<Response> {
 public:
  StreamReactor(Stream<Response> stream, std::function<void()> on_cancel)
      : stream_(std::move(stream)), on_cancel_(std::move(on_cancel)) {
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      WriteNext();
    } else {
      this->Finish(grpc::Status::CANCELLED);
    }
  }

  void OnCancel() override {
    bool held = false;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      held = held_;
    }
    on_cancel_();
    if (held) this->Finish(grpc::Status::CANCELLED);
  }

  void OnDone() override { delete this; }

 private:
  using Then = typename Stream<Response>::Then;

  void WriteNext() {
    if (next_ == stream_.messages.size() && stream_.then == Then::kRepeat) next_ = 0;
    if (next_ < stream_.messages.size()) {
      this->StartWrite(&stream_.messages[next_++]);
    } else if (stream_.then == Then::kHold) {
      {
        const std::lock_guard lock(mutex_);
        held_ = !cancelled_;
        if (held_) return;  // OnCancel finishes the call.
      }
      this->Finish(grpc::Status::CANCELLED);
    } else {
      this->Finish(stream_.status);
    }
  }

  Stream<Response> stream_;
  const std::function<void()> on_cancel_;
  size_t next_ = 0;

  std::mutex mutex_;
  bool held_ = false;       // Guarded by mutex_.
  bool cancelled_ = false;  // Guarded by mutex_.
};

template <typename Request, typename Response>
grpc::ServerUnaryReactor* Answer(
    grpc::CallbackServerContext* context,
    const std::function<grpc::Status(const Request&, Response*)>& handler, const Request* request,
    Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(handler ? handler(*request, response)
                          : grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "not set up"));
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerWriteReactor<Response>* Answer(
    grpc::CallbackServerContext* context,
    const std::function<Stream<Response>(const Request&)>& handler, const Request* request,
    std::function<void()> on_cancel) {
  Stream<Response> stream;
  if (handler) {
    stream = handler(*request);
  } else {
    stream.status = grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "not set up");
  }
  for (const auto& [key, value] : stream.trailers) context->AddTrailingMetadata(key, value);
  return new StreamReactor<Response>(std::move(stream), std::move(on_cancel));
}

}  // namespace

class FakeServer::Inference : public v1::InferenceService::CallbackService {
 public:
  explicit Inference(FakeServer& fake) : fake_(fake) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.generate, request, [this] { fake_.NoteCancel(); });
  }
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const v1::ScoreRequest* request,
                                  v1::ScoreResponse* response) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.score, request, response);
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.tokenize, request, response);
  }

 private:
  FakeServer& fake_;
};

class FakeServer::Models : public v1::ModelService::CallbackService {
 public:
  explicit Models(FakeServer& fake) : fake_(fake) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.list_models, request, response);
  }
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.get_model, request, response);
  }

 private:
  FakeServer& fake_;
};

class FakeServer::KvCache : public v1::KvCacheService::CallbackService {
 public:
  explicit KvCache(FakeServer& fake) : fake_(fake) {}

  grpc::ServerUnaryReactor* GetKvCacheStats(grpc::CallbackServerContext* context,
                                            const v1::GetKvCacheStatsRequest* request,
                                            v1::GetKvCacheStatsResponse* response) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.get_stats, request, response);
  }
  grpc::ServerUnaryReactor* ListSequences(grpc::CallbackServerContext* context,
                                          const v1::ListSequencesRequest* request,
                                          v1::ListSequencesResponse* response) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.list_sequences, request, response);
  }
  grpc::ServerWriteReactor<v1::WatchKvCacheStatsResponse>* WatchKvCacheStats(
      grpc::CallbackServerContext* context, const v1::WatchKvCacheStatsRequest* request) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.watch_stats, request, [this] { fake_.NoteCancel(); });
  }

 private:
  FakeServer& fake_;
};

class FakeServer::Health : public grpc::health::v1::Health::CallbackService {
 public:
  explicit Health(FakeServer& fake) : fake_(fake) {}

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override {
    return Answer(context, fake_.check_health, request, response);
  }
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override {
    return Answer(context, fake_.watch_health, request, [] {});
  }

 private:
  FakeServer& fake_;
};

class FakeServer::Admin : public v1::AdminService::CallbackService {
 public:
  explicit Admin(FakeServer& fake) : fake_(fake) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override {
    fake_.NoteCall(*context);
    return Answer(context, fake_.drain, request, response);
  }

 private:
  FakeServer& fake_;
};

FakeServer::FakeServer(const Options& options)
    : inference_(std::make_unique<Inference>(*this)),
      models_(std::make_unique<Models>(*this)),
      kv_cache_(std::make_unique<KvCache>(*this)),
      health_(std::make_unique<Health>(*this)),
      admin_(std::make_unique<Admin>(*this)) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(options.listen, options.credentials, &port);
  builder.RegisterService(inference_.get());
  builder.RegisterService(models_.get());
  builder.RegisterService(kv_cache_.get());
  builder.RegisterService(health_.get());
  builder.RegisterService(admin_.get());
  server_ = builder.BuildAndStart();
  address_ = options.listen;
  if (!address_.starts_with("unix:")) {
    address_.replace(address_.rfind(':') + 1, std::string::npos, std::to_string(port));
  }
}

FakeServer::~FakeServer() { ShutDown(); }

void FakeServer::ShutDown() { server_->Shutdown(std::chrono::system_clock::now()); }

void FakeServer::WaitForCancel() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return cancelled_; });
}

void FakeServer::NoteCall(const grpc::CallbackServerContext& context) const {
  if (on_call) on_call(context);
}

void FakeServer::NoteCancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

}  // namespace triptych::client
