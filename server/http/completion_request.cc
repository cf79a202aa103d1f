#include "server/http/completion_request.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/parse.h"
#include "engine/base/quoted.h"
#include "engine/base/request_limits.h"

namespace triptych::server {
namespace {

void ReadLength(Fields& fields, CompletionRequest& request) {
  const auto max_tokens = fields.Integer("max_tokens");
  const auto max_completion_tokens = fields.Integer("max_completion_tokens");
  if (max_tokens && max_completion_tokens) {
    fields.Fail(
        InvalidArgument("max_completion_tokens", "is set, as is max_tokens; allowed: one of them"));
  }
  if (max_completion_tokens) request.length_field = "max_completion_tokens";
  request.params.max_new_tokens = max_tokens ? max_tokens : max_completion_tokens;
}

// Reads at most one entry more than the limit, enough for the core to refuse the list.
void ReadStop(Fields& fields, GenerateParams& params) {
  const Json* stop = fields.Any("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    params.stop = {stop->get<std::string>()};
    return;
  }
  if (!stop->is_array()) return fields.Refuse("stop", *stop, "a string or an array of strings");
  for (const Json& entry : *stop) {
    if (params.stop.size() > limits::kMaxStops) return;
    if (!entry.is_string()) {
      return fields.Refuse("stop[" + std::to_string(params.stop.size()) + "]", entry, "a string");
    }
    params.stop.push_back(entry.get<std::string>());
  }
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
  entries.Ignore({"include_obfuscation"});
  if (const auto error = entries.Finish()) fields.Fail(*error);
}

}  // namespace

void ReadCommon(Fields& fields, CompletionRequest& request) {
  GenerateParams& params = request.params;
  params.model = fields.String("model").value_or("");
  ReadLength(fields, request);
  params.sampling.temperature = fields.Number("temperature");
  params.sampling.top_k = fields.Int32("top_k");
  params.sampling.top_p = fields.Number("top_p");
  params.sampling.min_p = fields.Number("min_p");
  params.sampling.repetition_penalty = fields.Number("repetition_penalty");
  params.sampling.presence_penalty = fields.Number("presence_penalty");
  params.sampling.frequency_penalty = fields.Number("frequency_penalty");
  if (const auto seed = fields.Integer("seed")) {
    params.sampling.seed = static_cast<uint64_t>(*seed);
  }
  ReadLogitBias(fields, params.sampling);
  ReadStop(fields, params);
  params.n = fields.Int32("n");
  ReadStream(fields, request);
  fields.Ignore({"user", "store", "metadata", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention"});
}

TextOptions ReadTextOptions(Fields& fields, bool adds) {
  TextOptions options;
  options.parse_special_tokens = fields.Bool("parse_special").value_or(false);
  if (!fields.Bool("add_special_tokens").value_or(adds)) options.begin_token = false;
  return options;
}

Error InCompletionTerms(Error error, const CompletionRequest& request) {
  constexpr std::string_view kSampling = "sampling.";
  constexpr std::string_view kTokens = "tokens.ids";
  std::string& field = error.field;
  if (field.starts_with(kSampling)) {
    field.erase(0, kSampling.size());
  } else if (field.starts_with(kTokens)) {
    field.replace(0, kTokens.size(), request.prompt_field);
  } else if (field == "text" || field == "tokens") {
    field = request.prompt_field;
  } else if (field == "parse_special_tokens") {
    field = "parse_special";
  } else if (field == "max_new_tokens") {
    field = request.length_field;
  } else if (field == "logprobs" || field == "prompt_logprobs") {
    field = request.logprobs_field;
  }
  return error;
}

}  // namespace triptych::server
