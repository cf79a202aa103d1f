#include "server/model_registry.h"

#include <utility>

#include "server/status.h"

namespace triptych {
namespace {

std::vector<Engine*> Engines(const std::vector<HostedModel>& models) {
  std::vector<Engine*> engines;
  for (const HostedModel& model : models) engines.push_back(model.engine.get());
  return engines;
}

std::string NameList(const std::vector<HostedModel>& models) {
  std::string names;
  for (const HostedModel& model : models) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

}  // namespace

ModelRegistry::ModelRegistry(std::vector<HostedModel> models, int threads)
    : models_(std::move(models)), loop_(Engines(models_), threads) {}

grpc::Status ModelRegistry::Find(const std::string& name, const HostedModel** model) const {
  if (name.empty() && models_.size() != 1) {
    return InvalidArgument("model", "is empty, but several are loaded: " + NameList(models_));
  }
  for (const HostedModel& candidate : models_) {
    if (name.empty() || candidate.name == name) {
      *model = &candidate;
      return grpc::Status::OK;
    }
  }
  return ModelNotFound(name, NameList(models_));
}

grpc::Status ModelRegistry::FindAll(const std::string& name,
                                    std::vector<const HostedModel*>* models) const {
  if (name.empty()) {
    for (const HostedModel& model : models_) models->push_back(&model);
    return grpc::Status::OK;
  }
  return Find(name, &models->emplace_back());
}

}  // namespace triptych
