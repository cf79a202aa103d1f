#ifndef TRIPTYCH_CLIENT_CLIENT_H_
#define TRIPTYCH_CLIENT_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "client/channel.h"
#include "engine/base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "triptych/v1/admin.grpc.pb.h"
#include "triptych/v1/inference.grpc.pb.h"
#include "triptych/v1/kv_cache.grpc.pb.h"
#include "triptych/v1/model.grpc.pb.h"

namespace triptych::client {

// What every call is made with.
struct CallOptions {
  // Bounds each call, with all its attempts: one that outlives it ends with DEADLINE_EXCEEDED.
  std::optional<std::chrono::milliseconds> timeout;
  // Sent as `authorization: Bearer TOKEN`, over plaintext as well; empty: not sent.
  // REQUIRES: visible ASCII characters.
  std::string token;
};

// The calls of a Triptych server, blocking, in the messages of the wire contract.
//
// A client is cheap, and is what Cancel() ends: for calls that are to be cancelled apart, make
// several over one channel.
//
// Errors: every call returns the status it ended with; DescribeStatus (status_text.h) puts it in
// words. An exception from a callback cancels its call and passes on to the caller.
//
// Thread safety: every method may be called from any thread, several at once.
class Client {
 public:
  explicit Client(const std::shared_ptr<grpc::ChannelInterface>& channel, CallOptions options = {});
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Ends the calls in flight, and every later one, with CANCELLED. Messages that have already
  // arrived may still be delivered. Not to be called from a signal handler.
  void Cancel();

  // Calls `on_message` with each message as it arrives, on the calling thread.
  grpc::Status Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_message);
  // The same without a thread: `reactor` gets the messages on gRPC's threads. The call is made in
  // `context`, a fresh one (which may have a deadline), whose TryCancel ends it; Cancel() does not.
  // All three outlive the call.
  void Generate(grpc::ClientContext* context, const v1::GenerateRequest* request,
                grpc::ClientReadReactor<v1::GenerateResponse>* reactor);
  grpc::Status Score(const v1::ScoreRequest& request, v1::ScoreResponse* response);
  grpc::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response);

  grpc::Status GetModel(const v1::GetModelRequest& request, v1::GetModelResponse* response);
  // Follows the pages to the last one and gathers them in `response`.
  grpc::Status ListModels(v1::ListModelsResponse* response);

  // `model` may be empty: every model.
  grpc::Status GetKvCacheStats(const std::string& model, v1::GetKvCacheStatsResponse* response);
  // Follows the pages to the last one and gathers them in `response`. `model` may be empty.
  grpc::Status ListSequences(const std::string& model, v1::ListSequencesResponse* response);
  // Calls `on_stats` at each interval, on the calling thread, until cancelled.
  grpc::Status WatchKvCacheStats(
      const v1::WatchKvCacheStatsRequest& request,
      const std::function<void(const v1::GetKvCacheStatsResponse&)>& on_stats);

  // Begins the server's end; answers at once.
  grpc::Status Drain(const v1::DrainRequest& request, v1::DrainResponse* response);

  // `service` is a full name such as triptych.v1.InferenceService, or empty for the server as a
  // whole. NOT_FOUND if there is no such service.
  grpc::Status CheckHealth(const std::string& service,
                           grpc::health::v1::HealthCheckResponse* response);

 private:
  class Call;

  void Prepare(grpc::ClientContext* context) const;

  const std::unique_ptr<v1::InferenceService::Stub> inference_;
  const std::unique_ptr<v1::ModelService::Stub> models_;
  const std::unique_ptr<v1::KvCacheService::Stub> kv_cache_;
  const std::unique_ptr<v1::AdminService::Stub> admin_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  const CallOptions options_;

  Mutex mutex_;
  bool cancelled_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> in_flight_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_CLIENT_H_
