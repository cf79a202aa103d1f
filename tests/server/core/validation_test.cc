#include "server/core/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/request_limits.h"
#include "tests/server/core/served_model.h"

namespace triptych {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GenerateParams Text(std::string_view text) {
  GenerateParams params;
  params.prompt = text;
  return params;
}

template <typename T>
std::string Refusal(const Result<T>& result) {
  if (result.ok()) return "was accepted";
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(result.error().Message(), result.error().field + " " + result.error().description);
  return result.error().Message();
}

TEST(ValidateGenerateTest, WhatIsAbsentIsTheEnginesDefault) {
  const Result<ValidRequest> valid = Validate(Text("ab"), SmallServedModel());
  ASSERT_TRUE(valid.ok());
  const Request& request = valid.value().request;
  EXPECT_THAT(request.prompt, ElementsAre(kBeginToken, 'a', 'b'));
  EXPECT_EQ(valid.value().prompt_field, "text");
  EXPECT_EQ(request.max_new_tokens, 32 + 1 - 3) << "as many as the cache holds";
  EXPECT_EQ(request.sampling.temperature, SamplingParams().temperature);
  EXPECT_EQ(request.sampling.top_p, SamplingParams().top_p);
  EXPECT_THAT(request.sampling.logit_bias, IsEmpty());
  EXPECT_THAT(request.stop, IsEmpty());
  EXPECT_FALSE(request.logprobs.has_value());
  EXPECT_FALSE(request.ignore_eos);
  EXPECT_FALSE(request.prompt_logprobs);

  ServedModel model = SmallServedModel();
  model.pool_positions = 1000;
  EXPECT_EQ(Validate(Text("ab"), model).value().request.max_new_tokens, 64 - 3)
      << "as many as the context holds";
  EXPECT_EQ(Validate(Text(std::string(200, 'a')), model).value().request.max_new_tokens, 1)
      << "the engine refuses the prompt";
}

TEST(ValidateGenerateTest, WhatIsGivenIsTaken) {
  const std::vector<int32_t> ids = {1, 257};
  GenerateParams params;
  params.prompt = std::span<const int32_t>(ids);
  params.max_new_tokens = 9;
  params.sampling = {.temperature = 0.5f,
                     .top_k = 3,
                     .top_p = 0.25f,
                     .min_p = 0.125f,
                     .repetition_penalty = 2,
                     .presence_penalty = -1,
                     .frequency_penalty = 1,
                     .logit_bias = {{65, 4}, {66, -4}},
                     .seed = 11};
  params.stop = {"a", "b"};
  params.logprobs = 0;
  params.ignore_eos = true;
  const Result<ValidRequest> valid = Validate(params, SmallServedModel());
  ASSERT_TRUE(valid.ok());
  const Request& request = valid.value().request;
  EXPECT_EQ(valid.value().prompt_field, "tokens");
  EXPECT_THAT(request.prompt, ElementsAre(kBeginToken, 1, 257));
  EXPECT_EQ(request.max_new_tokens, 9);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.min_p, 0.125f);
  EXPECT_EQ(request.sampling.repetition_penalty, 2);
  EXPECT_EQ(request.sampling.presence_penalty, -1);
  EXPECT_EQ(request.sampling.frequency_penalty, 1);
  EXPECT_EQ(request.sampling.logit_bias.at(66), -4);
  EXPECT_EQ(request.seed, 11u);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_EQ(request.logprobs, 0);
  EXPECT_TRUE(request.ignore_eos);
}

TEST(ValidateGenerateTest, AnErrorNamesFieldValueAndWhatIsAllowed) {
  const ServedModel model = SmallServedModel();
  const std::vector<int32_t> ids = {0, 258};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::function<void(GenerateParams&)> spoil;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto& p) { p.prompt = {}; }, "prompt is missing; allowed: text or tokens"},
      {[&](auto& p) { p.prompt = std::span<const int32_t>(ids); },
       "tokens.ids[1] is 258; allowed: 0 to 257"},
      {[](auto& p) { p.max_new_tokens = 0; }, "max_new_tokens is 0; allowed: 1 to 2147483647"},
      {[](auto& p) { p.max_new_tokens = int64_t{1} << 31; },
       "max_new_tokens is 2147483648; allowed: 1 to 2147483647"},
      {[](auto& p) { p.sampling.temperature = 100.00001f; },
       "sampling.temperature is 100.00001; allowed: 0 to 100"},
      {[&](auto& p) { p.sampling.temperature = nan; },
       "sampling.temperature is nan; allowed: 0 to 100"},
      {[](auto& p) { p.sampling.top_k = -1; }, "sampling.top_k is -1; allowed: 0 to 2147483647"},
      {[](auto& p) { p.sampling.top_p = 0; }, "sampling.top_p is 0; allowed: above 0 to 1"},
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
      {[](auto& p) { p.stop.resize(17, "a"); }, "stop has 17 strings; allowed: 16"},
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
  // Of several, the first.
  GenerateParams params = Text("x");
  params.logprobs = -1;
  params.sampling.top_p = 2;
  params.sampling.min_p = 2;
  EXPECT_THAT(Refusal(Validate(params, model)), HasSubstr("sampling.top_p"));
}

TEST(ValidateScoreTest, AsksForNoTokens) {
  const Result<ValidRequest> valid =
      Validate(ScoreParams{.model = "", .input = "ab"}, SmallServedModel());
  ASSERT_TRUE(valid.ok());
  EXPECT_EQ(valid.value().request.prompt_logprobs, 0);
  EXPECT_EQ(valid.value().request.max_new_tokens, 0);
  EXPECT_EQ(Refusal(Validate(ScoreParams{}, SmallServedModel())),
            "input is missing; allowed: text or tokens");
}

TEST(RejectionTest, SaysWhatWouldHaveFitted) {
  const ServedModel model = SmallServedModel();
  const auto message = [&](SubmitStatus status, const RequestSize& size) {
    return Rejection(status, size, model).Message();
  };
  EXPECT_EQ(message(SubmitStatus::kPromptTooLong, {"text", 64, 3}),
            "text is 64 tokens with the begin token; allowed: at most 63, so that the model's "
            "context holds a new token too");
  EXPECT_EQ(message(SubmitStatus::kPromptTooLong, {"tokens", 65, 0}),
            "tokens is 65 tokens with the begin token; allowed: at most 64, the model's context");
  EXPECT_EQ(message(SubmitStatus::kNeverFits, {"text", 33, 1}),
            "text is 33 tokens with the begin token; allowed: at most 32, the model's key/value "
            "cache");
  EXPECT_EQ(message(SubmitStatus::kNeverFits, {"text", 4, 30}),
            "max_new_tokens is 30; allowed: at most 29, as the model's key/value cache has 32 "
            "positions and the prompt is 4 tokens with the begin token");
  EXPECT_EQ(Rejection(SubmitStatus::kStopping, {}, model).code, ErrorCode::kUnavailable);
  const Error full = Rejection(SubmitStatus::kQueueFull, {}, model);
  EXPECT_EQ(full.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(full.reason, "QUEUE_FULL");
  EXPECT_GT(full.retry_delay, milliseconds(0));
}

TEST(ValidatePageTest, SizesAndTokens) {
  EXPECT_EQ(ValidatePage({}).value().size, 100u);
  const PageRange range =
      ValidatePage({.model = "", .page_size = 1000, .page_token = "17"}).value();
  EXPECT_EQ(range.size, 1000u);
  EXPECT_EQ(range.after, 17u);
  EXPECT_EQ(Refusal(ValidatePage({.model = "", .page_size = 1001, .page_token = ""})),
            "page_size is 1001; allowed: 0 to 1000");
  EXPECT_THAT(Refusal(ValidatePage({.model = "", .page_size = -1, .page_token = ""})),
              HasSubstr("page_size is -1"));
  for (const std::string token : {"x", "1x", "-1", " 1", "99999999999999999999999"}) {
    EXPECT_EQ(Refusal(ValidatePage({.model = "", .page_size = 0, .page_token = token})),
              "page_token " + Quote(token) + " is not one this server gave");
  }
}

TEST(ValidateIntervalTest, FromFiftyMillisecondsToAnHour) {
  EXPECT_EQ(ValidateInterval(std::nullopt).value(), milliseconds(1000));
  EXPECT_EQ(ValidateInterval({{0, 50'000'000}}).value(), milliseconds(50));
  EXPECT_EQ(ValidateInterval({{1, 999'999'999}}).value(), milliseconds(1999));
  EXPECT_EQ(ValidateInterval({{3600, 0}}).value(), milliseconds(3'600'000));
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  for (const IntervalFields& interval :
       std::vector<IntervalFields>{{0, 0},
                                   {0, 49'999'999},
                                   {-1, 0},
                                   {3600, 1},
                                   {3601, 0},
                                   {kMax, 0},
                                   {kMin, 0},
                                   {0, std::numeric_limits<int32_t>::min()},
                                   {0, 1'000'000'000},
                                   {1, -1'000'000'000}}) {
    EXPECT_EQ(Refusal(ValidateInterval(interval)),
              "interval is " + std::to_string(interval.seconds) + " s and " +
                  std::to_string(interval.nanos) + " ns; allowed: 50 to 3600000 ms");
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
}  // namespace triptych
