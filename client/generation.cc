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

// The text of a file that a flag names. Throws CLI::ValidationError if it is no text.
std::string ReadTextFile(const std::string& flag, const std::string& path) {
  std::string text = ReadFile(flag, path);
  const std::string error = CheckText(text);
  if (!error.empty()) throw CLI::ValidationError(flag, "'" + path + "' " + error);
  return text;
}

// Adds the flags of the output's form, of which a command takes one.
void AddFormFlags(CLI::App* app, v1::GenerateRequest& request) {
  const auto begin = [&request](const std::string& flag) {
    if (request.form_case() == v1::GenerateRequest::FORM_NOT_SET) return;
    throw CLI::ValidationError(flag, "another form of the output is given, too; allowed: one");
  };
  using Field = std::string* (v1::GenerateRequest::*)();
  const auto add_text = [&](const std::string& name, const std::string& help, Field field) {
    app->add_option_function<std::string>(
           name,
           [&request, begin, name, field](const std::string& text) {
             begin(name);
             *(request.*field)() = text;
           },
           help)
        ->check(CheckText)
        ->type_name("TEXT");
  };
  const auto add_file = [&](const std::string& name, const std::string& help, Field field) {
    app->add_option_function<std::string>(
           name,
           [&request, begin, name, field](const std::string& path) {
             begin(name);
             *(request.*field)() = ReadTextFile(name, path);
           },
           help)
        ->type_name("FILE");
  };
  add_text("--json-schema", "JSON Schema that the output fits",
           &v1::GenerateRequest::mutable_json_schema);
  add_file("--json-schema-file", "File with the JSON Schema",
           &v1::GenerateRequest::mutable_json_schema);
  app->add_flag_function(
      "--json-object",
      [&request, begin](int64_t) {
        begin("--json-object");
        request.set_json_object(true);
      },
      "Any JSON object as the output");
  add_text("--regex", "Regular expression that the whole output matches",
           &v1::GenerateRequest::mutable_regex);
  AddTexts(app, "--choice", "Text that the output may be; repeatable",
           [&request, begin](const std::vector<std::string>& texts) {
             begin("--choice");
             request.mutable_choice()->mutable_texts()->Assign(texts.begin(), texts.end());
           });
  add_text("--grammar", "Grammar of the output, in GBNF", &v1::GenerateRequest::mutable_grammar);
  add_file("--grammar-file", "File with the grammar", &v1::GenerateRequest::mutable_grammar);
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
  AddNumber<int32_t>(app, "--max-draft-tokens",
                     "Most tokens that speculation drafts in a step; 0: no speculation [32]",
                     limits::kDraftTokens, [&](int32_t n) { request.set_max_draft_tokens(n); });
  app->add_option_function<std::string>(
         "--prediction-file",
         [&](const std::string& path) {
           request.set_prediction(ReadTextFile("--prediction-file", path));
         },
         "File with a text that the output may resemble; changes only the speed")
      ->type_name("FILE");
  app->add_flag_function(
      "--include-stop", [&](int64_t) { request.set_include_stop(true); },
      "Include the matched text of --stop in the output");
  AddNumber<int32_t>(app, "--min-new-tokens",
                     "Minimum number of new tokens before the output ends [0]",
                     {0, limits::kInt32Max}, [&](int32_t n) { request.set_min_new_tokens(n); });
  AddTokenIds(app, "--allowed-tokens", "Choose only from these tokens",
              [&](const v1::TokenIds& ids) { *sampling.mutable_allowed_token_ids() = ids.ids(); });
  AddFormFlags(app, request);
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
