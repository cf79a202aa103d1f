#include "server/http/completion_request.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/parse.h"
#include "engine/base/quoted.h"
#include "engine/base/request_limits.h"
#include "server/http/output_form.h"

namespace triptych::server {
namespace {

void ReadLength(Fields& fields, CompletionRequest& request) {
  const auto max_tokens = fields.Integer("max_tokens");
  const auto max_completion_tokens = fields.Integer("max_completion_tokens");
  if (max_tokens && max_completion_tokens && *max_tokens != *max_completion_tokens) {
    fields.Fail(InvalidArgument("max_completion_tokens",
                                "is " + std::to_string(*max_completion_tokens) +
                                    ", but max_tokens is " + std::to_string(*max_tokens) +
                                    "; allowed: one of them, or the same"));
  }
  if (max_completion_tokens) request.length_field = "max_completion_tokens";
  request.params.max_new_tokens = max_tokens ? max_tokens : max_completion_tokens;
  // llama.cpp's word for "as many as fit".
  if (request.params.max_new_tokens == -1) request.params.max_new_tokens = limits::kNewTokens.high;
}

void ReadLogitBias(Fields& fields, SamplingFields& sampling) {
  const Json* biases = fields.Any("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) {
    return fields.Refuse("logit_bias", *biases, "an object of token ids and numbers");
  }
  Fields entries(*biases, "logit_bias.");
  for (const auto& [name, value] : biases->items()) {
    if (sampling.logit_bias.size() > limits::kMaxLogitBiases) return;
    const auto token = ParseNumber<int32_t>(name, 0, limits::kInt32Max);
    const std::string path = "logit_bias[" + Printable(name) + "]";
    if (!token) return fields.Fail(InvalidArgument(path, "names no token; allowed: token ids"));
    const auto bias = entries.Number(name);
    if (!bias) return fields.Refuse(path, value, "a number");
    // "7" and "07" name the same token.
    const auto same = [&](const auto& entry) { return entry.first == *token; };
    if (std::any_of(sampling.logit_bias.begin(), sampling.logit_bias.end(), same)) {
      return fields.Fail(InvalidArgument(path, "is repeated; allowed: once"));
    }
    sampling.logit_bias.emplace_back(*token, *bias);
  }
}

void ReadStream(Fields& fields, CompletionRequest& request) {
  request.stream = fields.Bool("stream").value_or(false);
  const Json* options = fields.Any("stream_options");
  if (options == nullptr) return;
  if (!request.stream) {
    return fields.Fail(InvalidArgument("stream_options", "is set; allowed: only with stream"));
  }
  if (!options->is_object()) return fields.Refuse("stream_options", *options, "an object");
  Fields entries(*options, "stream_options.");
  request.include_usage = entries.Bool("include_usage").value_or(false);
  const bool continuous = entries.Bool("continuous_usage_stats").value_or(false);
  request.usage_in_chunks = request.include_usage && continuous;
  entries.Ignore({"include_obfuscation"});
  if (const auto error = entries.Finish()) fields.Fail(*error);
}

// Reads the ends by the names of vLLM.
void ReadEnds(Fields& fields, CompletionRequest& request) {
  GenerateParams& params = request.params;
  params.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  params.min_new_tokens = fields.Integer("min_tokens").value_or(0);
  params.stop_token_ids = request.token_ids.emplace_back(fields.TokenIds("stop_token_ids"));
  params.include_stop = fields.Bool("include_stop_str_in_output").value_or(false);
  params.show_special = !fields.Bool("skip_special_tokens").value_or(true);
}

// Members of vLLM's, llama.cpp's and other servers' clients, with the values that change nothing.
void ReadNeutral(Fields& fields) {
  fields.Lack("use_beam_search");
  fields.Lack("length_penalty", 1);
  fields.Lack("early_stopping");
  fields.Lack("truncate_prompt_tokens");
  fields.Lack("prompt_logprobs");
  fields.Lack("return_tokens_as_token_ids");
  fields.Lack("return_token_ids");
  fields.Lack("priority", 0);
  fields.Lack("mirostat", 0);
  fields.Lack("mirostat_mode", 0);
  fields.Lack("typical_p", 1);
  fields.Lack("tfs_z", 1);
  fields.Lack("dry_multiplier", 0);
  fields.Lack("xtc_probability", 0);
  fields.Lack("dynatemp_range", 0);
  fields.Ignore({"user", "store", "metadata", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "prediction", "request_id",
                 "spaces_between_special_tokens", "detokenize"});
}

}  // namespace

void CompletionRequest::AddPrompt(std::vector<int32_t> tokens) {
  token_ids.push_back(std::move(tokens));
  prompts.push_back({.input = std::span<const int32_t>(token_ids.back())});
}

std::vector<GenerateParams> CompletionRequest::All() const {
  std::vector<GenerateParams> all(prompts.size(), params);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].prompt = prompts[i];
    if (all.size() > 1) all[i].prompt.path = "prompts[" + std::to_string(i) + "].";
  }
  return all;
}

void CompletionRequest::DropViews() {
  prompts.clear();
  token_ids.clear();
  params.prompt = {};
  params.stop_token_ids = {};
  params.form.reset();
  params.calls.reset();
  params.sampling.allowed_token_ids = {};
}

void ReadPrediction(Fields& fields, CompletionRequest& request) {
  const Json* const prediction = fields.Any("prediction");
  if (prediction == nullptr) return;
  if (!prediction->is_object()) return fields.Refuse("prediction", *prediction, "an object");
  Fields entries(*prediction, "prediction.");
  const auto type = entries.String("type");
  if (type && *type != "content") {
    entries.Refuse("type", *entries.Any("type"), "\"content\"");
  }
  std::string& text = request.params.prediction;
  if (const Json* const content = entries.Need("content", "a string or an array of text parts")) {
    if (content->is_string()) {
      text = content->get<std::string>();
    } else if (!content->is_array()) {
      entries.Refuse("content", *content, "a string or an array of text parts");
    } else {
      for (size_t i = 0; i < content->size(); ++i) {
        const Json& part = (*content)[i];
        const auto found = part.is_object() ? part.find("text") : part.end();
        if (found == part.end() || !found->is_string()) {
          entries.Refuse("content[" + std::to_string(i) + "]", part, "a part with a text");
          break;
        }
        text += found->get<std::string>();
      }
    }
  }
  if (const auto error = entries.Finish()) fields.Fail(*error);
}

void ReadStop(Fields& fields, const std::string& name, CompletionRequest& request) {
  std::vector<std::string>& stops = request.params.stop;
  request.stop_field = name;
  const Json* stop = fields.Any(name);
  if (stop == nullptr) return;
  if (stop->is_string()) {
    stops = {stop->get<std::string>()};
    return;
  }
  if (!stop->is_array()) return fields.Refuse(name, *stop, "a string or an array of strings");
  for (const Json& entry : *stop) {
    if (stops.size() > limits::kMaxStops) return;
    if (!entry.is_string()) {
      return fields.Refuse(name + "[" + std::to_string(stops.size()) + "]", entry, "a string");
    }
    stops.push_back(entry.get<std::string>());
  }
}

void ReadSampling(Fields& fields, CompletionRequest& request) {
  SamplingFields& sampling = request.params.sampling;
  sampling.temperature = fields.Number("temperature");
  sampling.top_k = fields.Int32("top_k");
  sampling.top_p = fields.Number("top_p");
  sampling.min_p = fields.Number("min_p");
  sampling.repetition_penalty = fields.Number(request.repetition_field);
  sampling.presence_penalty = fields.Number("presence_penalty");
  sampling.frequency_penalty = fields.Number("frequency_penalty");
  if (const auto seed = fields.Integer("seed")) sampling.seed = static_cast<uint64_t>(*seed);
}

void ReadGeneration(Fields& fields, CompletionRequest& request) {
  GenerateParams& params = request.params;
  params.model = fields.String("model").value_or("");
  ReadSampling(fields, request);
  ReadLogitBias(fields, params.sampling);
  params.sampling.allowed_token_ids =
      request.token_ids.emplace_back(fields.TokenIds("allowed_token_ids"));
  ReadEnds(fields, request);
  params.bypass_prefix_cache = !fields.Bool("cache_prompt").value_or(true);
  params.max_draft_tokens = fields.Int32("speculative.n_max");
  fields.Ignore({"speculative.n_min", "speculative.p_min"});
  ReadNeutral(fields);
}

void ReadCommon(Fields& fields, std::string_view body, CompletionRequest& request) {
  ReadGeneration(fields, request);
  ReadLength(fields, request);
  ReadStop(fields, "stop", request);
  request.params.n = fields.Int32("n");
  ReadStream(fields, request);
  ReadForms(fields, body, request.params.form);
}

TextOptions ReadTextOptions(Fields& fields, bool adds, const TextDefaults& defaults) {
  TextOptions options;
  options.parse_special_tokens = fields.Bool("parse_special").value_or(defaults.parse_special);
  if (!fields.Bool("add_special_tokens").value_or(adds)) options.begin_token = false;
  return options;
}

Error InCompletionTerms(Error error, const CompletionRequest& request) {
  constexpr std::string_view kSampling = "sampling.";
  constexpr std::string_view kTokens = "tokens.ids";
  constexpr std::string_view kPrompts = "prompts[";
  std::string& field = error.field;
  std::string prompt = request.prompt_field;
  if (field.starts_with(kPrompts)) {
    const size_t end = field.find("].");
    prompt += field.substr(kPrompts.size() - 1, end + 2 - kPrompts.size());
    field.erase(0, end + 2);
  }
  if (field.starts_with(kSampling)) {
    field.erase(0, kSampling.size());
    if (field == "repetition_penalty") field = request.repetition_field;
    if (field == "penalty_window") field = "repeat_last_n";
  } else if (field.starts_with(kTokens)) {
    field.replace(0, kTokens.size(), prompt);
  } else if (field == "text" || field == "tokens") {
    field = prompt;
  } else if (field.starts_with("stop[") || field == "stop") {
    field.replace(0, 4, request.stop_field);
  } else if (field == "min_new_tokens") {
    field = "min_tokens";
  } else if (field == "parse_special_tokens") {
    field = "parse_special";
  } else if (field == "max_draft_tokens") {
    field = "speculative.n_max";
  } else if (field == "prediction") {
    field = "prediction.content";
  } else if (field == "max_new_tokens") {
    field = request.length_field;
  } else if (field == "logprobs" || field == "prompt_logprobs") {
    field = request.logprobs_field;
  }
  return error;
}

}  // namespace triptych::server
