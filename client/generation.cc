#include "client/generation.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/flags.h"
#include "client/input.h"
#include "client/output.h"
#include "engine/base/request_limits.h"

namespace triptych::client {
namespace {

// "ID=VALUE".
std::optional<std::pair<int32_t, float>> ParseLogitBias(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == text.npos) return std::nullopt;
  const auto id = ParseInRange<int32_t>(text.substr(0, equals), {0, limits::kInt32Max});
  const auto value = ParseInRange(text.substr(equals + 1), limits::kLogitBias);
  if (!id || !value) return std::nullopt;
  return std::pair(*id, *value);
}

std::string CheckLogitBias(const std::string& text) {
  if (ParseLogitBias(text)) return "";
  return "must be ID=VALUE, VALUE from " + Describe(limits::kLogitBias) + ", not '" + text + "'";
}

}  // namespace

void AddGenerationFlags(CLI::App* app, v1::GenerateRequest& request) {
  v1::SamplingParams& sampling = *request.mutable_sampling();
  AddNumber<int32_t>(app, "-n,--max-new-tokens",
                     "Maximum number of new tokens [the model's, or the rest of the context]",
                     limits::kNewTokens, [&](int32_t n) { request.set_max_new_tokens(n); });
  AddNumber<float>(app, "--temperature",
                   "Sampling temperature; 0: the most likely token [the model's]",
                   limits::kTemperature, [&](float value) { sampling.set_temperature(value); });
  AddNumber<int32_t>(app, "--top-k",
                     "Sample from the k most likely tokens; 0: from all [the model's]",
                     limits::kTopK, [&](int32_t k) { sampling.set_top_k(k); });
  AddNumber<float>(app, "--top-p", "Sample from the likeliest tokens of total probability p",
                   limits::kTopP, [&](float value) { sampling.set_top_p(value); });
  AddNumber<float>(app, "--min-p", "Sample from tokens at least p times as likely as the likeliest",
                   limits::kMinP, [&](float value) { sampling.set_min_p(value); });
  AddNumber<float>(app, "--repetition-penalty", "Above 1: repeat less of the prompt and output",
                   limits::kRepetitionPenalty,
                   [&](float value) { sampling.set_repetition_penalty(value); });
  AddNumber<float>(
      app, "--presence-penalty", "Subtracted from the logits of tokens in the output [0]",
      limits::kPresencePenalty, [&](float value) { sampling.set_presence_penalty(value); });
  AddNumber<float>(
      app, "--frequency-penalty", "Subtracted for each occurrence of a token in the output [0]",
      limits::kFrequencyPenalty, [&](float value) { sampling.set_frequency_penalty(value); });
  AddTexts(app, "--logit-bias", "Value added to the logit of a token id; repeatable",
           [&](const std::vector<std::string>& biases) {
             for (const std::string& bias : biases) {
               const auto [id, value] = *ParseLogitBias(bias);
               (*sampling.mutable_logit_bias())[id] = value;
             }
           })
      ->check(CheckLogitBias)
      ->type_name("ID=VALUE");
  AddNumber<uint64_t>(app, "--seed", "Seed of the sampling [drawn by the server]",
                      {0, std::numeric_limits<uint64_t>::max()},
                      [&](uint64_t seed) { sampling.set_seed(seed); });
  AddTexts(app, "--stop", "Text before which the output ends; repeatable",
           [&](const std::vector<std::string>& stop) {
             request.mutable_stop()->Assign(stop.begin(), stop.end());
           });
  AddTokenIds(app, "--stop-tokens", "Tokens that end the output, in addition to the end tokens",
              [&](const v1::TokenIds& ids) { *request.mutable_stop_token_ids() = ids.ids(); });
  app->add_flag_function(
      "--include-stop", [&](int64_t) { request.set_include_stop(true); },
      "Include the matched text of --stop in the output");
  AddNumber<int32_t>(app, "--min-new-tokens",
                     "Minimum number of new tokens before the output ends [0]",
                     {0, limits::kInt32Max}, [&](int32_t n) { request.set_min_new_tokens(n); });
  AddTokenIds(app, "--allowed-tokens", "Choose only from these tokens",
              [&](const v1::TokenIds& ids) { *sampling.mutable_allowed_token_ids() = ids.ids(); });
  AddPriorityFlag(app, [&](v1::Priority priority) { request.set_priority(priority); });
  app->add_flag_function(
      "--no-prefix-cache", [&](int64_t) { request.set_bypass_prefix_cache(true); },
      "Neither use the prefix cache nor add to it");
  app->add_flag_function(
      "--ignore-eos", [&](int64_t) { request.set_ignore_eos(true); },
      "Continue past the end token");
}

std::vector<v1::Completion> Generate(
    Session& session, const v1::GenerateRequest& request,
    const std::function<void(const v1::GenerateResponse&)>& print) {
  std::map<int32_t, v1::Completion> completions;
  session.Check(session.client().Generate(request, [&](const v1::GenerateResponse& response) {
    print(response);
    if (response.has_completion()) completions[response.choice()] = response.completion();
  }));
  if (completions.size() < static_cast<size_t>(request.has_n() ? request.n() : 1)) {
    throw Failure("the server ended the stream without a completion");
  }
  std::vector<v1::Completion> in_order;
  in_order.reserve(completions.size());
  for (auto& [choice, completion] : completions) in_order.push_back(std::move(completion));
  return in_order;
}

void PrintText(const v1::GenerateResponse& response) { Print(Harmless(response.text())); }

}  // namespace triptych::client
