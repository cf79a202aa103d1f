#include "server/http/models.h"

#include <spdlog/fmt/fmt.h>

#include <optional>
#include <utility>

#include "engine/base/parse.h"
#include "engine/model/cached_layers.h"
#include "engine/serving/request.h"
#include "engine/text/tokenizer.h"
#include "server/core/requests/context_length.h"

namespace triptych::server {
namespace {

// The small properties of a tokenizer.
JsonOutput TokenizerJson(const Tokenizer& tokenizer) {
  const std::optional<int32_t> begin = tokenizer.begin_token();
  return {{"kind", tokenizer.kind()},
          {"vocab_size", tokenizer.vocab_size()},
          {"begin_token_id", begin ? JsonOutput(*begin) : JsonOutput(nullptr)},
          {"end_token_ids", tokenizer.end_tokens()}};
}

// The shortest digits that identify the float: 0.6, not 0.6000000238418579.
JsonOutput FloatJson(float number) {
  return ParseNumber<double>(fmt::format("{}", number)).value();
}

// The defaults, by the names of the completions API.
JsonOutput DefaultsJson(const serving::RequestDefaults& defaults) {
  const std::optional<int64_t>& most = defaults.max_new_tokens;
  return {{"max_tokens", most ? JsonOutput(*most) : JsonOutput(nullptr)},
          {"temperature", FloatJson(defaults.sampling.temperature)},
          {"top_k", defaults.sampling.top_k},
          {"top_p", FloatJson(defaults.sampling.top_p)},
          {"min_p", FloatJson(defaults.sampling.min_p)},
          {"repetition_penalty", FloatJson(defaults.sampling.repetition_penalty)}};
}

JsonOutput ChatTemplateJson(const ChatTemplate* chat_template) {
  if (chat_template == nullptr) return nullptr;
  const std::string& error = chat_template->error();
  return {{"name", chat_template->name()},
          {"error", error.empty() ? JsonOutput(nullptr) : JsonOutput(error)}};
}

}  // namespace

JsonOutput ModelJson(const ModelInfo& model, int64_t created) {
  JsonOutput json = {
      {"id", model.name},
      {"object", "model"},
      {"created", created},
      {"owned_by", "triptych"},
      {"attention", Name(model.config.attention)},
      {"parameters", model.parameters},
      {"active_parameters", model.active_parameters},
      {"read_bytes_per_token", model.read_bytes_per_token},
      {"weight_dtype", Name(model.weight_formats.layers)},
      {"embedding_dtype", Name(model.weight_formats.embeddings)},
      {"kv_cache_dtype", Name(model.cache_format)},
      {"device", model.info.device_memory ? model.info.device_memory->device : "cpu"},
      {"bytes_per_position", model.info.geometry.BytesPerPosition()},
      {"kv_cache_formula", CacheFormula(CachedLayersOf(model.config), model.cache_format)},
      {"mha_bytes_per_position", model.info.geometry.mha_bytes_per_position},
      {"sliding_window",
       model.config.HasWindows() ? JsonOutput(model.config.sliding_window) : JsonOutput(nullptr)},
      {"max_positions", model.config.max_position_embeddings},
      {"max_model_len", MostPositions(model)},  // vLLM's name
      {"generation_defaults", DefaultsJson(model.defaults)},
      {"chat_template", ChatTemplateJson(model.chat_template.get())},
      {"own_chat_templates", model.own_chat_templates},
      {"tokenizer", TokenizerJson(*model.tokenizer)}};
  if (model.config.experts.n_routed_experts > 0) {
    json["expert_dtype"] = Name(model.weight_formats.experts);
  }
  if (const auto& memory = model.info.device_memory) {
    json["device_memory"] = {{"weight_bytes", memory->weight_bytes},
                             {"cache_bytes", model.info.cache_bytes},
                             {"workspace_bytes", memory->workspace_bytes}};
  }
  return json;
}

JsonOutput WholeModelJson(const ModelInfo& model, int64_t created) {
  JsonOutput answer = ModelJson(model, created);
  JsonOutput& special_tokens = answer["tokenizer"]["special_tokens"] = JsonOutput::array();
  for (const SpecialToken& special : model.tokenizer->special_tokens()) {
    special_tokens.push_back({{"id", special.token}, {"text", special.text}});
  }
  return answer;
}

}  // namespace triptych::server
