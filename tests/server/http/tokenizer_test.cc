// Tests of a model's tokenizer over both transports.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/tokenizer/tokenizer_json.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"
#include "tests/support/random_model.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::server::tokenizer_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;

// `form` with a template that appends "</s>" to every text.
Json WithEnd(Json form, const Json& before) {
  Json single = Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                             {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}});
  if (!before.is_null()) single.insert(single.begin(), before);
  form["post_processor"] = {{"type", "TemplateProcessing"}, {"single", single}};
  return form;
}

// Bytes, without a token before texts.
Json Bare() { return WithEnd(ByteLevelJson(), nullptr); }
// Puts "<s>", token 1, and a space before texts.
Json Spaced() {
  return WithEnd(SentencePieceStyleJson(), {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}});
}

TestModel ModelWith(const std::string& name, const Json& tokenizer) {
  TestModel model{
      .name = name, .config = SmallModel(AttentionKind::kMha), .tokenizer_json = tokenizer.dump()};
  model.config.vocab_size = 270;
  return model;
}

class TokenizerTest : public testing::Test {
 protected:
  const std::vector<TestModel> models_ = {ModelWith("special", BeginAndEndJson()),
                                          ModelWith("bare", Bare()), ModelWith("spaced", Spaced())};
  const TestServer server_{WithHttp({.models = models_})};
  HttpClient http_{server_.http_address()};
};

struct Described {
  std::string name, kind;
  int32_t vocab_size;
  std::optional<int32_t> begin;
  int32_t end;
  std::vector<std::pair<int32_t, std::string>> special;
};

TEST_F(TokenizerTest, SaysWhatItIs) {
  for (const Described& expected : std::vector<Described>{
           {"special", "byte-level BPE", 258, 257, 256, {{256, "</s>"}, {257, "<s>"}}},
           {"bare", "byte-level BPE", 257, std::nullopt, 256, {{256, "</s>"}}},
           {"spaced", "BPE", 264, 1, 2, {{0, "<unk>"}, {1, "<s>"}, {2, "</s>"}}}}) {
    SCOPED_TRACE(expected.name);
    v1::GetModelRequest request;
    request.set_model(expected.name);
    v1::GetModelResponse response;
    ASSERT_TRUE(
        CallUnary(server_.models(), &v1::ModelService::Stub::GetModel, request, &response).ok());
    const v1::Tokenizer& tokenizer = response.model().tokenizer();
    EXPECT_EQ(tokenizer.kind(), expected.kind);
    EXPECT_EQ(tokenizer.vocab_size(), expected.vocab_size);
    EXPECT_EQ(tokenizer.has_begin_token_id(), expected.begin.has_value());
    EXPECT_EQ(tokenizer.begin_token_id(), expected.begin.value_or(0));
    EXPECT_THAT(tokenizer.end_token_ids(), ElementsAre(expected.end));
    json special = json::array();
    std::vector<std::pair<int32_t, std::string>> listed;
    for (const v1::SpecialToken& token : tokenizer.special_tokens()) {
      listed.emplace_back(token.id(), token.text());
      special.push_back({{"id", token.id()}, {"text", token.text()}});
    }
    EXPECT_EQ(listed, expected.special);
    EXPECT_EQ(http_.Get("/v1/models/" + expected.name).json().at("tokenizer"),
              json({{"kind", expected.kind},
                    {"vocab_size", expected.vocab_size},
                    {"begin_token_id", expected.begin ? json(*expected.begin) : json(nullptr)},
                    {"end_token_ids", {expected.end}},
                    {"special_tokens", special}}));
  }
}

// A request's options for special tokens in its text and the begin token before it.
struct Asked {
  std::optional<bool> parse, begin;
};

TEST_F(TokenizerTest, ATextsTokensAreAsAsked) {
  const std::string text = "ab<s> b</s>";
  for (const TestModel& model : models_) {
    const auto tokenizer =
        checkpoint::ParseTokenizerJson(*model.tokenizer_json, "tokenizer.json", {});
    const auto begin_token = tokenizer->begin_token();
    // The text's tokens, after the begin token if it is requested and exists.
    const auto expected = [&](const Asked& asked, bool begins) {
      std::vector<int32_t> tokens = tokenizer->Encode(
          text, asked.parse.value_or(false) ? SpecialTokens::kParsed : SpecialTokens::kAsText);
      if (begins && begin_token) tokens.insert(tokens.begin(), *begin_token);
      return tokens;
    };
    for (const Asked& asked : std::vector<Asked>{{{}, {}},
                                                 {{}, false},
                                                 {{}, true},
                                                 {false, {}},
                                                 {true, {}},
                                                 {true, false},
                                                 {true, true}}) {
      SCOPED_TRACE(model.name + ", parse " + testing::PrintToString(asked.parse) + ", begin " +
                   testing::PrintToString(asked.begin));
      const bool refused = asked.begin.value_or(false) && !begin_token;
      const std::vector<int32_t> of_text = expected(asked, asked.begin.value_or(false));
      const std::vector<int32_t> of_prompt = expected(asked, asked.begin.value_or(true));

      v1::TokenizeRequest tokenize;
      tokenize.set_model(model.name);
      tokenize.set_text(text);
      if (asked.parse) tokenize.set_parse_special_tokens(*asked.parse);
      if (asked.begin) tokenize.set_begin_token(*asked.begin);
      v1::TokenizeResponse tokens;
      const grpc::Status tokenized =
          CallUnary(server_.inference(), &v1::InferenceService::Stub::Tokenize, tokenize, &tokens);

      v1::GenerateRequest generate = Greedy(model.name, text, 3);
      if (asked.parse) generate.set_parse_special_tokens(*asked.parse);
      if (asked.begin) generate.set_begin_token(*asked.begin);

      v1::ScoreRequest score;
      score.set_model(model.name);
      v1::ScoreInput& input = *score.add_inputs();
      input.set_text(text);
      if (asked.parse) input.set_parse_special_tokens(*asked.parse);
      if (asked.begin) input.set_begin_token(*asked.begin);
      v1::TokenIds& ids = *score.add_inputs()->mutable_tokens();
      for (const int32_t token : of_prompt) ids.add_ids(token);
      v1::ScoreResponse scores;
      const grpc::Status scored =
          CallUnary(server_.inference(), &v1::InferenceService::Stub::Score, score, &scores);

      if (refused) {
        EXPECT_TRUE(RefusesField(tokenized, "begin_token"));
        EXPECT_TRUE(RefusesField(scored, "inputs[0].begin_token"));
        GenerateCall call(server_.inference(), generate);
        EXPECT_TRUE(RefusesField(call.Finish(), "begin_token"));
      } else {
        EXPECT_THAT(tokens.token_ids(), testing::ElementsAreArray(of_text));
        ASSERT_EQ(scores.results_size(), 2) << scored.error_message();
        EXPECT_EQ(scores.results(0).scored_tokens(), std::ssize(of_prompt) - 1);
        EXPECT_EQ(scores.results(0).log_likelihood(), scores.results(1).log_likelihood());
        v1::GenerateRequest of_tokens = Greedy(model.name, "", 3);
        *of_tokens.mutable_tokens() = ids;
        const auto call = Generate(server_.inference(), generate);
        EXPECT_EQ(call->tokens(), Generate(server_.inference(), of_tokens)->tokens());
        EXPECT_EQ(call->completion().usage().prompt_tokens(), std::ssize(of_prompt));
      }

      // OpenAI's clients request the begin token without knowing whether it exists.
      json over_http = {{"model", model.name}, {"text", text}};
      over_http["parse_special"] = asked.parse.value_or(false);
      if (asked.begin) over_http["add_special_tokens"] = *asked.begin;
      EXPECT_EQ(http_.Post("/tokenize", over_http).json(), json({{"token_ids", of_text}}));
      over_http.erase("text");
      over_http["prompt"] = text;
      over_http["max_tokens"] = 1;
      over_http["temperature"] = 0;
      EXPECT_EQ(http_.Post("/v1/completions", over_http).json().at("usage").at("prompt_tokens"),
                of_prompt.size());
    }
  }
}

// The space that encoding puts before the text belongs to no piece.
TEST_F(TokenizerTest, PiecesAreTheTextAgain) {
  v1::TokenizeRequest request;
  request.set_model("spaced");
  request.set_text("ab é");
  request.set_pieces(true);
  v1::TokenizeResponse response;
  const auto tokenize = [&] {
    return CallUnary(server_.inference(), &v1::InferenceService::Stub::Tokenize, request,
                     &response);
  };
  ASSERT_TRUE(tokenize().ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(263, 259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(response.pieces(), "ab é");
  EXPECT_THAT(response.offsets(), ElementsAre(0, 2, 3, 4));
  request.set_begin_token(true);
  ASSERT_TRUE(tokenize().ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(1, 263, 259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(response.pieces(), "ab é");
  EXPECT_THAT(response.offsets(), ElementsAre(0, 0, 2, 3, 4));
  EXPECT_EQ(http_
                .Post("/tokenize", {{"model", "spaced"},
                                    {"text", "ab é"},
                                    {"add_special_tokens", true},
                                    {"with_pieces", true}})
                .json(),
            json({{"token_ids", {1, 263, 259, 3 + 0xC3, 3 + 0xA9}},
                  {"offsets", {0, 0, 2, 3, 4}},
                  {"pieces", {json::array(), {97, 98}, {32}, {0xC3}, {0xA9}}}}));
  EXPECT_EQ(
      http_
          .Post("/detokenize", {{"model", "spaced"}, {"token_ids", {263, 259, 3 + 0xC3, 3 + 0xA9}}})
          .json(),
      json({{"text", "ab é"}}));
  // Errors have the member's name.
  for (const char* const name : {"tokens", "token_ids"}) {
    const HttpAnswer answer = http_.Post("/detokenize", {{"model", "spaced"}, {name, {263, 9999}}});
    EXPECT_EQ(answer.error("param"), name + std::string("[1]"));
  }
}

}  // namespace
}  // namespace triptych::server::tokenizer_test
