// The models a server hosts, by name.
#ifndef TRIPTYCH_SERVER_MODEL_REGISTRY_H_
#define TRIPTYCH_SERVER_MODEL_REGISTRY_H_

#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "engine/hosting/hosted_model.h"
#include "engine/serving/engine_loop.h"

namespace triptych {

// Immutable once made, apart from the engines, which only the loop's thread may touch.
class ModelRegistry {
 public:
  // `threads` compute threads serve all models.
  ModelRegistry(std::vector<HostedModel> models, int threads);

  // The model of that name, or the only one if `name` is empty. Sets `model`, or returns
  // NOT_FOUND or INVALID_ARGUMENT.
  grpc::Status Find(const std::string& name, const HostedModel** model) const;
  // The same, but an empty name means every model.
  grpc::Status FindAll(const std::string& name, std::vector<const HostedModel*>* models) const;

  const std::vector<HostedModel>& models() const { return models_; }
  EngineLoop& loop() { return loop_; }

 private:
  std::vector<HostedModel> models_;
  EngineLoop loop_;  // dies before the engines it runs
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_MODEL_REGISTRY_H_
