#include "engine/checkpoint/config/generation_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "engine/base/quoted.h"
#include "engine/base/request_limits.h"

namespace triptych::checkpoint {
namespace {

// Fields without effect, for any value. max_length counts the prompt too: here the context is that
// bound. Fields of beam search have an effect only with num_beams, below.
constexpr const char* kChangeNothingInGeneration[] = {
    "_from_model_config",
    "assistant_confidence_threshold",
    "assistant_lookbehind",
    "bos_token_id",
    "cache_implementation",
    "decoder_start_token_id",
    "diversity_penalty",
    "early_stopping",
    "eos_token_id",
    "is_assistant",
    "length_penalty",
    "max_length",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "num_beam_groups",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "renormalize_logits",
    "return_dict_in_generate",
    "return_legacy_cache",
    "target_lookbehind",
    "transformers_version",
    "trust_remote_code",
    "use_cache",
};

// Values of these fields that change nothing.
constexpr std::pair<std::string_view, double> kNeutral[] = {
    {"encoder_no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"frequency_penalty", 0},
    {"guidance_scale", 1},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"no_repeat_ngram_size", 0},
    {"num_beams", 1},
    {"num_return_sequences", 1},
    {"penalty_alpha", 0},
    {"presence_penalty", 0},
    {"typical_p", 1},
};

bool ChangesNothing(std::string_view field, const Json& value) {
  return value == false || (value.is_structured() && value.empty()) ||
         std::any_of(std::begin(kNeutral), std::end(kNeutral), [&](const auto& neutral) {
           return neutral.first == field && value == neutral.second;
         });
}

// A value that no request could have stays among the fields: it is not applied.

std::optional<float> Number(JsonFields& fields, const char* field, const Range<float>& range) {
  const auto given = fields.left_over().find(field);
  if (given == fields.left_over().end() || !given->is_number()) return std::nullopt;
  const auto number = given->get<double>();
  if (!(std::abs(number) <= std::numeric_limits<float>::max()) ||
      !range.Contains(static_cast<float>(number))) {
    return std::nullopt;
  }
  return fields.Float(field, range);
}

std::optional<int32_t> Integer(JsonFields& fields, const char* field, const Range<int32_t>& range) {
  const auto given = fields.left_over().find(field);
  if (given == fields.left_over().end()) return std::nullopt;
  const std::optional<int64_t> number = WholeNumber(*given);
  if (!number || *number < range.low || *number > range.high) return std::nullopt;
  fields.Ignore(field);
  return static_cast<int32_t>(*number);
}

// top_k and top_p in forms of other libraries: -1 keeps all tokens; a top_p of 0 keeps the
// likeliest one.
void TakeTruncation(JsonFields& fields, GenerationConfig& config) {
  const auto has = [&](const char* field, int64_t value) {
    return fields.Has(field) && WholeNumber(fields.left_over().at(field)) == value;
  };
  config.top_k = Integer(fields, "top_k", limits::kTopK);
  if (has("top_k", -1)) {
    fields.Ignore("top_k");
    config.top_k = 0;
  }
  config.top_p = Number(fields, "top_p", limits::kTopP);
  if (has("top_p", 0)) {
    fields.Ignore("top_p");
    config.top_k = 1;
  }
}

// The fields left that would change the text; at most kShown of them, and the number of the rest.
std::string NotApplied(const Json& left_over) {
  constexpr int64_t kShown = 8;
  std::string text;
  int64_t count = 0;
  for (const auto& [field, value] : left_over.items()) {
    if (ChangesNothing(field, value) || ++count > kShown) continue;
    if (count > 1) text += ", ";
    text += Printable(field);
    text += " = ";
    text += ShownJson(value);
  }
  if (count > kShown) {
    text += " and ";
    text += std::to_string(count - kShown);
    text += " more";
  }
  return text;
}

}  // namespace

std::string WithEndTokens(Json config, const std::vector<int32_t>& ends) {
  config["eos_token_id"] = ends;
  return config.dump() + "\n";
}

GenerationConfig ParseGenerationConfig(JsonFields fields) {
  fields.DropNulls();
  GenerationConfig config;
  config.temperature = Number(fields, "temperature", limits::kTemperature);
  TakeTruncation(fields, config);
  config.min_p = Number(fields, "min_p", limits::kMinP);
  config.repetition_penalty = Number(fields, "repetition_penalty", limits::kRepetitionPenalty);
  config.max_new_tokens = Integer(fields, "max_new_tokens", limits::kNewTokens);
  const Json samples = fields.left_over().value("do_sample", Json());
  if (samples.is_boolean()) fields.Ignore("do_sample");
  if (samples == false) config.temperature = 0;
  for (const char* field : kChangeNothingInGeneration) fields.Ignore(field);
  config.not_applied = NotApplied(fields.left_over());
  return config;
}

GenerationConfig ReadGenerationConfig(const std::filesystem::path& checkpoint) {
  std::optional<JsonFields> fields = ReadFieldsIfThere(checkpoint / kGenerationConfigFile);
  return fields ? ParseGenerationConfig(std::move(*fields)) : GenerationConfig();
}

}  // namespace triptych::checkpoint
