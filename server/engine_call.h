// One call's request in the engine: what Generate and Score have in common.
#ifndef TRIPTYCH_SERVER_ENGINE_CALL_H_
#define TRIPTYCH_SERVER_ENGINE_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <optional>
#include <string>

#include "engine/serving/request.h"
#include "server/model_registry.h"

namespace triptych {

// Thread-safe. Everything referred to outlives the call.
class EngineCall {
 public:
  // `prompt_field` is the field of the message that holds the prompt.
  EngineCall(ModelRegistry& registry, const HostedModel& model, const Request& request,
             std::string prompt_field, grpc::CallbackServerContext& context);

  // Hands the request to the engine, which calls the sink from its own thread.
  void Submit(Request request, std::shared_ptr<RequestSink> sink);
  // Frees the request's cache by the next step. Harmless when it has ended.
  void Cancel();

  // What the client is told when the engine did not take the request.
  grpc::Status Rejection(SubmitStatus status) const;
  // What it is told when the request did not run to its end; nothing if it did.
  std::optional<grpc::Status> Failure(const Completion& completion) const;

  const std::string& request_id() const { return request_id_; }

 private:
  ModelRegistry& registry_;
  const HostedModel& model_;
  const std::string request_id_;
  const int64_t prompt_tokens_;
  const int64_t max_new_tokens_;
  const std::string prompt_field_;
  grpc::CallbackServerContext& context_;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_ENGINE_CALL_H_
