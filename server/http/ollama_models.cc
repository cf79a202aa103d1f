#include "server/http/ollama_models.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

#include "server/core/requests/context_length.h"
#include "server/core/sha256.h"
#include "server/http/error_response.h"
#include "server/http/fields.h"
#include "server/http/json_output.h"
#include "server/http/ollama_answer.h"
#include "server/http/ollama_requests.h"
#include "server/http/thinking.h"

namespace triptych::server {
namespace {

// 1500000000 as "1.5B".
std::string ShortNumber(int64_t number) {
  const auto real = static_cast<double>(number);
  if (real >= 1e9) return fmt::format("{:.1f}B", real / 1e9);
  if (real >= 1e6) return fmt::format("{:.2f}M", real / 1e6);
  return fmt::format("{:.2f}K", real / 1e3);
}

JsonOutput Details(const ModelInfo& model) {
  const std::string family(Name(model.config.attention));
  return {{"parent_model", ""},
          {"family", family},
          {"families", {family}},
          {"parameter_size", ShortNumber(model.parameters)},
          {"quantization_level", Name(model.weight_formats.layers)}};
}

// Ollama's programs shorten a digest that each model has. It is not of the weights.
std::string Digest(const ModelInfo& model) {
  return Sha256Hex(model.name + '\n' + model.config_json);
}

JsonOutput Listed(const ModelInfo& model) {
  return {{"name", model.name},
          {"model", model.name},
          {"digest", Digest(model)},
          {"size", model.parameter_bytes},
          {"details", Details(model)}};
}

// Ollama's names of the model's sizes.
JsonOutput ModelInfoJson(const ModelInfo& model) {
  const ModelConfig& config = model.config;
  constexpr const char* kArchitecture = "triptych";
  const auto name = [&](const char* member) { return std::string(kArchitecture) + "." + member; };
  return {{"general.architecture", kArchitecture},
          {"general.parameter_count", model.parameters},
          {name("context_length"), MostPositions(model)},
          {name("embedding_length"), config.hidden_size},
          {name("block_count"), config.num_hidden_layers},
          {name("attention.head_count"), config.num_attention_heads},
          {name("vocab_size"), config.vocab_size}};
}

// The defaults as lines of a Modelfile.
std::string ParameterLines(const serving::RequestDefaults& defaults) {
  const auto& sampling = defaults.sampling;
  return fmt::format("temperature {}\ntop_k {}\ntop_p {}\nmin_p {}\nrepeat_penalty {}",
                     sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
                     sampling.repetition_penalty);
}

}  // namespace

std::string OllamaTags(const ModelRegistry& models, int64_t created) {
  JsonOutput list = JsonOutput::array();
  for (const ModelInfo& model : models.models()) {
    list.push_back(Listed(model));
    list.back()["modified_at"] = UtcTime(created);
  }
  return ToText({{"models", std::move(list)}});
}

std::string OllamaRunning(const ModelRegistry& models) {
  JsonOutput list = JsonOutput::array();
  for (const ModelInfo& model : models.models()) {
    const int64_t on_device = model.info.device_memory
                                  ? model.info.device_memory->weight_bytes + model.info.cache_bytes
                                  : 0;
    list.push_back(Listed(model));
    list.back()["size"] =
        on_device > 0 ? on_device : model.parameter_bytes + model.info.cache_bytes;
    list.back()["size_vram"] = on_device;
    list.back()["expires_at"] = "9999-12-31T23:59:59Z";  // never
    list.back()["context_length"] = MostPositions(model);
  }
  return ToText({{"models", std::move(list)}});
}

HttpResponse OllamaShow(const Json& body, const ModelRegistry& models, int64_t created) {
  Fields fields(body);
  const char* const member = fields.Any("model") == nullptr ? "name" : "model";
  fields.Need(member, "the name of a model");
  const std::string name(fields.String(member).value_or(""));
  fields.Ignore({"name", "verbose"});
  if (const auto error = fields.Finish()) return ErrorResponse(*error);
  const auto found = FindOllamaModel(models, name);
  if (!found.ok()) return ErrorResponse(found.error());
  const ModelInfo& model = *found.value();
  JsonOutput capabilities = {"completion"};
  if (CanThink(model)) capabilities.push_back("thinking");
  if (model.chat_template != nullptr && model.chat_template->tools().shows_tools) {
    capabilities.push_back("tools");
  }
  return {.body = ToText({{"parameters", ParameterLines(model.defaults)},
                          {"details", Details(model)},
                          {"model_info", ModelInfoJson(model)},
                          {"capabilities", std::move(capabilities)},
                          {"modified_at", UtcTime(created)}})};
}

}  // namespace triptych::server
