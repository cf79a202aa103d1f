#include "server/core/model_registry.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "server/core/requests/validation.h"

namespace triptych::server {
namespace {

// The names, cut to a length that fits into an error with everything else.
std::string NameList(const std::vector<ModelInfo>& models) {
  constexpr size_t kMaxBytes = 512;
  std::string names;
  for (size_t i = 0; i < models.size(); ++i) {
    if (names.size() + models[i].name.size() > kMaxBytes) {
      return names + fmt::format("{}{} more", i == 0 ? "" : " and ", models.size() - i);
    }
    names += (i == 0 ? "" : ", ") + models[i].name;
  }
  return names;
}

}  // namespace

Result<size_t> ModelRegistry::FindIndex(const std::string& name) const {
  if (name.empty() && models_.size() != 1) {
    return InvalidArgument("model", "is empty, but several are loaded: " + NameList(models_));
  }
  for (size_t i = 0; i < models_.size(); ++i) {
    if (name.empty() || models_[i].name == name) return i;
  }
  return ModelNotFound(name, NameList(models_));
}

Result<const ModelInfo*> ModelRegistry::Find(const std::string& name) const {
  const Result<size_t> index = FindIndex(name);
  if (!index.ok()) return index.error();
  return &models_[index.value()];
}

Result<std::vector<size_t>> ModelRegistry::FindAll(const std::string& name) const {
  if (name.empty()) {
    std::vector<size_t> all(models_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }
  const Result<size_t> index = FindIndex(name);
  if (!index.ok()) return index.error();
  return std::vector{index.value()};
}

Result<ModelPage> ModelRegistry::ListModels(const ListModelsParams& params) const {
  constexpr const char* kQuery = "models";
  const Result<size_t> size = ValidatePageSize(params.page_size);
  if (!size.ok()) return size.error();
  const Result<uint64_t> first = page_tokens_.Read(kQuery, params.page_token);
  if (!first.ok()) return first.error();
  const size_t end = std::min<size_t>(models_.size(), first.value() + size.value());
  const std::span<const ModelInfo> all = models_;
  return ModelPage{
      .models = all.subspan(first.value(), end - first.value()),
      .next_page_token = end < all.size() ? page_tokens_.Make(kQuery, end) : std::string()};
}

}  // namespace triptych::server
