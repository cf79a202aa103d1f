// The server's side of one Generate stream.
#ifndef TRIPTYCH_SERVER_GENERATE_REACTOR_H_
#define TRIPTYCH_SERVER_GENERATE_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/serving/request.h"
#include "server/engine_call.h"
#include "server/model_registry.h"
#include "triptych/v1/inference.pb.h"

namespace triptych {

// Carries a request's results from the engine's thread to the stream. One write is in flight at a
// time; what arrives meanwhile is merged into the next one, so a slow client costs one growing
// message; when that exceeds a bound the request ends and its cache is freed, and the client learns
// of it when it reads again. Lives until both gRPC and the engine are done
// with it. Thread-safe.
class GenerateReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                              public RequestSink {
 public:
  // Submits the request and starts the stream.
  static GenerateReactor* Start(ModelRegistry& registry, const HostedModel& model, Request request,
                                std::string prompt_field, grpc::CallbackServerContext& context);

  void OnRejected(SubmitStatus status) override;
  void OnDelta(Delta delta) override;
  void OnFinish(triptych::Completion completion) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override { call_.Cancel(); }
  void OnDone() override { self_.reset(); }

 private:
  GenerateReactor(ModelRegistry& registry, const HostedModel& model, const Request& request,
                  std::string prompt_field, grpc::CallbackServerContext& context);

  // Starts the write or the finish that is due, if any. Called without the lock.
  void Advance();

  EngineCall call_;
  const uint64_t seed_;
  std::shared_ptr<GenerateReactor> self_;  // until OnDone

  std::mutex mutex_;
  // Guarded by mutex_, but for writing_, which belongs to gRPC while in_flight_ is true.
  v1::GenerateResponse pending_;
  bool has_pending_ = false;
  size_t pending_bytes_ = 0;
  v1::GenerateResponse writing_;
  bool in_flight_ = false;
  std::optional<grpc::Status> final_status_;
  bool finished_ = false;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GENERATE_REACTOR_H_
