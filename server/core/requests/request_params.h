// Parameters of requests, as a transport has read them and before any check.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_PARAMS_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_PARAMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace triptych::server {

struct CallForm;

// How a text becomes tokens.
struct TextOptions {
  bool parse_special_tokens = false;     // special ones that it names are tokens, not text
  std::optional<bool> begin_token = {};  // is put before it; absent: if the tokenizer puts one
};

// The viewed text and tokens must live until the function that takes it returns.
struct Prompt {
  // Text, or token ids as the model's tokenizer numbers them; neither if the client gave none.
  std::variant<std::monostate, std::string_view, std::span<const int32_t>> input = {};
  TextOptions options = {};  // of a text
  // Prefix of the input's and the options' names in errors, such as "prompts[1].".
  std::string path = {};
};

// A transport may cut a list that is too long to one entry more than allowed
// (engine/base/request_limits.h).

// Absent fields take the model's defaults (ModelInfo::defaults).
struct SamplingFields {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<int32_t> penalty_window;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id and bias; ids differ
  std::optional<uint64_t> seed;                       // drawn if absent
  std::span<const int32_t> allowed_token_ids;         // all of them if empty
};

// A form that the output has. The viewed text must live until the function that takes it returns.
struct OutputForm {
  enum class Kind {
    kJsonObject,
    kJsonSchema,
    kRegex,
    kChoice,   // one of `choices`
    kGrammar,  // in GBNF
  };
  Kind kind = Kind::kJsonObject;
  std::string_view text;
  std::vector<std::string> choices;
  std::string field;  // where the text is, in errors
};

struct GenerateParams {
  std::string model;  // may be empty if only one is loaded
  Prompt prompt;
  std::optional<int64_t> max_new_tokens;  // the model's default if absent
  SamplingFields sampling;
  std::vector<std::string> stop;
  // One more, which no client has named, or the special token of that name; none if empty. Output
  // of a form ends by the token alone.
  std::string end_of_turn;
  std::optional<int32_t> logprobs;
  bool ignore_eos = false;
  std::optional<OutputForm> form;  // any text if absent
  // The output calls functions, or else has the form; null: no calls.
  std::shared_ptr<const CallForm> calls = nullptr;
  std::optional<int32_t> n;  // 1 if absent
  std::span<const int32_t> stop_token_ids;
  int64_t min_new_tokens = 0;
  bool include_stop = false;
  bool show_special = false;
  std::vector<int32_t> shown_tokens = {};  // special tokens that have their text in any case
  bool echo = false;
  std::optional<int32_t> prompt_logprobs;
  int32_t priority = 0;  // as triptych.v1.Priority numbers them: normal, high, normal, low
  bool bypass_prefix_cache = false;
  std::string prediction = {};              // text that the output is expected to resemble
  std::optional<int32_t> max_draft_tokens;  // in a step; the server's if absent
};

struct ScoreParams {
  std::string model;  // may be empty if only one is loaded
  std::vector<Prompt> inputs;
  int32_t priority = 0;  // as above
};

struct TokenizeParams {
  std::string model;      // may be empty if only one is loaded
  std::string_view text;  // which lives until the function that takes it returns
  TextOptions options = {};
  bool pieces = false;  // what each token stands for, too
};

struct DetokenizeParams {
  std::string model;                   // may be empty if only one is loaded
  std::span<const int32_t> token_ids;  // live until the function that takes them returns
};

struct ListModelsParams {
  int32_t page_size = 0;  // the default if 0
  std::string page_token;
};

struct StatsParams {
  std::string model;       // every model if empty
  bool block_map = false;  // maps of the pools, too
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

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_REQUEST_PARAMS_H_
