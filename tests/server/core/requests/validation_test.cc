#include "server/core/requests/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/request_limits.h"
#include "engine/checkpoint/tokenizer/tokenizer_json.h"
#include "server/core/requests/context_length.h"
#include "tests/server/core/model_info.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::server::validation_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GenerateParams Text(std::string_view text) {
  GenerateParams params;
  params.prompt.input = text;
  return params;
}

template <typename T>
std::string Refusal(const Result<T>& result) {
  if (result.ok()) return "was accepted";
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(result.error().Message(), result.error().field + " " + result.error().description);
  return result.error().Message();
}

TEST(ValidateGenerateTest, AbsentFieldsHaveTheEnginesDefaults) {
  const Result<ValidRequest> valid = Validate(Text("ab"), SmallModelInfo());
  ASSERT_TRUE(valid.ok());
  const serving::Request& request = valid.value().request;
  EXPECT_THAT(request.prompt, ElementsAre(kBeginToken, 'a', 'b'));
  EXPECT_EQ(valid.value().prompt_field, "text");
  EXPECT_EQ(request.max_new_tokens, 32 + 1 - 3) << "as many as the cache holds";
  EXPECT_EQ(request.sampling.temperature, serving::SamplingParams().temperature);
  EXPECT_EQ(request.sampling.top_p, serving::SamplingParams().top_p);
  EXPECT_THAT(request.sampling.logit_bias, IsEmpty());
  EXPECT_THAT(request.stop, IsEmpty());
  EXPECT_FALSE(request.logprobs.has_value());
  EXPECT_FALSE(request.ignore_eos);
  EXPECT_FALSE(request.prompt_logprobs);
  EXPECT_EQ(request.choices, 1);
  EXPECT_EQ(request.priority, serving::Priority::kNormal);
  EXPECT_EQ(request.min_new_tokens, 0);
  EXPECT_THAT(request.stop_tokens, IsEmpty());
  EXPECT_THAT(request.sampling.allowed, IsEmpty());
  EXPECT_FALSE(request.include_stop);
  EXPECT_TRUE(request.share_prefix);
  EXPECT_EQ(valid.value().echo, "");
  EXPECT_TRUE(valid.value().begin_token);

  ModelInfo model = SmallModelInfo();
  model.info.blocks = 100;
  EXPECT_EQ(Validate(Text("ab"), model).value().request.max_new_tokens, 64 - 3)
      << "as many as the context holds";
  EXPECT_EQ(Validate(Text(std::string(62, 'a')), model).value().request.max_new_tokens, 1);
}

TEST(ValidateGenerateTest, MoreTokensThanFitAreCut) {
  GenerateParams params = Text("ab");
  params.max_new_tokens = 32'000;
  EXPECT_EQ(Validate(params, SmallModelInfo()).value().request.max_new_tokens, 32 + 1 - 3);
  params.min_new_tokens = 31;
  EXPECT_EQ(Refusal(Validate(params, SmallModelInfo())), "min_new_tokens is 31; allowed: 0 to 30");
}

TEST(ValidateGenerateTest, NoNewTokensAreOfAPromptThatIsShownOrScored) {
  const std::string text(63, 'a');
  GenerateParams params = Text(text);
  params.max_new_tokens = 0;
  EXPECT_EQ(Refusal(Validate(params, SmallModelInfo())),
            "max_new_tokens is 0; allowed: 1 to 2147483647");
  params.echo = true;
  const Result<ValidRequest> echoed = Validate(params, SmallModelInfo());
  ASSERT_TRUE(echoed.ok()) << "it fills the context";
  EXPECT_EQ(echoed.value().request.max_new_tokens, 0);
  params.echo = false;
  params.prompt_logprobs = 1;
  EXPECT_TRUE(Validate(params, SmallModelInfo()).ok());
}

// -1 is vLLM's word for all tokens; OpenAI takes a top_p of 0 as the likeliest token alone.
TEST(ValidateGenerateTest, TopKAndTopPAtTheirEnds) {
  struct Case {
    std::string name;
    std::optional<int32_t> given_top_k;
    float given_top_p;
    int64_t top_k;
    float top_p;
  };
  for (const Case& c : std::vector<Case>{{"all tokens", -1, 0.5f, 0, 0.5f},
                                         {"only the likeliest token", -1, 0, 1, 1}}) {
    SCOPED_TRACE(c.name);
    GenerateParams params = Text("ab");
    params.sampling.top_k = c.given_top_k;
    params.sampling.top_p = c.given_top_p;
    const serving::SamplingParams sampling =
        Validate(params, SmallModelInfo()).value().request.sampling;
    EXPECT_EQ(sampling.top_k, c.top_k);
    EXPECT_EQ(sampling.top_p, c.top_p);
  }
}

TEST(ValidateGenerateTest, GivenFieldsAreUsed) {
  const std::vector<int32_t> ids = {'h', 0xC3, 257};
  GenerateParams params;
  params.prompt.input = std::span<const int32_t>(ids);
  params.max_new_tokens = 9;
  params.sampling = {.temperature = 0.5f,
                     .top_k = 3,
                     .top_p = 0.25f,
                     .min_p = 0.125f,
                     .repetition_penalty = 2,
                     .presence_penalty = -1,
                     .frequency_penalty = 1,
                     .penalty_window = 5,
                     .logit_bias = {{65, 4}, {66, -4}},
                     .seed = 11,
                     .allowed_token_ids = {}};
  const std::vector<int32_t> stop_tokens = {3, 4}, allowed = {65, 66, 257};
  params.sampling.allowed_token_ids = allowed;
  params.stop = {"a", "b"};
  params.logprobs = 0;
  params.ignore_eos = true;
  params.n = 16;
  params.stop_token_ids = stop_tokens;
  params.min_new_tokens = 9;
  params.include_stop = true;
  params.echo = true;
  params.prompt_logprobs = 20;
  params.priority = 3;
  params.bypass_prefix_cache = true;
  params.prediction = "hi";
  params.max_draft_tokens = 7;
  const Result<ValidRequest> valid = Validate(params, SmallModelInfo());
  ASSERT_TRUE(valid.ok());
  const serving::Request& request = valid.value().request;
  EXPECT_EQ(valid.value().prompt_field, "tokens");
  EXPECT_THAT(request.prompt, ElementsAre('h', 0xC3, 257)) << "as they are";
  EXPECT_FALSE(valid.value().begin_token);
  EXPECT_EQ(valid.value().echo, "h\ufffd");
  EXPECT_EQ(request.max_new_tokens, 9);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.min_p, 0.125f);
  EXPECT_EQ(request.sampling.repetition_penalty, 2);
  EXPECT_EQ(request.sampling.presence_penalty, -1);
  EXPECT_EQ(request.sampling.frequency_penalty, 1);
  EXPECT_EQ(request.sampling.penalty_window, 5);
  EXPECT_EQ(request.sampling.logit_bias.at(66), -4);
  EXPECT_EQ(request.seed, 11u);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_EQ(request.logprobs, 0);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.choices, 16);
  EXPECT_THAT(request.stop_tokens, ElementsAre(3, 4));
  EXPECT_THAT(request.sampling.allowed, ElementsAre(65, 66, 257));
  EXPECT_EQ(request.min_new_tokens, 9);
  EXPECT_TRUE(request.include_stop);
  EXPECT_EQ(request.prompt_logprobs, 20);
  EXPECT_EQ(request.priority, serving::Priority::kLow);
  EXPECT_FALSE(request.share_prefix);
  EXPECT_THAT(request.prediction, ElementsAre('h', 'i'));
  EXPECT_EQ(request.most_drafted, 7);
  params.max_draft_tokens = 100;
  EXPECT_EQ(Validate(params, SmallModelInfo()).value().request.most_drafted, serving::kMostDrafted);
  params.prompt.input = "text";
  params.priority = 1;
  EXPECT_EQ(Validate(params, SmallModelInfo()).value().echo, "text");
  EXPECT_EQ(Validate(params, SmallModelInfo()).value().request.priority, serving::Priority::kHigh);
}

TEST(ValidateGenerateTest, APredictionIsBounded) {
  GenerateParams params = Text("ab");
  params.prediction.assign(limits::kMaxPredictionBytes + 1, 'a');
  const Result<ValidRequest> valid = Validate(params, SmallModelInfo());
  ASSERT_FALSE(valid.ok());
  EXPECT_EQ(valid.error().field, "prediction");
  EXPECT_EQ(valid.error().description, "is 262145 bytes long; allowed: at most 262144");
  params.prediction.pop_back();
  EXPECT_TRUE(Validate(params, SmallModelInfo()).ok());
}

TEST(ValidateGenerateTest, AbsentFieldsHaveTheModelsDefaults) {
  ModelInfo model = SmallModelInfo();
  model.defaults = {.sampling = {.temperature = 0,
                                 .top_k = 20,
                                 .top_p = 0.75f,
                                 .min_p = 0.25f,
                                 .repetition_penalty = 1.5f},
                    .max_new_tokens = 7};
  GenerateParams params = Text("ab");
  const auto taken = [&] { return Validate(params, model).value().request; };
  EXPECT_EQ(taken().sampling.temperature, 0);
  EXPECT_EQ(taken().sampling.top_k, 20);
  EXPECT_EQ(taken().sampling.top_p, 0.75f);
  EXPECT_EQ(taken().sampling.min_p, 0.25f);
  EXPECT_EQ(taken().sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(taken().max_new_tokens, 7);

  // Each by itself, and also what is as if there were no default.
  params.sampling.temperature = 1;
  EXPECT_EQ(taken().sampling.temperature, 1);
  EXPECT_EQ(taken().sampling.top_k, 20);
  params.sampling.top_k = 0;
  params.sampling.top_p = 1;
  params.sampling.min_p = 0;
  params.sampling.repetition_penalty = 1;
  params.max_new_tokens = 20;
  EXPECT_EQ(taken().sampling.top_k, 0);
  EXPECT_EQ(taken().sampling.top_p, 1);
  EXPECT_EQ(taken().sampling.min_p, 0);
  EXPECT_EQ(taken().sampling.repetition_penalty, 1);
  EXPECT_EQ(taken().max_new_tokens, 20);
}

TEST(ValidateGenerateTest, AModelsMostNewTokensGiveWay) {
  ModelInfo model = SmallModelInfo();
  model.defaults.max_new_tokens = 1000;
  EXPECT_EQ(Validate(Text("ab"), model).value().request.max_new_tokens, 32 + 1 - 3)
      << "to what fits";
  model.defaults.max_new_tokens = 7;
  GenerateParams params = Text("ab");
  params.min_new_tokens = 9;
  EXPECT_EQ(Validate(params, model).value().request.max_new_tokens, 9) << "to what is asked for";
  params.min_new_tokens = 31;
  EXPECT_EQ(Refusal(Validate(params, model)), "min_new_tokens is 31; allowed: 0 to 30");
}

// One past each limit of a list is in the test below.
TEST(ValidateGenerateTest, TakesTheMostOfEverything) {
  ModelInfo model = SmallModelInfo();
  GenerateParams params = Text("x");
  const std::vector<int32_t> stop_tokens(64, 'a'), allowed(1024, 'b');
  params.stop.assign(16, std::string(256, 'a'));
  params.stop_token_ids = stop_tokens;
  params.sampling.allowed_token_ids = allowed;
  for (int32_t i = 0; i < 1024; ++i) params.sampling.logit_bias.emplace_back(i % 258, 1000);
  params.logprobs = params.prompt_logprobs = 20;
  params.n = 16;
  const Result<ValidRequest> valid = Validate(params, model);
  ASSERT_TRUE(valid.ok()) << valid.error().Message();
  EXPECT_THAT(valid.value().request.sampling.allowed, testing::SizeIs(1024));
  EXPECT_THAT(valid.value().request.stop_tokens, testing::SizeIs(64));
}

TEST(ValidateGenerateTest, AnErrorNamesFieldValueAndWhatIsAllowed) {
  const ModelInfo model = SmallModelInfo();
  const std::vector<int32_t> ids = {0, 258};
  const std::vector<int32_t> few = {'a', kEndToken}, many(1025, 'a');
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::function<void(GenerateParams&)> spoil;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto& p) { p.prompt = {}; }, "prompt is missing; allowed: text or tokens"},
      {[&](auto& p) { p.prompt.input = std::span<const int32_t>(ids); },
       "tokens.ids[1] is 258; allowed: 0 to 257"},
      {[](auto& p) { p.max_new_tokens = 0; }, "max_new_tokens is 0; allowed: 1 to 2147483647"},
      {[](auto& p) { p.max_new_tokens = int64_t{1} << 31; },
       "max_new_tokens is 2147483648; allowed: 1 to 2147483647"},
      {[](auto& p) { p.sampling.temperature = 100.00001f; },
       "sampling.temperature is 100.00001; allowed: 0 to 100"},
      {[&](auto& p) { p.sampling.temperature = nan; },
       "sampling.temperature is nan; allowed: 0 to 100"},
      {[](auto& p) { p.sampling.top_k = -2; }, "sampling.top_k is -2; allowed: 0 to 2147483647"},
      {[](auto& p) { p.sampling.top_p = -0.5f; }, "sampling.top_p is -0.5; allowed: above 0 to 1"},
      {[](auto& p) { p.sampling.min_p = 1.5f; }, "sampling.min_p is 1.5; allowed: 0 to 1"},
      {[](auto& p) { p.sampling.repetition_penalty = 0; },
       "sampling.repetition_penalty is 0; allowed: above 0 to 100"},
      {[](auto& p) { p.sampling.presence_penalty = -101; },
       "sampling.presence_penalty is -101; allowed: -100 to 100"},
      {[](auto& p) { p.sampling.frequency_penalty = 101; },
       "sampling.frequency_penalty is 101; allowed: -100 to 100"},
      {[](auto& p) {
         p.sampling.logit_bias = {{258, 0}};
       },
       "sampling.logit_bias[258] names no token; allowed: 0 to 257"},
      {[](auto& p) {
         p.sampling.logit_bias = {{65, 1001}};
       },
       "sampling.logit_bias[65] is 1001; allowed: -1000 to 1000"},
      {[](auto& p) {
         p.sampling.logit_bias.resize(1025, {0, 1});
       },
       "sampling.logit_bias has more than 1024 entries; allowed: at most 1024"},
      {[&](auto& p) { p.sampling.allowed_token_ids = many; },
       "sampling.allowed_token_ids has more than 1024 tokens; allowed: at most 1024"},
      {[&](auto& p) { p.sampling.allowed_token_ids = ids; },
       "sampling.allowed_token_ids[1] is 258; allowed: 0 to 257"},
      {[&](auto& p) { p.stop_token_ids = std::span(many).first(65); },
       "stop_token_ids has more than 64 tokens; allowed: at most 64"},
      {[&](auto& p) { p.stop_token_ids = ids; }, "stop_token_ids[1] is 258; allowed: 0 to 257"},
      {[](auto& p) { p.n = 0; }, "n is 0; allowed: 1 to 16"},
      {[](auto& p) { p.n = 17; }, "n is 17; allowed: 1 to 16"},
      {[](auto& p) { p.priority = 4; }, "priority is 4; allowed: 0 to 3"},
      {[](auto& p) { p.min_new_tokens = -1; }, "min_new_tokens is -1; allowed: 0 to 31"},
      {[](auto& p) {
         p.max_new_tokens = 7;
         p.min_new_tokens = 8;
       },
       "min_new_tokens is 8; allowed: 0 to 7"},
      {[&](auto& p) {
         p.min_new_tokens = 1;
         p.sampling.allowed_token_ids = few;
         p.stop_token_ids = std::span(few).first(1);
       },
       "min_new_tokens is 1, but every token that can be chosen ends the output; allowed: 0"},
      {[](auto& p) { p.prompt.input = std::span<const int32_t>(); },
       "tokens.ids is empty; allowed: at least one token"},
      {[&](auto& p) { p.prompt.input = std::span(many).first(64); },
       "tokens is 64 tokens; allowed: at most 63, as this model's maximum context length is 64 "
       "tokens, with a new token"},
      {[](auto& p) { p.prompt_logprobs = -1; }, "prompt_logprobs is -1; allowed: 0 to 20"},
      {[](auto& p) { p.stop.resize(129, "a"); },
       "stop has more than 128 strings; allowed: at most 128"},
      {[](auto& p) { p.stop.assign(17, std::string(241, 'a')); },
       "stop has 4097 bytes; allowed: at most 4096 together"},
      {[](auto& p) {
         p.stop = {"a", ""};
       },
       "stop[1] is 0 bytes long; allowed: 1 to 256"},
      {[](auto& p) { p.stop = {std::string(257, 'a')}; },
       "stop[0] is 257 bytes long; allowed: 1 to 256"},
      {[](auto& p) { p.logprobs = 21; }, "logprobs is 21; allowed: 0 to 20"},
  };
  for (const Case& c : cases) {
    GenerateParams params = Text("x");
    c.spoil(params);
    EXPECT_EQ(Refusal(Validate(params, model)), c.message);
  }
  GenerateParams fewer = Text("x");
  fewer.sampling.allowed_token_ids = few;
  fewer.stop_token_ids = std::span(few).first(1);
  EXPECT_TRUE(Validate(fewer, model).ok()) << "it may end at once";
  // Several errors: the first.
  GenerateParams params = Text("x");
  params.logprobs = -1;
  params.sampling.top_p = 2;
  params.sampling.min_p = 2;
  EXPECT_THAT(Refusal(Validate(params, model)), HasSubstr("sampling.top_p"));
}

// A tokenizer whose tokens stand for up to four bytes, and which counts what it is given.
class WideTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override {
    size_t bytes = 0;
    for (const TextPart& part : parts) bytes += part.text.size();
    encoded += bytes;
    return std::vector<int32_t>((bytes + 3) / 4, 1);
  }
  std::string Decode(int32_t token) const override { return std::string(token % 5, 'a'); }
  int64_t max_token_bytes() const override { return 4; }
  std::string_view kind() const override { return "test"; }
  int32_t vocab_size() const override { return 10; }
  std::optional<int32_t> begin_token() const override { return 0; }
  std::span<const int32_t> end_tokens() const override {
    static constexpr int32_t kEnds[] = {5};
    return kEnds;
  }

  mutable size_t encoded = 0;
};

TEST(ValidateGenerateTest, ATextThatIsTooLongIsNotTokenized) {
  const auto tokenizer = std::make_shared<WideTokenizer>();
  ModelInfo model = SmallModelInfo();
  model.tokenizer = tokenizer;
  EXPECT_TRUE(Validate(Text(std::string(62 * 4, 'a')), model).ok());
  EXPECT_EQ(tokenizer->encoded, 62u * 4);
  EXPECT_EQ(Refusal(Validate(Text(std::string(62 * 4 + 1, 'a')), model)),
            "text is at least 64 tokens with the begin token; allowed: at most 63, as this model's "
            "maximum context length is 64 tokens, with a new token");
  const std::string too_long(4000, 'a');
  EXPECT_EQ(Refusal(Validate(
                ScoreParams{.model = "", .inputs = {{.input = "a"}, {.input = too_long}}}, model)),
            "inputs[1].text is at least 1001 tokens with the begin token; allowed: at most 64, as "
            "this model's maximum context length is 64 tokens");
  EXPECT_EQ(tokenizer->encoded, 62u * 4 + 1);
}

TEST(DetokenizeTest, ATextIsBounded) {
  ModelInfo model = SmallModelInfo();
  model.tokenizer = std::make_shared<WideTokenizer>();
  constexpr size_t kMost = limits::kMaxDetokenizedBytes;
  std::vector<int32_t> ids(kMost / 4, 4);  // of four bytes each
  ASSERT_TRUE(Detokenize(ids, model).ok());
  EXPECT_EQ(Detokenize(ids, model).value(), std::string(kMost, 'a'));
  ids.push_back(5);  // of none
  EXPECT_TRUE(Detokenize(ids, model).ok());
  ids.push_back(1);
  EXPECT_EQ(Refusal(Detokenize(ids, model)),
            "token_ids stand for more than 4194304 bytes; allowed: at most 4194304");
}

TEST(DetokenizeTest, InvalidBytesCountAsTheirReplacement) {
  const ModelInfo model = SmallModelInfo();
  EXPECT_EQ(Detokenize(std::vector<int32_t>{'a', 0xC3, 0xA9, 0xC3}, model).value(), "aé\uFFFD");
  const std::vector<int32_t> ids(limits::kMaxDetokenizedBytes / 3 + 1, 0xFF);
  EXPECT_THAT(Refusal(Detokenize(ids, model)), HasSubstr("stand for more than"));
}

// Encodes no text that contains an x.
class PickyTokenizer final : public WideTokenizer {
  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override {
    for (const TextPart& part : parts) {
      if (part.text.find('x') != std::string_view::npos) throw EncodeError("an x");
    }
    return WideTokenizer::Encode(parts);
  }
};

TEST(ValidateGenerateTest, APredictionThatCannotBeEncodedIsNone) {
  ModelInfo model = SmallModelInfo();
  model.tokenizer = std::make_shared<PickyTokenizer>();
  GenerateParams params = Text("ab");
  params.prediction = "cd";
  EXPECT_EQ(Validate(params, model).value().request.prediction.size(), 1);
  params.prediction = "cdx";
  EXPECT_THAT(Validate(params, model).value().request.prediction, IsEmpty());
  params = Text("abx");
  EXPECT_FALSE(Validate(params, model).ok());
}

// Any number of bytes may become a token, so nothing is known before; what is, ends the call then.
class ManyBytesTokenizer final : public WideTokenizer {
 public:
  int64_t max_token_bytes() const override { return kAnyBytes; }
};

TEST(ValidateScoreTest, TextsAfterOneThatIsTooLongAreNotTokenized) {
  const auto tokenizer = std::make_shared<ManyBytesTokenizer>();
  ModelInfo model = SmallModelInfo();
  model.tokenizer = tokenizer;
  const std::string fits(63 * 4, 'a'), too_long(64 * 4, 'a');
  EXPECT_TRUE(Validate(ScoreParams{.model = "", .inputs = {{.input = fits}}}, model).ok());
  EXPECT_EQ(Refusal(Validate(
                ScoreParams{.model = "", .inputs = {{.input = too_long}, {.input = fits}}}, model)),
            "inputs[0].text is 65 tokens with the begin token; allowed: at most 64, as this "
            "model's maximum context length is 64 tokens");
  EXPECT_EQ(tokenizer->encoded, fits.size() + too_long.size());
}

TEST(ValidateGenerateTest, CountsComeBeforeContents) {
  const std::vector<int32_t> many(1025, 999);
  GenerateParams params = Text(std::string(1000, 'a'));
  params.max_new_tokens = -1;
  params.sampling.allowed_token_ids = many;
  EXPECT_THAT(Refusal(Validate(params, SmallModelInfo())),
              HasSubstr("sampling.allowed_token_ids has more"));
}

ModelInfo ModelWith(std::shared_ptr<const Tokenizer> tokenizer) {
  ModelInfo model = SmallModelInfo();
  model.tokenizer = std::move(tokenizer);
  return model;
}

// Its special tokens are "</s>", 256, and "<s>", 257, which is put before texts.
ModelInfo WithSpecialTokens() {
  return ModelWith(checkpoint::ParseTokenizerJson(BeginAndEndJson().dump(), "tokenizer.json", {}));
}

// Puts no token before texts.
ModelInfo WithoutBeginToken() {
  return ModelWith(checkpoint::ParseTokenizerJson(ByteLevelJson().dump(), "tokenizer.json",
                                                  {.end_text = "</s>"}));
}

TEST(ValidateGenerateTest, SpecialTokensOfATextAreTokensIfThatIsAskedFor) {
  const ModelInfo model = WithSpecialTokens();
  GenerateParams params = Text("a<s>b</s>");
  params.echo = true;
  const Result<ValidRequest> as_text = Validate(params, model);
  ASSERT_TRUE(as_text.ok());
  EXPECT_THAT(as_text.value().request.prompt,
              ElementsAre(257, 'a', '<', 's', '>', 'b', '<', '/', 's', '>'));
  EXPECT_EQ(as_text.value().echo, "a<s>b</s>");
  params.prompt.options.parse_special_tokens = true;
  const Result<ValidRequest> parsed = Validate(params, model);
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed.value().request.prompt, ElementsAre(257, 'a', 257, 'b', 256));
  EXPECT_EQ(parsed.value().echo, "ab") << "as in what is generated";
  params.prompt.input = "a\xFF";
  EXPECT_EQ(Validate(params, model).value().echo, "a\xFF") << "unchanged: it names no token";

  // A text that begins with the begin token gets no second one.
  params.prompt.input = "<s>a<s>";
  EXPECT_THAT(Validate(params, model).value().request.prompt, ElementsAre(257, 'a', 257));
  EXPECT_THAT(
      Tokenize({.model = "", .text = "<s>a", .options = {.parse_special_tokens = true}}, model)
          .value()
          .tokens,
      ElementsAre(257, 'a'));
  params.prompt.options.parse_special_tokens = false;
  EXPECT_THAT(Validate(params, model).value().request.prompt,
              ElementsAre(257, '<', 's', '>', 'a', '<', 's', '>'));
  params.prompt.options.parse_special_tokens = true;

  // Which are long for one token each: more bytes than the context could hold of others.
  std::string ends;
  for (int i = 0; i < 62; ++i) ends += "</s>";
  params.prompt.input = ends;
  EXPECT_EQ(Validate(params, model).value().request.prompt.size(), 63u);
  ends += "</s>";
  params.prompt.input = ends;
  EXPECT_EQ(Refusal(Validate(params, model)),
            "text is at least 64 tokens with the begin token; allowed: at most 63, as this model's "
            "maximum context length is 64 tokens, with a new token");
}

// A tokenizer with more tokens than the model has rows.
TEST(ValidateGenerateTest, TokensThatTheModelDoesNotHaveAreRefused) {
  ModelInfo model = WithoutBeginToken();
  model.config.vocab_size = 256;  // without "</s>"
  GenerateParams params = Text("a</s>");
  EXPECT_TRUE(Validate(params, model).ok());
  params.prompt.options.parse_special_tokens = true;
  EXPECT_EQ(Refusal(Validate(params, model)),
            "text holds token 256 of the tokenizer, which the model does not have; allowed: tokens "
            "from 0 to 255");
}

// Form C makes one byte of four at most: 62 tokens of up to 4 bytes each, and the begin token.
TEST(ValidateGenerateTest, ATextThatIsSurelyTooLongIsRefusedBeforeItIsNormalized) {
  Json json = BeginAndEndJson();
  json["normalizer"] = {{"type", "NFC"}};
  const ModelInfo model =
      ModelWith(checkpoint::ParseTokenizerJson(json.dump(), "tokenizer.json", {}));
  ASSERT_EQ(model.tokenizer->max_token_bytes(), 4);
  EXPECT_EQ(Refusal(Validate(Text(std::string(62 * 4, 'a')), model)),
            "text is 249 tokens with the begin token; allowed: at most 63, as this model's "
            "maximum context length is 64 tokens, with a new token");
  EXPECT_EQ(Refusal(Validate(Text(std::string(62 * 4 + 1, 'a')), model)),
            "text is at least 64 tokens with the begin token; allowed: at most 63, as this model's "
            "maximum context length is 64 tokens, with a new token");
}

TEST(ValidateGenerateTest, TheBeginTokenIsPutAsAsked) {
  GenerateParams params = Text("a");
  for (const std::optional<bool> asked : {std::optional<bool>(), std::optional(true)}) {
    params.prompt.options.begin_token = asked;
    const Result<ValidRequest> valid = Validate(params, SmallModelInfo());
    ASSERT_TRUE(valid.ok());
    EXPECT_THAT(valid.value().request.prompt, ElementsAre(kBeginToken, 'a'));
    EXPECT_TRUE(valid.value().begin_token);
  }
  EXPECT_EQ(Refusal(Validate(params, WithoutBeginToken())),
            "begin_token is true, but the model's tokenizer puts no token before texts; allowed: "
            "false");
  params.prompt.options.begin_token = false;
  for (const ModelInfo& model : {SmallModelInfo(), WithoutBeginToken()}) {
    const Result<ValidRequest> valid = Validate(params, model);
    ASSERT_TRUE(valid.ok());
    EXPECT_THAT(valid.value().request.prompt, ElementsAre('a'));
    EXPECT_FALSE(valid.value().begin_token);
  }
  params.prompt.input = "";
  EXPECT_EQ(Refusal(Validate(params, SmallModelInfo())),
            "text is no token, and no begin token is put before it; allowed: some text");
  const std::string too_long(64, 'a');
  params.prompt.input = too_long;
  EXPECT_THAT(Refusal(Validate(params, SmallModelInfo())),
              testing::StartsWith("text is at least 64 tokens; allowed: at most 63"));
}

TEST(ValidateGenerateTest, TokensAreTakenAsTheyAre) {
  const std::vector<int32_t> ids = {'a'};
  GenerateParams params;
  params.prompt.input = std::span<const int32_t>(ids);
  params.prompt.options.begin_token = false;
  EXPECT_TRUE(Validate(params, SmallModelInfo()).ok());
  params.prompt.options.begin_token = true;
  EXPECT_EQ(Refusal(Validate(params, SmallModelInfo())),
            "begin_token is true; allowed: with text alone");
  params.prompt.options.parse_special_tokens = true;
  EXPECT_EQ(Refusal(Validate(ScoreParams{.model = "", .inputs = {{.input = "a"}, params.prompt}},
                             SmallModelInfo())),
            "inputs[1].parse_special_tokens is true; allowed: with text alone");
}

TEST(ValidateScoreTest, EachInputSaysHowItsTextBecomesTokens) {
  const auto valid = Validate(
      ScoreParams{.model = "",
                  .inputs = {{.input = "</s>", .options = {.parse_special_tokens = true}},
                             {.input = "</s>",
                              .options = {.parse_special_tokens = true, .begin_token = false}}}},
      WithSpecialTokens());
  ASSERT_TRUE(valid.ok());
  EXPECT_THAT(valid.value()[0].request.prompt, ElementsAre(257, 256));
  EXPECT_THAT(valid.value()[1].request.prompt, ElementsAre(256));
  EXPECT_EQ(
      Refusal(Validate(
          ScoreParams{.model = "",
                      .inputs = {{.input = "a"}, {.input = "a", .options = {.begin_token = true}}}},
          WithoutBeginToken())),
      "inputs[1].begin_token is true, but the model's tokenizer puts no token before texts; "
      "allowed: false");
}

// Puts a space, token 0, before every text, which decoding drops; bytes are tokens.
class SpaceTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override {
    std::vector<int32_t> tokens = {0};
    for (const TextPart& part : parts)
      tokens.insert(tokens.end(), part.text.begin(), part.text.end());
    return tokens;
  }
  std::string Decode(int32_t token) const override {
    return std::string(1, token == 0 ? ' ' : static_cast<char>(token));
  }
  bool drops_leading_space() const override { return true; }
  std::string_view kind() const override { return "test"; }
  int32_t vocab_size() const override { return 128; }
  std::optional<int32_t> begin_token() const override { return std::nullopt; }
  std::span<const int32_t> end_tokens() const override {
    static constexpr int32_t kEnds[] = {1};
    return kEnds;
  }
};

TEST(TokenizeTest, PiecesAreWhatTokensStandForWhereTheyStand) {
  TokenizeParams params;
  params.text = "a\u00e9";
  const TokenizedText ids = Tokenize(params, SmallModelInfo()).value();
  EXPECT_THAT(ids.tokens, ElementsAre(kBeginToken, 'a', 0xC3, 0xA9));
  EXPECT_EQ(ids.pieces, "");
  EXPECT_THAT(ids.offsets, IsEmpty());
  params.pieces = true;
  const TokenizedText pieces = Tokenize(params, SmallModelInfo()).value();
  EXPECT_EQ(pieces.tokens, ids.tokens);
  EXPECT_EQ(pieces.pieces, params.text);
  EXPECT_THAT(pieces.offsets, ElementsAre(0, 0, 1, 2)) << "the begin token stands for nothing";

  params.text = "a<s>b";
  params.options = {.parse_special_tokens = true, .begin_token = false};
  const TokenizedText special = Tokenize(params, WithSpecialTokens()).value();
  EXPECT_THAT(special.tokens, ElementsAre('a', 257, 'b'));
  EXPECT_EQ(special.pieces, "ab");
  EXPECT_THAT(special.offsets, ElementsAre(0, 1, 1));

  params.text = " a b";
  params.options = {};
  const ModelInfo model = ModelWith(std::make_shared<SpaceTokenizer>());
  const TokenizedText spaces = Tokenize(params, model).value();
  EXPECT_THAT(spaces.tokens, ElementsAre(0, ' ', 'a', ' ', 'b'));
  EXPECT_EQ(spaces.pieces, params.text);
  EXPECT_THAT(spaces.offsets, ElementsAre(0, 0, 1, 2, 3));

  params.options.begin_token = true;
  EXPECT_EQ(Refusal(Tokenize(params, model)),
            "begin_token is true, but the model's tokenizer puts no token before texts; allowed: "
            "false");
}

TEST(TokenizeTest, ATextWhosePiecesAreAskedForIsBounded) {
  const std::string most(1 << 19, 'a'), more = most + "a";
  TokenizeParams params;
  params.text = more;
  EXPECT_EQ(Tokenize(params, SmallModelInfo()).value().tokens.size(), more.size() + 1);
  params.pieces = true;
  EXPECT_EQ(Refusal(Tokenize(params, SmallModelInfo())),
            "text is 524289 bytes long; allowed with pieces: at most 524288");
  params.text = most;
  EXPECT_EQ(Tokenize(params, SmallModelInfo()).value().pieces, most);
}

TEST(ValidateScoreTest, AsksForNoTokens) {
  const std::vector<int32_t> ids = {'a', 258};
  const auto validate = [&](const std::vector<Prompt>& inputs, int32_t priority = 0) {
    return Validate(ScoreParams{.model = "", .inputs = inputs, .priority = priority},
                    SmallModelInfo());
  };
  const std::span<const int32_t> one = std::span(ids).first(1);
  const auto valid = validate({{.input = "ab"}, {.input = one}}, 3);
  ASSERT_TRUE(valid.ok());
  ASSERT_THAT(valid.value(), testing::SizeIs(2));
  for (const ValidRequest& request : valid.value()) {
    EXPECT_EQ(request.request.prompt_logprobs, 0);
    EXPECT_EQ(request.request.max_new_tokens, 0);
    EXPECT_EQ(request.request.priority, serving::Priority::kLow);
  }
  EXPECT_THAT(valid.value()[0].request.prompt, ElementsAre(kBeginToken, 'a', 'b'));
  EXPECT_THAT(valid.value()[1].request.prompt, ElementsAre('a'));
  EXPECT_EQ(valid.value()[1].prompt_field, "inputs[1].tokens");

  EXPECT_TRUE(validate(std::vector<Prompt>(64, {.input = "a"})).ok());
  struct Case {
    std::string name;
    std::vector<Prompt> inputs;
    int32_t priority;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"too many inputs", std::vector<Prompt>(65, {.input = "a"}), 0,
       "inputs has more than 64 entries; allowed: at most 64"},
      {"no input", {}, 0, "inputs has 0 entries; allowed: 1 to 64"},
      {"an empty input", {{.input = "a"}, {}}, 0, "inputs[1] is missing; allowed: text or tokens"},
      {"an unknown token",
       {{.input = std::span<const int32_t>(ids)}},
       0,
       "inputs[0].tokens.ids[1] is 258; allowed: 0 to 257"},
      {"a negative priority", {{.input = "a"}}, -1, "priority is -1; allowed: 0 to 3"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(Refusal(validate(c.inputs, c.priority)), c.message);
  }
}

TEST(RejectionTest, SaysWhatWouldHaveFitted) {
  struct Case {
    std::string name;
    serving::SubmitStatus status;
    RequestSize size;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"a text with the begin token",
       serving::SubmitStatus::kPromptTooLong,
       {"text", true, 64, 3},
       "text is 64 tokens with the begin token; allowed: at most 63, as this model's maximum "
       "context length is 64 tokens, with a new token"},
      {"tokens without new ones",
       serving::SubmitStatus::kPromptTooLong,
       {"tokens", false, 65, 0},
       "tokens is 65 tokens; allowed: at most 64, as this model's maximum context length is 64 "
       "tokens"},
      {"a small cache",
       serving::SubmitStatus::kNeverFits,
       {"text", true, 33, 1},
       "text is 33 tokens with the begin token; allowed: at most 32, as this model's maximum "
       "context length is 32 tokens (its key/value cache)"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(Rejection(c.status, c.size, SmallModelInfo()).Message(), c.message);
  }
}

TEST(RejectionTest, HasACodeAndAReason) {
  struct Case {
    serving::SubmitStatus status;
    ErrorCode code;
    std::string reason;
    bool has_retry_delay;
  };
  const std::vector<Case> cases = {
      {serving::SubmitStatus::kNeverFits, ErrorCode::kInvalidArgument, "CONTEXT_LENGTH_EXCEEDED",
       false},
      {serving::SubmitStatus::kStopping, ErrorCode::kUnavailable, "DRAINING", false},
      {serving::SubmitStatus::kQueueFull, ErrorCode::kResourceExhausted, "QUEUE_FULL", true},
      {serving::SubmitStatus::kQueueTimeout, ErrorCode::kResourceExhausted, "QUEUE_TIMEOUT", true},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.reason);
    const Error error = Rejection(c.status, {"text", true, 33, 1}, SmallModelInfo());
    EXPECT_EQ(error.code, c.code);
    EXPECT_EQ(error.reason, c.reason);
    EXPECT_EQ(error.retry_delay > milliseconds(0), c.has_retry_delay);
  }
}

TEST(ValidatePageSizeTest, MoreThanTheMostIsTheMost) {
  struct Case {
    std::string name;
    int32_t asked;
    size_t size;
  };
  const std::vector<Case> cases = {
      {"the default", 0, 100},
      {"the least", 1, 1},
      {"the most", 1000, 1000},
      {"more than the most", 1001, 1000},
      {"the largest number", std::numeric_limits<int32_t>::max(), 1000},
  };
  for (const Case& c : cases) EXPECT_EQ(ValidatePageSize(c.asked).value(), c.size) << c.name;
  EXPECT_THAT(Refusal(ValidatePageSize(-1)), HasSubstr("page_size is -1"));
}

TEST(ValidateIntervalTest, FromFiftyMillisecondsToAnHour) {
  struct Case {
    std::string name;
    std::optional<IntervalFields> asked;
    milliseconds interval;
  };
  const std::vector<Case> cases = {
      {"the default", std::nullopt, milliseconds(1000)},
      {"the least", {{0, 50'000'000}}, milliseconds(50)},
      {"rounded down", {{1, 999'999'999}}, milliseconds(1999)},
      {"the most", {{3600, 0}}, milliseconds(3'600'000)},
  };
  for (const Case& c : cases) EXPECT_EQ(ValidateInterval(c.asked).value(), c.interval) << c.name;
}

TEST(ValidateIntervalTest, RefusesOthers) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  struct Case {
    std::string name;
    IntervalFields asked;
  };
  const std::vector<Case> cases = {
      {"zero", {0, 0}},
      {"a nanosecond too short", {0, 49'999'999}},
      {"negative", {-1, 0}},
      {"a nanosecond too long", {3600, 1}},
      {"a second too long", {3601, 0}},
      {"the largest number", {kMax, 0}},
      {"the least number", {kMin, 0}},
      {"the least nanoseconds", {0, std::numeric_limits<int32_t>::min()}},
      {"a second of nanoseconds", {0, 1'000'000'000}},
      {"negative nanoseconds", {1, -1'000'000'000}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(Refusal(ValidateInterval(c.asked)), "interval is " + std::to_string(c.asked.seconds) +
                                                      " s and " + std::to_string(c.asked.nanos) +
                                                      " ns; allowed: 50 to 3600000 ms");
  }
}

TEST(ErrorTest, QuotesWhatFitsIntoAHeader) {
  EXPECT_EQ(Quote("mqa"), "\"mqa\"");
  EXPECT_EQ(Quote(std::string(1000, 'a')), '"' + std::string(64, 'a') + "...\"");
  // No part of a character, and nothing that a terminal or a log would obey.
  EXPECT_EQ(Quote(std::string(63, 'a') + "\u00e9"), '"' + std::string(63, 'a') + "...\"");
  EXPECT_EQ(Quote("a\nb\x1b[2J\xff"), R"("a\x0ab\x1b[2J\xff")");
  const Error error = ModelNotFound("mqa", "mha, gqa");
  EXPECT_EQ(error.Message(), "model \"mqa\" is not loaded; loaded: mha, gqa");
  EXPECT_EQ(error.metadata.at("model"), "mqa");
}

}  // namespace
}  // namespace triptych::server::validation_test
