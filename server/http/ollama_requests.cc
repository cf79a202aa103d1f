#include "server/http/ollama_requests.h"

#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/request_limits.h"
#include "server/http/chat_messages.h"
#include "server/http/output_form.h"
#include "server/http/tools.h"

namespace triptych::server {
namespace {

// Reads the options that set how a process of Ollama's runs a model, which change no text here, and
// penalize_newline, which changes nothing in Ollama either.
void IgnoreRunnerOptions(Fields& options) {
  options.Ignore({"num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread",
                  "use_mmap", "use_mlock", "low_vram", "f16_kv", "vocab_only", "numa", "logits_all",
                  "embedding_only", "mirostat_tau", "mirostat_eta", "penalize_newline"});
}

void ReadOptions(Fields& fields, CompletionRequest& request) {
  request.length_field = "num_predict";
  request.repetition_field = "repeat_penalty";
  const Json* const object = fields.Any("options");
  if (object == nullptr) return;
  if (!object->is_object()) return fields.Refuse("options", *object, "an object");
  Fields options(*object, "options.");
  ReadSampling(options, request);
  std::optional<uint64_t>& seed = request.params.sampling.seed;
  if (seed == uint64_t(-1)) seed.reset();  // a random one
  ReadStop(options, "stop", request);
  if (const auto most = options.Integer("num_predict")) {
    // As in Ollama, the output is not bounded by 0 or less.
    request.params.max_new_tokens = *most > 0 ? *most : limits::kNewTokens.high;
  }
  request.params.sampling.penalty_window = options.Int32("repeat_last_n");
  options.Lack("mirostat", 0);
  options.Lack("tfs_z", 1);
  options.Lack("typical_p", 1);
  IgnoreRunnerOptions(options);
  if (const auto error = options.Finish()) fields.Fail(*error);
}

// Reads true, false or a level.
Thinking ReadThink(Fields& fields) {
  const Json* const value = fields.Any("think");
  if (value == nullptr) return {};
  Thinking thinking = {.enabled = true, .effort = {}, .field = "think"};
  if (value->is_boolean()) {
    thinking.enabled = value->get<bool>();
  } else if (*value == "low" || *value == "medium" || *value == "high" || *value == "max") {
    thinking.effort = value->get<std::string>();
  } else {
    fields.Refuse("think", *value, R"(true, false, "low", "medium", "high", "max")");
  }
  return thinking;
}

// Reads the members that chats and prompts share.
void ReadShared(Fields& fields, std::string_view body, CompletionRequest& request) {
  fields.Need("model", "the name of a model");
  request.params.model = fields.String("model").value_or("");
  request.stream = fields.Bool("stream").value_or(true);
  ReadOptions(fields, request);
  request.thinking = ReadThink(fields);
  ReadOllamaFormat(fields, body, request.params.form);
  fields.Lack("logprobs");
  fields.Lack("top_logprobs", 0);
  fields.Ignore({"keep_alive", "truncate", "shift"});
}

bool IsEmptyList(const Json* value) {
  return value == nullptr || (value->is_array() && value->empty());
}

// Replaces the model's name by that of the served model. An error, in Ollama's words, if it must
// think and cannot.
std::optional<Error> ResolveModel(const ModelRegistry& models, CompletionRequest& request) {
  const auto model = FindOllamaModel(models, request.params.model);
  if (!model.ok()) return model.error();
  if (request.thinking.enabled.value_or(false) && !CanThink(*model.value())) {
    return InvalidArgument("", Quote(request.params.model) + " does not support thinking");
  }
  request.params.model = model.value()->name;
  return std::nullopt;
}

}  // namespace

Result<const ModelInfo*> FindOllamaModel(const ModelRegistry& models, const std::string& name) {
  constexpr std::string_view kLatest = ":latest";
  auto model = models.Find(name);
  if (model.ok() || !name.ends_with(kLatest) || name.size() == kLatest.size()) return model;
  auto untagged = models.Find(name.substr(0, name.size() - kLatest.size()));
  return untagged.ok() ? untagged : model;
}

Result<OllamaRequest> ParseOllamaChat(const JsonBody& body, const ModelRegistry& models) {
  ChatRequest request;
  CompletionRequest& completion = request.completion;
  completion.prompt_field = "messages";
  Fields fields(body.json);
  ReadShared(fields, body.text, completion);
  request.tools = ReadOllamaTools(fields, body.text);
  const bool loads = IsEmptyList(fields.Any("messages"));
  if (!loads) request.messages = ReadMessages(fields, "messages", body.text);
  if (const auto error = fields.Finish()) return *error;
  if (const auto error = ResolveModel(models, completion)) return *error;
  if (loads) return OllamaRequest(OllamaLoad{completion.params.model, /*is_chat=*/true});
  return OllamaRequest(std::move(request));
}

Result<OllamaRequest> ParseOllamaGenerate(const JsonBody& body, const ModelRegistry& models,
                                          const TextDefaults& defaults) {
  ChatRequest request;
  CompletionRequest& completion = request.completion;
  Fields fields(body.json);
  ReadShared(fields, body.text, completion);
  const std::string_view prompt = fields.String("prompt").value_or("");
  const std::string_view system = fields.String("system").value_or("");
  const bool raw = fields.Bool("raw").value_or(false);
  for (const char* const name : {"suffix", "images", "template", "context"}) fields.Lack(name);
  if (raw) {
    for (const char* const name : {"system", "think"}) fields.Lack(name);
  }
  if (const auto error = fields.Finish()) return *error;
  if (const auto error = ResolveModel(models, completion)) return *error;
  if (prompt.empty()) return OllamaRequest(OllamaLoad{completion.params.model});
  const auto& chat_template = models.Find(completion.params.model).value()->chat_template;
  if (raw || (chat_template == nullptr && system.empty())) {
    completion.prompts.push_back(
        {.input = prompt, .options = {.parse_special_tokens = defaults.parse_special}});
    return OllamaRequest(std::move(completion));
  }
  completion.prompt_field = "prompt";
  if (!system.empty()) request.messages.push_back({ChatRole::kSystem, std::string(system)});
  request.messages.push_back({ChatRole::kUser, std::string(prompt)});
  return OllamaRequest(std::move(request));
}

}  // namespace triptych::server
