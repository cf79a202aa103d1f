// The models that a server hosts, by name.
#ifndef TRIPTYCH_SERVER_CORE_MODEL_REGISTRY_H_
#define TRIPTYCH_SERVER_CORE_MODEL_REGISTRY_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/request_params.h"
#include "server/core/stats/page_tokens.h"

namespace triptych::server {

struct ModelPage {
  std::span<const ModelInfo> models;
  std::string next_page_token;  // empty on the last page
};

// Immutable and thread-safe.
class ModelRegistry {
 public:
  explicit ModelRegistry(std::vector<ModelInfo> models) : models_(std::move(models)) {}
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  const std::vector<ModelInfo>& models() const { return models_; }
  // The model of that name, or the only one if `name` is empty.
  Result<const ModelInfo*> Find(const std::string& name) const;
  // The same as an index into models().
  Result<size_t> FindIndex(const std::string& name) const;
  // The same, where an empty name means every model.
  Result<std::vector<size_t>> FindAll(const std::string& name) const;
  Result<ModelPage> ListModels(const ListModelsParams& params) const;

 private:
  const std::vector<ModelInfo> models_;
  const PageTokens page_tokens_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_MODEL_REGISTRY_H_
