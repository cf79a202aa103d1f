#ifndef TRIPTYCH_CLIENT_CLIENT_H_
#define TRIPTYCH_CLIENT_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "engine/base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "triptych/v1/inference.grpc.pb.h"
#include "triptych/v1/kv_cache.grpc.pb.h"
#include "triptych/v1/model.grpc.pb.h"

namespace triptych::client {

// An unencrypted channel to `address` (HOST:PORT). Connects at the first call.
std::shared_ptr<grpc::Channel> Connect(const std::string& address);

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
  // `timeout` bounds each call; a call that outlives it ends with DEADLINE_EXCEEDED.
  explicit Client(const std::shared_ptr<grpc::ChannelInterface>& channel,
                  std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Ends the calls in flight, and every later one, with CANCELLED. Messages that have already
  // arrived may still be delivered. Not to be called from a signal handler.
  void Cancel();

  // Calls `on_message` with each message as it arrives, on the calling thread.
  grpc::Status Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_message);
  grpc::Status Score(const v1::ScoreRequest& request, v1::ScoreResponse* response);
  grpc::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response);

  grpc::Status ListModels(v1::ListModelsResponse* response);

  // `model` may be empty: every model.
  grpc::Status GetKvCacheStats(const std::string& model, v1::GetKvCacheStatsResponse* response);
  // Follows the pages to the last one and gathers them in `response`. `model` may be empty.
  grpc::Status ListSequences(const std::string& model, v1::ListSequencesResponse* response);
  // Calls `on_stats` at each interval, on the calling thread, until cancelled.
  grpc::Status WatchKvCacheStats(
      const v1::WatchKvCacheStatsRequest& request,
      const std::function<void(const v1::GetKvCacheStatsResponse&)>& on_stats);

  // `service` is a full name such as triptych.v1.InferenceService, or empty for the server as a
  // whole. NOT_FOUND if there is no such service.
  grpc::Status CheckHealth(const std::string& service,
                           grpc::health::v1::HealthCheckResponse* response);

 private:
  class Call;

  const std::unique_ptr<v1::InferenceService::Stub> inference_;
  const std::unique_ptr<v1::ModelService::Stub> models_;
  const std::unique_ptr<v1::KvCacheService::Stub> kv_cache_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  const std::optional<std::chrono::milliseconds> timeout_;

  Mutex mutex_;
  bool cancelled_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> in_flight_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_CLIENT_H_
