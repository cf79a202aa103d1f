// Client of a Triptych server's gRPC services.
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

// Options of every call.
struct CallOptions {
  // Deadline of each call, retries included; a call that passes it ends with DEADLINE_EXCEEDED.
  std::optional<std::chrono::milliseconds> timeout;
  // Sent as `authorization: Bearer TOKEN`, also over plaintext; empty: not sent. REQUIRES: visible
  // ASCII characters.
  std::string token;
};

// Blocking calls of a Triptych server, in the messages of the wire contract.
//
// A client is cheap. Cancel() ends all calls of one client; make several over one channel to cancel
// calls separately.
//
// Errors: every call returns its final status; DescribeStatus (status_text.h) describes it. An
// exception from a callback cancels its call and is rethrown to the caller.
//
// Thread-safe.
class Client {
 public:
  explicit Client(const std::shared_ptr<grpc::ChannelInterface>& channel, CallOptions options = {});
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Ends the calls in flight, and all later ones, with CANCELLED. Messages that have already
  // arrived may still be delivered. Must not be called from a signal handler.
  void Cancel();

  // Calls `on_message` with each message as it arrives, on the calling thread.
  grpc::Status Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_message);
  // The same without blocking: `reactor` gets the messages on gRPC's threads. `context` is a fresh
  // one and may have a deadline. Its TryCancel ends the call; Cancel() does not. All three must
  // outlive the call.
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

  // Starts the server's drain; returns at once.
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
