// Tests of InferenceService over gRPC: responses to requests.

#include <cmath>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "engine/text/text_stream.h"
#include "tests/server/test_server.h"

namespace triptych::server::generate_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Inference = v1::InferenceService::Stub;

constexpr int64_t kBlockPositions = 16;  // the default

std::string Detokenize(const TestServer& server, const std::string& model,
                       const std::vector<int32_t>& tokens) {
  v1::DetokenizeRequest request;
  request.set_model(model);
  request.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  v1::DetokenizeResponse response;
  const auto status = CallUnary(server.inference(), &Inference::Detokenize, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.text();
}

grpc::Status GenerateStatus(const TestServer& server, const v1::GenerateRequest& request) {
  GenerateCall generation(server.inference(), request);
  const grpc::Status status = generation.Finish();
  EXPECT_EQ(status.ok(), !generation.messages().empty());
  return status;
}

// Samples at random from `tokens` only: their bias excludes all others.
v1::GenerateRequest RandomChoice(const std::vector<int32_t>& tokens, int32_t max_new_tokens,
                                 uint64_t seed) {
  v1::GenerateRequest request = Greedy("mha", "x", max_new_tokens);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(seed);
  for (const int32_t token : tokens)
    (*request.mutable_sampling()->mutable_logit_bias())[token] = 500;
  return request;
}

// Checks that every finished stream must pass.
void CheckStream(const TestServer& server, const TestModel& model, const GenerateCall& stream) {
  for (const v1::GenerateResponse& message : stream.messages()) {
    EXPECT_EQ(message.has_completion(), &message == &stream.messages().back());
    EXPECT_EQ(ToValidUtf8(message.text()), message.text());
  }
  const std::vector<int32_t> tokens = stream.tokens();
  const v1::Usage& usage = stream.completion().usage();
  EXPECT_EQ(usage.generated_tokens(), std::ssize(tokens));
  EXPECT_FALSE(stream.completion().request_id().empty());
  if (stream.completion().stop().empty()) {
    EXPECT_EQ(stream.text(), Detokenize(server, model.name, tokens));
  }

  // The last token has no row in the cache.
  const v1::KvCacheUsage& cache = usage.kv_cache();
  const int64_t block_bytes = kBlockPositions * BytesPerPosition(model.config);
  EXPECT_EQ(cache.positions(), usage.prompt_tokens() + usage.generated_tokens() - 1);
  EXPECT_EQ(cache.bytes_per_position(), BytesPerPosition(model.config));
  EXPECT_EQ(cache.used_bytes(), cache.positions() * BytesPerPosition(model.config));
  EXPECT_EQ(cache.mha_used_bytes(), cache.positions() * MhaBytesPerPosition(model.config));
  EXPECT_EQ(cache.allocated_bytes(),
            (cache.positions() + kBlockPositions - 1) / kBlockPositions * block_bytes);
  EXPECT_GE(cache.peak_allocated_bytes(), cache.allocated_bytes());
}

class GenerateOfEachKind : public testing::TestWithParam<int> {
 protected:
  const TestModel model_ = OneOfEachKind()[GetParam()];
};

TEST_P(GenerateOfEachKind, StreamsAndAccounts) {
  const TestServer server;
  v1::GenerateRequest request = Greedy(model_.name, "To be", 40);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(7);
  request.set_logprobs(3);
  const auto stream = Generate(server.inference(), request);

  CheckStream(server, model_, *stream);
  EXPECT_THAT(stream->tokens(), SizeIs(40));
  const v1::Completion& completion = stream->completion();
  EXPECT_EQ(completion.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(completion.seed(), 7);
  EXPECT_EQ(completion.stop(), "");
  const v1::Usage& usage = completion.usage();
  EXPECT_EQ(usage.prompt_tokens(), 1 + 5);  // the begin token and a byte each
  EXPECT_EQ(usage.preemptions(), 0);
  EXPECT_EQ(usage.kv_cache().peak_allocated_bytes(), usage.kv_cache().allocated_bytes());
  EXPECT_GT(usage.prefill_time().nanos() + usage.prefill_time().seconds(), 0);
  EXPECT_GT(usage.decode_time().nanos() + usage.decode_time().seconds(), 0);

  const std::vector<int32_t> tokens = stream->tokens();
  const std::vector<v1::TokenLogprobs> logprobs = stream->logprobs();
  ASSERT_EQ(logprobs.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(logprobs[i].chosen().token_id(), tokens[i]);
    ASSERT_EQ(logprobs[i].top_size(), 3);
    double mass = 0;
    double likelier = std::numeric_limits<double>::infinity();
    for (const v1::TokenLogprob& top : logprobs[i].top()) {
      EXPECT_LE(top.logprob(), likelier);
      if (top.token_id() == tokens[i]) {
        EXPECT_EQ(top.logprob(), logprobs[i].chosen().logprob());
      }
      likelier = top.logprob();
      mass += std::exp(top.logprob());
    }
    EXPECT_LE(logprobs[i].chosen().logprob(), logprobs[i].top(0).logprob());
    // Three of 258 tokens; each logarithm is rounded to 2^-24 of its value.
    EXPECT_LT(mass, 1 + 1e-5);
  }
  EXPECT_EQ(server.Stats(model_.name).used_bytes(), 0);
}

TEST_P(GenerateOfEachKind, TakesTheLikeliestTokenAtTemperatureZero) {
  const TestServer server;
  v1::GenerateRequest request = Greedy(model_.name, "To be", 30);
  request.set_logprobs(1);
  const auto stream = Generate(server.inference(), request);
  ASSERT_THAT(stream->logprobs(), SizeIs(30));
  for (const v1::TokenLogprobs& logprobs : stream->logprobs()) {
    EXPECT_EQ(logprobs.chosen().token_id(), logprobs.top(0).token_id());
  }
}

TEST_P(GenerateOfEachKind, ASeedDecidesTheTokens) {
  const TestServer server;
  v1::GenerateRequest request = Greedy(model_.name, "To be", 40);
  request.mutable_sampling()->clear_temperature();
  request.mutable_sampling()->set_seed(1);
  const auto first = Generate(server.inference(), request);
  EXPECT_EQ(Generate(server.inference(), request)->tokens(), first->tokens());
  request.mutable_sampling()->set_seed(2);
  EXPECT_NE(Generate(server.inference(), request)->tokens(), first->tokens());

  request.mutable_sampling()->clear_seed();
  const auto drawn = Generate(server.inference(), request);
  request.mutable_sampling()->set_seed(drawn->completion().seed());
  EXPECT_EQ(Generate(server.inference(), request)->tokens(), drawn->tokens());
}

TEST(GenerateTest, AbsentFieldsHaveTheModelsDefaults) {
  const TestModel with_defaults = OwnDefaultsModel(
      R"({"do_sample": true, "temperature": 50, "top_k": 7, "top_p": 0.9, "min_p": 0.25,
          "repetition_penalty": 3, "max_new_tokens": 12})");
  const TestServer server({.models = {OneOfEachKind()[0], with_defaults}});
  const auto tokens = [&](const std::string& model, v1::GenerateRequest request) {
    request.set_model(model);
    return Generate(server.inference(), request)->tokens();
  };
  v1::GenerateRequest silent;
  silent.set_text("To be");
  silent.set_ignore_eos(true);
  silent.mutable_sampling()->set_seed(5);

  v1::GenerateRequest spoken = silent;
  spoken.set_max_new_tokens(12);
  v1::SamplingParams& sampling = *spoken.mutable_sampling();
  EXPECT_NE(tokens("own", silent), tokens("mha", spoken));
  sampling.set_temperature(50);
  sampling.set_top_k(7);
  sampling.set_top_p(0.9f);
  sampling.set_min_p(0.25f);
  sampling.set_repetition_penalty(3);
  EXPECT_EQ(tokens("own", silent), tokens("mha", spoken));

  // A request's fields override the model's defaults, even with the server's default values.
  sampling.set_temperature(1);
  sampling.set_top_k(0);
  sampling.set_top_p(1);
  sampling.set_min_p(0);
  sampling.set_repetition_penalty(1);
  spoken.set_max_new_tokens(20);
  silent.set_max_new_tokens(20);
  EXPECT_THAT(tokens("own", spoken), SizeIs(20));
  EXPECT_EQ(tokens("own", spoken), tokens("mha", silent));
}

TEST_P(GenerateOfEachKind, ScoreAgreesWithGenerate) {
  // One scores the prompt in chunks of 8 rows.
  for (const int64_t max_batch_tokens : {512, 8}) {
    const TestServer server({.max_batch_tokens = max_batch_tokens, .max_running = 8});
    v1::GenerateRequest request = Greedy(model_.name, "", 30);
    for (const int32_t id : {84, 111, 32, 98, 101}) request.mutable_tokens()->add_ids(id);
    request.set_logprobs(0);
    const auto stream = Generate(server.inference(), request);

    v1::ScoreRequest score;
    score.set_model(model_.name);
    *score.add_inputs()->mutable_tokens() = request.tokens();
    const std::vector<int32_t> tokens = stream->tokens();
    score.mutable_inputs(0)->mutable_tokens()->mutable_ids()->Add(tokens.begin(), tokens.end());
    v1::ScoreResponse response;
    ASSERT_TRUE(CallUnary(server.inference(), &Inference::Score, score, &response).ok());

    ASSERT_EQ(response.results_size(), 1);
    const v1::ScoreResult& result = response.results(0);
    ASSERT_EQ(result.scored_tokens(), 34);  // all except the first
    ASSERT_EQ(result.token_logprobs_size(), 34);
    double sum = 0;
    for (const float logprob : result.token_logprobs()) sum += logprob;
    EXPECT_DOUBLE_EQ(result.log_likelihood(), sum);
    const std::vector<v1::TokenLogprobs> generated = stream->logprobs();
    for (size_t i = 0; i < generated.size(); ++i) {
      // The same float32 sums in another order (rows one by one, or many together): errors of about
      // 2^-24 of logits around 10, with a margin of two orders of magnitude.
      EXPECT_NEAR(result.token_logprobs(4 + i), generated[i].chosen().logprob(), 1e-4);
      EXPECT_TRUE(generated[i].top().empty());
    }
    EXPECT_EQ(result.usage().prompt_tokens(), 35);
    EXPECT_EQ(result.usage().generated_tokens(), 0);
    EXPECT_EQ(result.usage().kv_cache().positions(), 35);
    EXPECT_EQ(result.usage().kv_cache().used_bytes(), 35 * BytesPerPosition(model_.config));
    EXPECT_EQ(server.Stats(model_.name).used_bytes(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(, GenerateOfEachKind, testing::Values(0, 1, 2),
                         [](const auto& kind) { return OneOfEachKind()[kind.param].name; });

TEST(GenerateTest, NeverSplitsACharacter) {
  const TestServer server;
  // Bytes of characters of one to four bytes, whole and broken.
  const std::vector<int32_t> bytes = {'a', 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80};
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto stream = Generate(server.inference(), RandomChoice(bytes, 60, seed));
    CheckStream(server, OneOfEachKind()[0], *stream);
    EXPECT_THAT(stream->tokens(), Each(testing::AnyOfArray(bytes)));
  }
}

TEST(GenerateTest, EndsBeforeAStopString) {
  const TestServer server;
  v1::GenerateRequest request = RandomChoice({'a', 'b'}, 60, 1);
  const std::string whole = Generate(server.inference(), request)->text();
  const size_t end = whole.find("abba");
  ASSERT_NE(end, whole.npos);
  request.add_stop("no such text");
  request.add_stop("abba");
  request.add_stop("abbaabbaabba");
  const auto stream = Generate(server.inference(), request);
  CheckStream(server, OneOfEachKind()[0], *stream);
  EXPECT_EQ(stream->text(), whole.substr(0, end));
  EXPECT_EQ(stream->completion().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(stream->completion().stop(), "abba");
  EXPECT_LT(stream->tokens().size(), whole.size());
}

TEST(GenerateTest, EndsAtTheEndTokenUnlessToldToIgnoreIt) {
  const TestServer server;
  v1::GenerateRequest request = Greedy("mla", "x", 5);
  (*request.mutable_sampling()->mutable_logit_bias())[257] = 1000;
  EXPECT_THAT(Generate(server.inference(), request)->tokens(), SizeIs(5));
  request.set_ignore_eos(false);
  const auto stream = Generate(server.inference(), request);
  EXPECT_THAT(stream->tokens(), SizeIs(1));
  EXPECT_EQ(stream->text(), "");
  EXPECT_EQ(stream->completion().finish_reason(), v1::FINISH_REASON_STOP);
  CheckStream(server, OneOfEachKind()[2], *stream);
}

TEST(GenerateTest, EndsWithTheContext) {
  const TestServer server;
  for (const int32_t max_new_tokens : {0, 1000, std::numeric_limits<int32_t>::max()}) {
    const auto stream = Generate(server.inference(), Greedy("gqa", "abc", max_new_tokens));
    EXPECT_THAT(stream->tokens(), SizeIs(64 - 4));
    EXPECT_EQ(stream->completion().finish_reason(), v1::FINISH_REASON_LENGTH);
  }
}

TEST(GenerateTest, WithoutALimitGoesOnAsFarAsThePoolHolds) {
  TestModel model = OneOfEachKind()[0];
  model.kv_cache_bytes = 2 * kBlockPositions * BytesPerPosition(model.config);
  const TestServer server({.models = {model}});
  const auto stream = Generate(server.inference(), Greedy("", "abc", 0));
  CheckStream(server, model, *stream);
  EXPECT_EQ(stream->completion().usage().kv_cache().positions(), 2 * kBlockPositions);

  const auto too_many = Generate(server.inference(), Greedy("", "abc", 30));
  EXPECT_THAT(too_many->tokens(), SizeIs(29)) << "the last token takes no position";
  EXPECT_EQ(too_many->completion().finish_reason(), v1::FINISH_REASON_LENGTH);
  const grpc::Status too_long = GenerateStatus(server, Greedy("", std::string(32, 'a'), 0));
  EXPECT_TRUE(RefusesField(too_long, "text"));
  EXPECT_EQ(too_long.error_message(),
            "text is 33 tokens with the begin token; allowed: at most 32, as this model's maximum "
            "context length is 32 tokens (its key/value cache)");
}

TEST(GenerateTest, TakesThePromptAsTextOrTokens) {
  const TestServer server;
  v1::GenerateRequest request = Greedy("mla", "h\u00e9llo", 20);
  const auto from_text = Generate(server.inference(), request);
  v1::TokenizeRequest tokenize;
  tokenize.set_model("mla");
  tokenize.set_text(request.text());
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(CallUnary(server.inference(), &Inference::Tokenize, tokenize, &tokens).ok());
  EXPECT_THAT(tokens.token_ids(), ElementsAre('h', 0xC3, 0xA9, 'l', 'l', 'o'));
  request.mutable_tokens()->add_ids(256);  // the begin token, which is added only to text
  request.mutable_tokens()->mutable_ids()->MergeFrom(tokens.token_ids());
  const auto from_tokens = Generate(server.inference(), request);
  EXPECT_EQ(from_tokens->tokens(), from_text->tokens());
  EXPECT_EQ(from_tokens->completion().usage().prompt_tokens(), 7);

  // The begin token by itself is a prompt too.
  EXPECT_EQ(
      Generate(server.inference(), Greedy("mla", "", 3))->completion().usage().prompt_tokens(), 1);
}

TEST(GenerateTest, ManyStreamsAtOnceOnThreeModels) {
  // Room for three of ten requests at a time, so that they queue and are preempted.
  std::vector<TestModel> models = OneOfEachKind();
  for (TestModel& model : models) {
    model.kv_cache_bytes = 12 * kBlockPositions * BytesPerPosition(model.config);
  }
  TestServer server({.models = models});
  std::vector<std::thread> clients;
  std::vector<std::unique_ptr<GenerateCall>> streams(30);
  for (size_t i = 0; i < streams.size(); ++i) {
    clients.emplace_back([&, i] {
      v1::GenerateRequest request =
          Greedy(models[i % 3].name, std::string(1 + i, 'a' + static_cast<char>(i % 26)), 0);
      request.mutable_sampling()->set_temperature(1);
      streams[i] = Generate(server.inference(), request);
    });
  }
  for (std::thread& client : clients) client.join();

  std::set<std::string> ids;
  std::map<std::string, int64_t> preemptions;
  for (size_t i = 0; i < streams.size(); ++i) {
    CheckStream(server, models[i % 3], *streams[i]);
    const v1::Completion& completion = streams[i]->completion();
    EXPECT_EQ(completion.usage().prompt_tokens() + completion.usage().generated_tokens(), 64);
    ids.insert(completion.request_id());
    preemptions[models[i % 3].name] += completion.usage().preemptions();
  }
  EXPECT_THAT(ids, SizeIs(streams.size()));
  for (const TestModel& model : models) {
    const v1::KvCacheStats stats = server.Stats(model.name);
    EXPECT_EQ(stats.preemptions(), preemptions[model.name]);
    EXPECT_EQ(stats.running_sequences() + stats.waiting_sequences(), 0);
    EXPECT_EQ(stats.positions(), 0);
    EXPECT_EQ(stats.free_blocks() + stats.evictable_blocks(), 12);
    EXPECT_GE(stats.peak_allocated_bytes(), 4 * stats.block_bytes());
  }
}

TEST(GenerateTest, RefusesWhatIsOutOfRange) {
  const TestServer server;
  using Sampling = v1::SamplingParams;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::string field;
    std::function<void(v1::GenerateRequest&, Sampling&)> spoil;
  };
  const std::vector<Case> cases = {
      {"prompt", [](auto& request, auto&) { request.clear_text(); }},
      {"text", [](auto& request, auto&) { request.set_text(std::string(63, 'a')); }},
      {"tokens",
       [](auto& request, auto&) {
         for (int i = 0; i < 64; ++i) request.mutable_tokens()->add_ids(i);
       }},
      {"tokens.ids[1]",
       [](auto& request, auto&) {
         request.mutable_tokens()->add_ids(257);
         request.mutable_tokens()->add_ids(258);
       }},
      {"tokens.ids[0]", [](auto& request, auto&) { request.mutable_tokens()->add_ids(-1); }},
      {"tokens.ids", [](auto& request, auto&) { request.mutable_tokens(); }},
      {"n", [](auto& request, auto&) { request.set_n(0); }},
      {"n", [](auto& request, auto&) { request.set_n(17); }},
      {"min_new_tokens", [](auto& request, auto&) { request.set_min_new_tokens(4); }},
      {"prompt_logprobs", [](auto& request, auto&) { request.set_prompt_logprobs(21); }},
      {"priority",
       [](auto& request, auto&) { request.set_priority(static_cast<v1::Priority>(4)); }},
      {"stop_token_ids[0]", [](auto& request, auto&) { request.add_stop_token_ids(258); }},
      {"stop_token_ids",
       [](auto& request, auto&) {
         for (int i = 0; i < 65; ++i) request.add_stop_token_ids(1);
       }},
      {"sampling.allowed_token_ids",
       [](auto&, auto& sampling) {
         for (int i = 0; i < 1025; ++i) sampling.add_allowed_token_ids(1);
       }},
      {"sampling.logit_bias",
       [](auto&, auto& sampling) {
         for (int i = 0; i < 1025; ++i) (*sampling.mutable_logit_bias())[i] = 1;
       }},
      {"json_schema.properties.a.not",
       [](auto& request, auto&) {
         request.set_json_schema(R"({"properties": {"a": {"not": {}}}})");
       }},
      {"json_schema", [](auto& request, auto&) { request.set_json_schema("{"); }},
      {"regex", [](auto& request, auto&) { request.set_regex("(a"); }},
      {"choice.texts", [](auto& request, auto&) { request.mutable_choice(); }},
      {"choice.texts",
       [](auto& request, auto&) {
         for (int i = 0; i < 4097; ++i) request.mutable_choice()->add_texts(std::to_string(i));
       }},
      {"grammar", [](auto& request, auto&) { request.set_grammar("root ::= x"); }},
      {"max_new_tokens", [](auto& request, auto&) { request.set_max_new_tokens(0); }},
      {"max_new_tokens", [](auto& request, auto&) { request.set_max_new_tokens(-1); }},
      {"logprobs", [](auto& request, auto&) { request.set_logprobs(-1); }},
      {"logprobs", [](auto& request, auto&) { request.set_logprobs(21); }},
      {"stop[1]",
       [](auto& request, auto&) {
         request.add_stop(std::string("a"));
         request.add_stop(std::string());
       }},
      {"stop[0]", [](auto& request, auto&) { request.add_stop(std::string(257, 'a')); }},
      {"stop",
       [](auto& request, auto&) {
         for (int i = 0; i < 129; ++i) request.add_stop(std::string("a"));
       }},
      {"sampling.temperature", [](auto&, auto& sampling) { sampling.set_temperature(-0.1f); }},
      {"sampling.temperature", [](auto&, auto& sampling) { sampling.set_temperature(100.1f); }},
      {"sampling.temperature", [&](auto&, auto& sampling) { sampling.set_temperature(nan); }},
      {"sampling.top_k", [](auto&, auto& sampling) { sampling.set_top_k(-2); }},
      {"sampling.top_p", [](auto&, auto& sampling) { sampling.set_top_p(-0.1f); }},
      {"sampling.top_p", [](auto&, auto& sampling) { sampling.set_top_p(1.1f); }},
      {"sampling.top_p", [&](auto&, auto& sampling) { sampling.set_top_p(nan); }},
      {"sampling.min_p", [](auto&, auto& sampling) { sampling.set_min_p(-0.1f); }},
      {"sampling.min_p", [](auto&, auto& sampling) { sampling.set_min_p(1.1f); }},
      {"sampling.repetition_penalty",
       [](auto&, auto& sampling) { sampling.set_repetition_penalty(0); }},
      {"sampling.repetition_penalty",
       [](auto&, auto& sampling) { sampling.set_repetition_penalty(101); }},
      {"sampling.presence_penalty",
       [](auto&, auto& sampling) { sampling.set_presence_penalty(-101); }},
      {"sampling.frequency_penalty",
       [](auto&, auto& sampling) { sampling.set_frequency_penalty(101); }},
      {"sampling.frequency_penalty",
       [&](auto&, auto& sampling) { sampling.set_frequency_penalty(nan); }},
      {"sampling.logit_bias[258]",
       [](auto&, auto& sampling) { (*sampling.mutable_logit_bias())[258] = 1; }},
      {"sampling.logit_bias[-1]",
       [](auto&, auto& sampling) { (*sampling.mutable_logit_bias())[-1] = 1; }},
      {"sampling.logit_bias[65]",
       [](auto&, auto& sampling) { (*sampling.mutable_logit_bias())[65] = 1001; }},
  };
  for (const Case& c : cases) {
    v1::GenerateRequest request = Greedy("mha", "x", 3);
    c.spoil(request, *request.mutable_sampling());
    EXPECT_TRUE(RefusesField(GenerateStatus(server, request), c.field))
        << request.ShortDebugString();
  }
}

TEST(GenerateTest, SaysWhatIsOutOfRangeAndWhatIsAllowed) {
  const TestServer server;
  EXPECT_EQ(GenerateStatus(server, Greedy("mha", std::string(63, 'a'), 3)).error_message(),
            "text is at least 64 tokens with the begin token; allowed: at most 63, as this model's "
            "maximum context length is 64 tokens, with a new token");
  v1::GenerateRequest request = Greedy("mha", "x", 3);
  request.mutable_sampling()->set_temperature(100.00001f);
  EXPECT_EQ(GenerateStatus(server, request).error_message(),
            "sampling.temperature is 100.00001; allowed: 0 to 100");
  request = Greedy("mha", "x", 3);
  (*request.mutable_sampling()->mutable_logit_bias())[65] = 1001;
  EXPECT_EQ(GenerateStatus(server, request).error_message(),
            "sampling.logit_bias[65] is 1001; allowed: -1000 to 1000");
}

TEST(GenerateTest, TakesTheEndsOfEveryRange) {
  const TestServer server;
  v1::GenerateRequest request = Greedy("mha", "x", 3);
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_temperature(100);
  sampling.set_top_k(std::numeric_limits<int32_t>::max());
  sampling.set_top_p(1);
  sampling.set_min_p(1);
  sampling.set_repetition_penalty(100);
  sampling.set_presence_penalty(-100);
  sampling.set_frequency_penalty(100);
  sampling.set_seed(std::numeric_limits<uint64_t>::max());
  (*sampling.mutable_logit_bias())[0] = -1000;
  (*sampling.mutable_logit_bias())[257] = 1000;
  for (int i = 0; i < 16; ++i) request.add_stop(std::string(100, 'a'));
  request.set_logprobs(20);
  const auto stream = Generate(server.inference(), request);
  EXPECT_EQ(stream->completion().seed(), std::numeric_limits<uint64_t>::max());
  ASSERT_FALSE(stream->logprobs().empty());
  EXPECT_EQ(stream->logprobs()[0].top_size(), 20);

  // The longest prompt that leaves room for a token.
  EXPECT_EQ(Generate(server.inference(), Greedy("mha", std::string(62, 'a'), 0))->tokens().size(),
            1);
}

TEST(ScoreTest, RefusesWhatIsOutOfRange) {
  const TestServer server;
  v1::ScoreRequest request;
  request.set_model("mha");
  v1::ScoreResponse response;
  const auto score = [&] {
    return CallUnary(server.inference(), &Inference::Score, request, &response);
  };
  EXPECT_TRUE(RefusesField(score(), "inputs"));
  request.add_inputs()->mutable_tokens()->add_ids(258);
  EXPECT_TRUE(RefusesField(score(), "inputs[0].tokens.ids[0]"));
  request.mutable_inputs(0)->set_text(std::string(64, 'a'));
  EXPECT_TRUE(RefusesField(score(), "inputs[0].text"));
  EXPECT_EQ(
      score().error_message(),
      "inputs[0].text is at least 65 tokens with the begin token; allowed: at most 64, as this "
      "model's maximum context length is 64 tokens");
  request.mutable_inputs(0)->set_text(std::string(63, 'a'));  // fills the context
  EXPECT_TRUE(score().ok());
  EXPECT_EQ(response.results(0).scored_tokens(), 63);
}

TEST(ScoreTest, SeveralInputsAreScoredAsEachByItself) {
  // Two run at a time.
  const TestServer server({.max_running = 2});
  const std::vector<std::string> texts = {"To be", "", "or not to be", "that is the question"};
  const auto score = [&](const std::vector<std::string>& inputs) {
    v1::ScoreRequest request;
    request.set_model("gqa");
    for (const std::string& text : inputs) request.add_inputs()->set_text(text);
    v1::ScoreResponse response;
    const auto status = CallUnary(server.inference(), &Inference::Score, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  const v1::ScoreResponse together = score(texts);
  ASSERT_EQ(together.results_size(), 4);
  for (int i = 0; i < 4; ++i) {
    const v1::ScoreResponse alone = score({texts[i]});
    EXPECT_EQ(together.results(i).log_likelihood(), alone.results(0).log_likelihood());
    EXPECT_EQ(together.results(i).scored_tokens(), std::ssize(texts[i]));
  }
  EXPECT_EQ(score(std::vector<std::string>(64, "a")).results_size(), 64);
  EXPECT_EQ(server.Stats("gqa").used_bytes(), 0);
}

TEST(GenerateTest, EachChoiceEqualsARequestWithItsSeed) {
  const TestServer server;
  v1::GenerateRequest request = Greedy("mla", "To be", 20);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(7);
  request.set_n(4);
  request.set_echo(true);
  const auto stream = Generate(server.inference(), request);
  std::map<int32_t, std::string> texts;
  std::map<int32_t, v1::Completion> ends;
  for (const v1::GenerateResponse& message : stream->messages()) {
    EXPECT_FALSE(ends.contains(message.choice())) << "a message after the choice's last one";
    texts[message.choice()] += message.text();
    if (message.has_completion()) ends[message.choice()] = message.completion();
  }
  ASSERT_THAT(ends, SizeIs(4));
  EXPECT_EQ(ends[0].seed(), 7u);
  request.clear_n();
  std::set<std::string> different;
  for (int32_t choice = 0; choice < 4; ++choice) {
    request.mutable_sampling()->set_seed(ends[choice].seed());
    EXPECT_EQ(Generate(server.inference(), request)->text(), texts[choice]);
    EXPECT_EQ(ends[choice].request_id(), stream->RequestId());
    EXPECT_THAT(texts[choice], testing::StartsWith("To be"));
    different.insert(texts[choice]);
  }
  EXPECT_GT(different.size(), 1u);
  EXPECT_EQ(server.Stats("mla").used_bytes(), 0);
}

TEST(GenerateTest, ACancelFreesEveryChoice) {
  const TestServer server({.models = {EndlessModel()}});
  v1::GenerateRequest request = Greedy("", "a", kEndlessPositions / 8);
  request.set_n(3);
  request.mutable_sampling()->set_temperature(1);
  GenerateCall stream(server.inference(), request);
  ASSERT_TRUE(stream.Read());
  ASSERT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.running_sequences() == 3; }));
  stream.Cancel();
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server.WaitForStats("endless", [](const v1::KvCacheStats& stats) {
    return stats.running_sequences() + stats.waiting_sequences() == 0 && stats.used_bytes() == 0;
  }));
}

TEST(GenerateTest, AllowedTokensAndStopTokens) {
  const TestServer server;
  v1::GenerateRequest request = Greedy("gqa", "x", 30);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(3);
  for (const int32_t token : {'a', 'b', 'c'}) {
    request.mutable_sampling()->add_allowed_token_ids(token);
  }
  const std::string whole = Generate(server.inference(), request)->text();
  EXPECT_THAT(whole, testing::MatchesRegex("[abc]{30}"));

  request.add_stop_token_ids('c');
  const auto stopped = Generate(server.inference(), request);
  EXPECT_EQ(stopped->completion().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(stopped->completion().usage().generated_tokens(),
            static_cast<int32_t>(whole.find('c')) + 1);
  request.set_min_new_tokens(20);
  const std::vector<int32_t> later = Generate(server.inference(), request)->tokens();
  EXPECT_GE(later.size(), 20u);
  EXPECT_THAT(std::vector(later.begin(), later.begin() + 20), testing::Not(testing::Contains('c')));

  request.clear_min_new_tokens();
  request.clear_stop_token_ids();
  const std::string stop = whole.substr(10, 3);
  request.add_stop(stop);
  request.set_include_stop(true);
  EXPECT_EQ(Generate(server.inference(), request)->text(),
            whole.substr(0, whole.find(stop) + stop.size()));
  // A stop string that is complete by the minimum is text, as in vLLM.
  request.set_min_new_tokens(static_cast<int32_t>(whole.find(stop) + stop.size()));
  const size_t next = whole.find(stop, whole.find(stop) + 1);
  EXPECT_EQ(Generate(server.inference(), request)->text(),
            next == whole.npos ? whole : whole.substr(0, next + stop.size()));
}

// The model's context has 64 tokens.
TEST(GenerateTest, TheOutputHasTheForm) {
  const TestServer server;
  struct Case {
    std::string regex;
    std::function<void(v1::GenerateRequest&)> set;
  };
  const std::vector<Case> cases = {
      {R"(\{\s*"a":\s*(true|false)\s*\})",
       [](auto& request) {
         request.set_json_schema(R"({"type": "object", "properties": {"a": {"type": "boolean"}},
             "required": ["a"], "additionalProperties": false})");
       }},
      {"[0-9]{5}", [](auto& request) { request.set_regex("[0-9]{5}"); }},
      {"one|two",
       [](auto& request) {
         for (const char* const text : {"one", "two"}) request.mutable_choice()->add_texts(text);
       }},
      {"a+;", [](auto& request) { request.set_grammar("root ::= [a]{1,9} \";\""); }},
  };
  for (const Case& c : cases) {
    v1::GenerateRequest request = Greedy("mha", "x", 60);
    request.mutable_sampling()->set_temperature(1);
    request.mutable_sampling()->set_seed(3);
    c.set(request);
    const auto generation = Generate(server.inference(), request);
    EXPECT_TRUE(std::regex_match(generation->text(), std::regex(c.regex))) << generation->text();
    EXPECT_EQ(generation->completion().finish_reason(), v1::FINISH_REASON_STOP);
  }
  // The bias makes the object end as soon as it may.
  v1::GenerateRequest request = Greedy("mha", "x", 60);
  (*request.mutable_sampling()->mutable_logit_bias())['}'] = 500;
  request.set_json_object(true);
  EXPECT_EQ(Generate(server.inference(), request)->text(), "{}");
  request.set_json_object(false);
  request.set_max_new_tokens(3);
  EXPECT_EQ(Generate(server.inference(), request)->text(), "}}}");
}

TEST(GenerateTest, SharesWhatIsCachedUnlessToldNotTo) {
  const TestServer server;
  v1::GenerateRequest request = Greedy("mha", std::string(40, 'a'), 5);
  const auto cold = Generate(server.inference(), request);
  EXPECT_EQ(cold->completion().usage().cached_prompt_tokens(), 0);
  const auto warm = Generate(server.inference(), request);
  EXPECT_EQ(warm->completion().usage().cached_prompt_tokens(), 2 * kBlockPositions);
  request.set_bypass_prefix_cache(true);
  const auto apart = Generate(server.inference(), request);
  EXPECT_EQ(apart->completion().usage().cached_prompt_tokens(), 0);
  EXPECT_EQ(warm->tokens(), cold->tokens());
  EXPECT_EQ(apart->tokens(), cold->tokens());
  EXPECT_EQ(server.Stats("mha").requests().finished(), 3);
  EXPECT_EQ(server.Stats("mha").requests().cached_prompt_tokens(), 2 * kBlockPositions);
}

TEST(GenerateTest, DraftsChangeNoOutput) {
  TestServerOptions options;
  options.speculation = serving::Speculation::kAlways;
  const TestServer server(options);
  v1::GenerateRequest request = Greedy("mha", "To be", 24);
  for (const char letter : std::string("abcdef ")) {
    request.mutable_sampling()->add_allowed_token_ids(letter);
  }
  request.set_max_draft_tokens(0);
  const auto plain = Generate(server.inference(), request);
  EXPECT_EQ(plain->completion().usage().draft_tokens(), 0);
  request.clear_max_draft_tokens();
  request.set_prediction(plain->text());
  const auto predicted = Generate(server.inference(), request);
  EXPECT_EQ(predicted->tokens(), plain->tokens());
  const v1::Usage& usage = predicted->completion().usage();
  EXPECT_GT(usage.accepted_draft_tokens(), 10);
  EXPECT_GE(usage.draft_tokens(), usage.accepted_draft_tokens());
}

TEST(GenerateTest, EchoesThePrompt) {
  const TestServer server;
  v1::GenerateRequest request = Greedy("mha", "h\u00e9llo", 5);
  const std::string generated = Generate(server.inference(), request)->text();
  request.set_echo(true);
  EXPECT_EQ(Generate(server.inference(), request)->text(), "h\u00e9llo" + generated);
  for (const int32_t id : {256, 97, 0xC3, 98}) request.mutable_tokens()->add_ids(id);
  EXPECT_THAT(Generate(server.inference(), request)->text(), testing::StartsWith("a\ufffdb"));
}

TEST(GenerateTest, ATextsTokensAreAsAsked) {
  const TestServer server({.models = {SpecialTokensModel()}});
  v1::GenerateRequest request = Greedy("", "a<s>b", 4);
  request.set_echo(true);
  const auto as_text = Generate(server.inference(), request);
  EXPECT_EQ(as_text->completion().usage().prompt_tokens(), 1 + 5);
  EXPECT_THAT(as_text->text(), testing::StartsWith("a<s>b"));
  request.set_parse_special_tokens(true);
  const auto parsed = Generate(server.inference(), request);
  EXPECT_EQ(parsed->completion().usage().prompt_tokens(), 1 + 3);
  EXPECT_THAT(parsed->text(), testing::StartsWith("ab"));
  request.set_begin_token(false);
  const auto bare = Generate(server.inference(), request);
  EXPECT_EQ(bare->completion().usage().prompt_tokens(), 3);

  v1::GenerateRequest tokens = Greedy("", "", 4);
  for (const int32_t id : {257, 97, 257, 98}) tokens.mutable_tokens()->add_ids(id);
  EXPECT_EQ(Generate(server.inference(), tokens)->tokens(), parsed->tokens());
  tokens.set_begin_token(true);
  EXPECT_TRUE(RefusesField(GenerateStatus(server, tokens), "begin_token"));
  tokens.set_begin_token(false);
  tokens.set_parse_special_tokens(true);
  EXPECT_TRUE(RefusesField(GenerateStatus(server, tokens), "parse_special_tokens"));
}

TEST(GenerateTest, ReportsThePromptsLogProbabilitiesAsScoreDoes) {
  const TestServer server({.max_batch_tokens = 8, .max_running = 8});
  v1::GenerateRequest request = Greedy("mla", "To be, or not to be", 3);
  request.set_prompt_logprobs(2);
  const auto stream = Generate(server.inference(), request);
  std::vector<v1::TokenLogprobs> prompt;
  bool generated = false;
  for (const v1::GenerateResponse& message : stream->messages()) {
    EXPECT_FALSE(generated && message.prompt_logprobs_size() > 0);
    prompt.insert(prompt.end(), message.prompt_logprobs().begin(), message.prompt_logprobs().end());
    generated = generated || message.token_ids_size() > 0;
  }
  v1::ScoreRequest score;
  score.set_model("mla");
  score.add_inputs()->set_text(request.text());
  v1::ScoreResponse response;
  ASSERT_TRUE(CallUnary(server.inference(), &Inference::Score, score, &response).ok());
  ASSERT_EQ(std::ssize(prompt), std::ssize(request.text()));
  for (size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_EQ(prompt[i].chosen().token_id(), request.text()[i]);
    EXPECT_EQ(prompt[i].chosen().logprob(), response.results(0).token_logprobs(i));
    EXPECT_EQ(prompt[i].top_size(), 2);
  }
}

TEST(ScoreTest, NothingIsCertain) {
  const TestServer server;
  v1::ScoreRequest request;
  request.set_model("gqa");
  request.add_inputs()->set_text("");
  v1::ScoreResponse response;
  ASSERT_TRUE(CallUnary(server.inference(), &Inference::Score, request, &response).ok());
  EXPECT_EQ(response.results(0).log_likelihood(), 0);
  EXPECT_EQ(response.results(0).scored_tokens(), 0);
  EXPECT_THAT(response.results(0).token_logprobs(), IsEmpty());
}

TEST(ScoreTest, WithoutABeginTokenTheFirstTokenIsNotScored) {
  const TestServer server({.models = {SpecialTokensModel()}});
  v1::ScoreRequest request;
  request.add_inputs()->set_text("a</s>");
  request.mutable_inputs(0)->set_parse_special_tokens(true);
  *request.add_inputs() = request.inputs(0);
  request.mutable_inputs(1)->set_begin_token(false);
  v1::TokenIds& tokens = *request.add_inputs()->mutable_tokens();
  for (const int32_t id : {97, 256}) tokens.add_ids(id);
  v1::ScoreResponse response;
  ASSERT_TRUE(CallUnary(server.inference(), &Inference::Score, request, &response).ok());
  EXPECT_EQ(response.results(0).scored_tokens(), 2);
  EXPECT_EQ(response.results(1).scored_tokens(), 1);
  EXPECT_EQ(response.results(1).log_likelihood(), response.results(2).log_likelihood());
}

TEST(TokenizeTest, PiecesAndTheirOffsets) {
  const TestServer server({.models = {SpecialTokensModel()}});
  v1::TokenizeRequest request;
  request.set_text("a</s>\u00e9");
  request.set_parse_special_tokens(true);
  v1::TokenizeResponse response;
  ASSERT_TRUE(CallUnary(server.inference(), &Inference::Tokenize, request, &response).ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(97, 256, 0xC3, 0xA9));
  EXPECT_EQ(response.pieces(), "");
  EXPECT_THAT(response.offsets(), IsEmpty());
  request.set_pieces(true);
  request.set_begin_token(true);
  ASSERT_TRUE(CallUnary(server.inference(), &Inference::Tokenize, request, &response).ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(257, 97, 256, 0xC3, 0xA9));
  EXPECT_EQ(response.pieces(), "a\u00e9");
  EXPECT_THAT(response.offsets(), ElementsAre(0, 0, 1, 1, 2));
}

TEST(TokenizeTest, RoundTrip) {
  const TestServer server;
  v1::TokenizeRequest request;
  request.set_model("mha");
  request.set_text(std::string("caf\u00e9 \U0001F600\n\0 end", 16));
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(CallUnary(server.inference(), &Inference::Tokenize, request, &tokens).ok());
  EXPECT_EQ(tokens.token_ids_size(), std::ssize(request.text()));
  EXPECT_EQ(Detokenize(server, "mha", {tokens.token_ids().begin(), tokens.token_ids().end()}),
            request.text());

  EXPECT_EQ(Detokenize(server, "mha", {256, 'a', 0xC3, 257}),
            "a\ufffd");  // special tokens have no text

  v1::DetokenizeRequest bad;
  bad.set_model("mha");
  bad.add_token_ids(0);
  bad.add_token_ids(258);
  v1::DetokenizeResponse response;
  EXPECT_TRUE(RefusesField(CallUnary(server.inference(), &Inference::Detokenize, bad, &response),
                           "token_ids[1]"));
  bad.set_token_ids(1, -1);
  EXPECT_TRUE(RefusesField(CallUnary(server.inference(), &Inference::Detokenize, bad, &response),
                           "token_ids[1]"));
}

}  // namespace
}  // namespace triptych::server::generate_test
