// What a client asks for, as a transport read it: nothing here is checked yet.
#ifndef TRIPTYCH_SERVER_CORE_REQUEST_PARAMS_H_
#define TRIPTYCH_SERVER_CORE_REQUEST_PARAMS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace triptych {

// Text, or token ids as the model's tokenizer numbers them; neither if the client gave none. What
// it views must live until the function that takes it returns.
using Prompt = std::variant<std::monostate, std::string_view, std::span<const int32_t>>;

// What is absent takes the engine's default (SamplingParams).
struct SamplingFields {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id and bias; ids differ
  std::optional<uint64_t> seed;                       // drawn if absent
};

struct GenerateParams {
  std::string model;  // may be empty if only one is loaded
  Prompt prompt;
  std::optional<int64_t> max_new_tokens;  // as many as fit if absent
  SamplingFields sampling;
  std::vector<std::string> stop;
  std::optional<int32_t> logprobs;
  bool ignore_eos = false;
};

struct ScoreParams {
  std::string model;  // may be empty if only one is loaded
  Prompt input;
};

struct ListSequencesParams {
  std::string model;      // every model if empty
  int32_t page_size = 0;  // the default if 0
  std::string page_token;
};

// A time as a transport may carry it, which need not make sense.
struct IntervalFields {
  int64_t seconds = 0;
  int32_t nanos = 0;
};

struct WatchStatsParams {
  std::string model;  // every model if empty
  std::optional<IntervalFields> interval;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_REQUEST_PARAMS_H_
