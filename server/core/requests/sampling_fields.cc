#include "server/core/requests/sampling_fields.h"

#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/base/request_limits.h"
#include "server/core/requests/field_checks.h"

namespace triptych::server {

Result<serving::SamplingParams> ValidateSampling(const SamplingFields& fields,
                                                 const ModelInfo& model) {
  serving::SamplingParams params = model.defaults.sampling;
  std::optional<Error> error;
  const auto take = [&]<typename T>(const std::string& name, const std::optional<T>& field,
                                    const Range<T>& range, T& value) {
    if (error || !field) return;
    error = CheckRange("sampling." + name, *field, range);
    value = *field;
  };
  take("temperature", fields.temperature, limits::kTemperature, params.temperature);
  // vLLM's clients say -1 for all tokens, and OpenAI's a top_p of 0 for the likeliest alone.
  const bool greedy = fields.top_p == 0.0F;
  const std::optional<int32_t> top_k = fields.top_k == -1 ? 0 : fields.top_k;
  take("top_k", greedy ? 1 : top_k, limits::kTopK, params.top_k);
  take("top_p", greedy ? 1.0F : fields.top_p, limits::kTopP, params.top_p);
  take("min_p", fields.min_p, limits::kMinP, params.min_p);
  take("repetition_penalty", fields.repetition_penalty, limits::kRepetitionPenalty,
       params.repetition_penalty);
  take("presence_penalty", fields.presence_penalty, limits::kPresencePenalty,
       params.presence_penalty);
  take("frequency_penalty", fields.frequency_penalty, limits::kFrequencyPenalty,
       params.frequency_penalty);
  take("penalty_window", fields.penalty_window, limits::kPenaltyWindow, params.penalty_window);
  if (error) return *error;

  for (const auto& [token, bias] : fields.logit_bias) {
    const std::string field = fmt::format("sampling.logit_bias[{}]", token);
    if (token < 0 || token >= model.config.vocab_size) {
      return InvalidArgument(
          field, fmt::format("names no token; allowed: 0 to {}", model.config.vocab_size - 1));
    }
    if ((error = CheckRange(field, bias, limits::kLogitBias))) return *error;
    params.logit_bias.emplace(token, bias);
  }
  const std::span<const int32_t> allowed = fields.allowed_token_ids;
  if ((error = CheckTokenIds(allowed, model, "sampling.allowed_token_ids"))) return *error;
  params.allowed.assign(allowed.begin(), allowed.end());
  return params;
}

}  // namespace triptych::server
