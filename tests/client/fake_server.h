// Fake gRPC server for tests of the client.
#ifndef TRIPTYCH_TESTS_CLIENT_FAKE_SERVER_H_
#define TRIPTYCH_TESTS_CLIENT_FAKE_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "triptych/v1/admin.grpc.pb.h"
#include "triptych/v1/inference.grpc.pb.h"
#include "triptych/v1/kv_cache.grpc.pb.h"
#include "triptych/v1/model.grpc.pb.h"

namespace triptych::client {

// The messages of a server stream, and its behaviour after them.
template <typename Response>
struct Stream {
  enum class Then {
    kFinish,  // Ends with `status`.
    kHold,    // Sends nothing more until it is cancelled.
    kRepeat,  // Repeats the messages until it is cancelled.
  };
  std::vector<Response> messages;
  Then then = Then::kFinish;
  grpc::Status status = grpc::Status::OK;
  std::map<std::string, std::string> trailers = {};  // Sent with the status.
};

// A server of triptych.v1 and grpc.health.v1 with answers from the test. Set an answer before its
// call; calls without one fail with UNIMPLEMENTED.
class FakeServer {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // HOST:0 or unix:PATH
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  };

  FakeServer() : FakeServer(Options()) {}
  explicit FakeServer(const Options& options);
  ~FakeServer();

  const std::string& address() const { return address_; }

  // Called for every call except health checks, before its answer.
  std::function<void(const grpc::CallbackServerContext&)> on_call;

  std::function<Stream<v1::GenerateResponse>(const v1::GenerateRequest&)> generate;
  std::function<grpc::Status(const v1::ScoreRequest&, v1::ScoreResponse*)> score;
  std::function<grpc::Status(const v1::TokenizeRequest&, v1::TokenizeResponse*)> tokenize;
  std::function<grpc::Status(const v1::ListModelsRequest&, v1::ListModelsResponse*)> list_models;
  std::function<grpc::Status(const v1::GetModelRequest&, v1::GetModelResponse*)> get_model;
  std::function<grpc::Status(const v1::GetKvCacheStatsRequest&, v1::GetKvCacheStatsResponse*)>
      get_stats;
  std::function<grpc::Status(const v1::ListSequencesRequest&, v1::ListSequencesResponse*)>
      list_sequences;
  std::function<Stream<v1::WatchKvCacheStatsResponse>(const v1::WatchKvCacheStatsRequest&)>
      watch_stats;
  std::function<grpc::Status(const grpc::health::v1::HealthCheckRequest&,
                             grpc::health::v1::HealthCheckResponse*)>
      check_health;
  std::function<Stream<grpc::health::v1::HealthCheckResponse>(
      const grpc::health::v1::HealthCheckRequest&)>
      watch_health;
  std::function<grpc::Status(const v1::DrainRequest&, v1::DrainResponse*)> drain;

  // Waits until a client has cancelled a stream.
  void WaitForCancel();
  // Breaks the connections and stops listening.
  void ShutDown();

 private:
  class Inference;
  class Models;
  class KvCache;
  class Health;
  class Admin;

  void NoteCall(const grpc::CallbackServerContext& context) const;
  void NoteCancel();

  std::unique_ptr<Inference> inference_;
  std::unique_ptr<Models> models_;
  std::unique_ptr<KvCache> kv_cache_;
  std::unique_ptr<Health> health_;
  std::unique_ptr<Admin> admin_;
  std::string address_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;  // Guarded by mutex_.

  std::unique_ptr<grpc::Server> server_;
};

}  // namespace triptych::client

#endif  // TRIPTYCH_TESTS_CLIENT_FAKE_SERVER_H_
