#include "engine/checkpoint/tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/replace_all.h"
#include "tests/support/colliding_texts.h"
#include "tests/support/refusal.h"
#include "tests/support/tokenizer_checks.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::checkpoint::tokenizer_json_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::shared_ptr<const Tokenizer> Parse(const Json& json) {
  return ParseTokenizerJson(json.dump(), "tokenizer.json", {.end_text = "</s>"});
}

std::string Refusal(const Json& json) {
  return RefusalOf<LoadError>([&] { Parse(json); });
}

// The pieces of a text, decoded token by token.
std::vector<std::string> Pieces(const Tokenizer& tokenizer, std::string_view text,
                                SpecialTokens special = SpecialTokens::kAsText) {
  std::vector<std::string> pieces;
  for (const int32_t token : tokenizer.Encode(text, special)) {
    pieces.push_back(tokenizer.Decode(token));
  }
  return pieces;
}

// UTF-8 is the source of these: where nothing is merged, tokens are bytes.
TEST(TokenizerJsonTest, ByteLevelTokensAreBytes) {
  const auto tokenizer = Parse(ByteLevelJson());
  EXPECT_EQ(tokenizer->kind(), "byte-level BPE");
  EXPECT_EQ(tokenizer->begin_token(), std::nullopt);
  for (const std::string text :
       {"Az 09", "it's we'LL", "  two\n\n\tlines \r\n",
        "👩‍👩‍👧‍👦 👍🏽 🇨🇭", "e\u0301 n\u0303\u0323", "中文、かな、한글",
        "שלום \u202eمرحبا", "\x01\x1b[0m\x7f", "</s>", "\u0120\u010a ▁"}) {
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    EXPECT_EQ(Pieces(*tokenizer, text), bytes) << text;
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a\xff")), "a\uFFFD");
}

// GPT-2's pattern, of which OpenAI's encoder.py is the source: contractions stand alone, a space
// belongs to the word after it, the last of several too.
TEST(TokenizerJsonTest, ByteLevelCutsAsGpt2) {
  const auto tokenizer = Parse(ByteLevelJson({"it", "'s", " it", "  ", "12"}));
  EXPECT_THAT(Pieces(*tokenizer, "it's it"), ElementsAre("it", "'s", " it"));
  EXPECT_THAT(Pieces(*tokenizer, "    it"), ElementsAre("  ", " ", " it"));
  EXPECT_THAT(Pieces(*tokenizer, "a12 12"), ElementsAre("a", "12", " ", "12"));
  EXPECT_THAT(Pieces(*tokenizer, "it 's"), ElementsAre("it", " ", "'", "s"));
}

// A tokenizer whose tokens are these words, each where it is all of a piece, and bytes elsewhere:
// no other cuts give the words.
std::shared_ptr<const Tokenizer> WordsAlone(const std::vector<std::string>& words,
                                            const Json& pre_tokenizers) {
  Json json = ByteLevelJson();
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", pre_tokenizers}};
  json["model"]["ignore_merges"] = true;
  int32_t id = 300;
  for (const std::string& word : words) {
    json["model"]["vocab"][ReplaceAll(ReplaceAll(word, " ", "Ġ"), "\n", "Ċ")] = id++;
  }
  return Parse(json);
}

// The vectors of Hugging Face's tokenizers, in the tests of its byte_level.rs and digits.rs
// (github.com/huggingface/tokenizers, tokenizers/src/pre_tokenizers).
TEST(TokenizerJsonTest, CutsAsItsPublishersDo) {
  const auto byte_level = [](bool adds_space, bool cuts) {
    return Json{{"type", "ByteLevel"}, {"add_prefix_space", adds_space}, {"use_regex", cuts}};
  };
  const auto expect = [](const std::string& text, const std::vector<std::string>& words,
                         const Json& pre_tokenizers) {
    EXPECT_EQ(Pieces(*WordsAlone(words, pre_tokenizers), text), words) << text;
  };
  const std::string question = "Hello my friend, how is your day going?";
  const std::vector<std::string> rest = {" my",   " friend", ",",      " how", " is",
                                         " your", " day",    " going", "?"};
  std::vector<std::string> bare = {"Hello"}, spaced = {" Hello"};
  bare.insert(bare.end(), rest.begin(), rest.end());
  spaced.insert(spaced.end(), rest.begin(), rest.end());
  const Json gpt2 = Json::array({byte_level(false, true)});
  expect(question, bare, gpt2);
  expect("Hello there\nHello there", {"Hello", " there", "\n", "Hello", " there"}, gpt2);
  expect("Hello there       dear", {"Hello", " there", "      ", " dear"}, gpt2);
  for (const std::string& text : {question, " " + question}) {
    expect(text, spaced, Json::array({byte_level(true, true)}));
    expect(text, {" " + question}, Json::array({byte_level(true, false)}));
  }
  for (const bool individual : {false, true}) {
    const Json digits = {{"type", "Digits"}, {"individual_digits", individual}};
    const Json both = Json::array({digits, byte_level(false, false)});
    if (individual) {
      expect("Hey 123 friend!", {"Hey ", "1", "2", "3", " friend!"}, both);
    } else {
      expect("Hey 123 friend!", {"Hey ", "123", " friend!"}, both);
    }
  }
}

// The form of Llama 2's files: a space is put before, characters without a token are
// bytes, the leading space is dropped again.
TEST(TokenizerJsonTest, SentencePieceStyle) {
  const auto tokenizer = Parse(SentencePieceStyleJson());
  EXPECT_EQ(tokenizer->kind(), "BPE");
  EXPECT_EQ(tokenizer->begin_token(), 1);
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(2));
  EXPECT_TRUE(tokenizer->drops_leading_space());
  EXPECT_THAT(Pieces(*tokenizer, "ab ab"), ElementsAre(" ab", " ab"));
  EXPECT_THAT(Pieces(*tokenizer, " a"), ElementsAre(" ", " ", "a"));
  EXPECT_THAT(Pieces(*tokenizer, "é\n"), ElementsAre(" ", "\xC3", "\xA9", "\n"));
  for (const std::string text :
       {"", "a", " a", "  ", "ab é 👩‍👧\n\n \u0301", "中 שלום \x01", "<s>a</s>"}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
  EXPECT_THAT(tokenizer->Encode(""), ElementsAre());
}

TEST(TokenizerJsonTest, SpecialTokensAreTextUnlessTheyAreParsed) {
  for (const Json& json : {ByteLevelJson(), SentencePieceStyleJson()}) {
    const auto tokenizer = Parse(json);
    const int32_t end = tokenizer->end_token();
    const auto as_text = tokenizer->Encode("a</s>a");
    EXPECT_EQ(std::count(as_text.begin(), as_text.end(), end), 0);
    EXPECT_EQ(tokenizer->Decode(as_text), "a</s>a");
    const auto parsed = tokenizer->Encode("a</s>a", SpecialTokens::kParsed);
    EXPECT_EQ(std::count(parsed.begin(), parsed.end(), end), 1);
    EXPECT_EQ(tokenizer->Decode(end), "");
    EXPECT_EQ(tokenizer->special_tokens().back().text, "</s>");
  }
}

// No merge may make one either, whatever the file says.
TEST(TokenizerJsonTest, MergesMakeNoSpecialToken) {
  Json json = SentencePieceStyleJson();
  json["model"]["vocab"]["<"] = 300;
  json["model"]["vocab"]["/s>"] = 301;
  json["model"]["vocab"]["/s"] = 302;
  json["model"]["vocab"]["/"] = 303;
  json["model"]["vocab"]["s"] = 304;
  json["model"]["vocab"][">"] = 305;
  json["model"]["merges"] = {"/ s", "/s >", "< /s>"};
  EXPECT_THAT(Parse(json)->Encode("</s>"), ElementsAre(259, 300, 301));
}

TEST(TokenizerJsonTest, AddedTokens) {
  Json json = ByteLevelJson();
  const auto add = [&](int32_t id, const char* text, const char* option) {
    Json token = {{"id", id}, {"content", text}, {"special", false}, {"normalized", false}};
    if (*option != 0) token[option] = true;
    json["added_tokens"].push_back(token);
  };
  add(300, "<L>", "lstrip");
  add(301, "<R>", "rstrip");
  add(302, "word", "single_word");
  add(303, "<LL>", "");
  add(304, "<LLL>", "");
  const auto tokenizer = Parse(json);
  EXPECT_THAT(Pieces(*tokenizer, "a \u3000<L> b"), ElementsAre("a", "<L>", " ", "b"));
  EXPECT_THAT(Pieces(*tokenizer, "a <R> \nb"), ElementsAre("a", " ", "<R>", "b"));
  EXPECT_THAT(tokenizer->Encode("word,"), ElementsAre(302, ','));
  EXPECT_EQ(tokenizer->Encode("words").size(), 5u);
  EXPECT_EQ(tokenizer->Encode("\u0301word").size(), 6u);
  EXPECT_THAT(tokenizer->Encode("<LL><LLL>"), ElementsAre(303, 304));
  EXPECT_EQ(tokenizer->vocab_size(), 305);
  EXPECT_EQ(tokenizer->Decode(299), "");  // in a gap
}

// In "1ab" it is no word by itself, and vocab does not have it.
TEST(TokenizerJsonTest, AnAddedTokenOutsideTheVocabularyIsNoneOfIt) {
  Json json = ByteLevelJson();
  json["model"]["ignore_merges"] = true;
  json["added_tokens"].push_back(
      {{"id", 300}, {"content", "ab"}, {"single_word", true}, {"normalized", false}});
  const auto tokenizer = Parse(json);
  EXPECT_THAT(tokenizer->Encode("ab"), ElementsAre(300));
  EXPECT_THAT(tokenizer->Encode("1ab"), ElementsAre('1', 'a', 'b'));
  EXPECT_EQ(tokenizer->Decode(300), "ab");
}

// In time that is the product of the two numbers this takes a minute.
TEST(TokenizerJsonTest, ManyPartsAndManyTokensAreNoMoreWorkThanTheirText) {
  Json json = ByteLevelJson();
  json["added_tokens"].push_back(
      {{"id", 300}, {"content", "<n>"}, {"special", true}, {"normalized", true}});
  const auto tokenizer = Parse(json);
  constexpr size_t kParts = 200'000;
  std::vector<TextPart> parts(kParts, {"</s>a", SpecialTokens::kParsed});
  parts.push_back({"<n>", SpecialTokens::kParsed});
  const std::vector<int32_t> tokens = tokenizer->Encode(parts);
  EXPECT_EQ(tokens.size(), 2 * kParts + 1);
  EXPECT_EQ(tokens.back(), 300);
}

TEST(TokenizerJsonTest, NormalizedAddedTokensAreFoundInTheNormalizedText) {
  Json json = ByteLevelJson();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"].push_back({{"id", 300}, {"content", "e\u0301"}, {"normalized", true}});
  json["added_tokens"].push_back({{"id", 301}, {"content", "o\u0301"}, {"normalized", false}});
  const auto tokenizer = Parse(json);
  EXPECT_THAT(tokenizer->Encode("é"), ElementsAre(300));
  EXPECT_THAT(tokenizer->Encode("e\u0301"), ElementsAre(300));
  EXPECT_THAT(tokenizer->Encode("o\u0301"), ElementsAre(301));
  EXPECT_THAT(Pieces(*tokenizer, "ó"), ElementsAre("\xC3", "\xB3"));
}

// Unicode's own examples of the forms (annex 15, figures 3 and 6).
TEST(TokenizerJsonTest, Normalizers) {
  const auto normal = [](const Json& normalizer, std::string_view text) {
    Json json = ByteLevelJson();
    json["normalizer"] = normalizer;
    const auto tokenizer = Parse(json);
    return tokenizer->Decode(tokenizer->Encode(text));
  };
  EXPECT_EQ(normal({{"type", "NFC"}}, "A\u030a \u212b ﬁ"), "\u00c5 \u00c5 ﬁ");
  EXPECT_EQ(normal({{"type", "NFD"}}, "\u1e69"), "s\u0323\u0307");
  EXPECT_EQ(normal({{"type", "NFKC"}}, "ﬁ 2\u2075"), "fi 25");
  EXPECT_EQ(normal({{"type", "NFKD"}}, "\u1e9b\u0323"), "s\u0323\u0307");
  EXPECT_EQ(normal({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, " \u3000a "),
            "a ");
  const Json replace = {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "_"}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", "> "}};
  EXPECT_EQ(normal({{"type", "Sequence"}, {"normalizers", {prepend, replace}}}, "a   b"), ">_a_b");
  EXPECT_EQ(normal(prepend, ""), "");
}

// The behaviours as the documentation of Hugging Face's tokenizers shows them, on
// "the-final--countdown".
TEST(TokenizerJsonTest, SplitBehaviours) {
  const auto cut = [](const char* behavior, bool invert = false) {
    Json json = ByteLevelJson();
    json["model"]["ignore_merges"] = true;
    int32_t id = 300;
    for (const char* word :
         {"the", "final", "countdown", "the-", "final-", "-final", "-countdown", "--"}) {
      json["model"]["vocab"][word] = id++;
    }
    const Json split = {{"type", "Split"},
                        {"pattern", {{"String", "-"}}},
                        {"behavior", behavior},
                        {"invert", invert}};
    const Json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
    return Pieces(*Parse(json), "the-final--countdown");
  };
  EXPECT_THAT(cut("Removed"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(cut("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(cut("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(cut("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(cut("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(cut("Removed", true), ElementsAre("-", "-", "-"));
}

Json MetaspaceJson(const char* scheme) {
  Json json = SentencePieceStyleJson();
  json["normalizer"] = nullptr;
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}};
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {metaspace, {{"type", "Digits"}}}}};
  json["decoder"] = metaspace;
  return json;
}

TEST(TokenizerJsonTest, MetaspaceAndDigits) {
  const auto always = Parse(MetaspaceJson("always")), first = Parse(MetaspaceJson("first")),
             never = Parse(MetaspaceJson("never"));
  EXPECT_THAT(Pieces(*always, "ab</s>ab", SpecialTokens::kParsed), ElementsAre(" ab", "", " ab"));
  EXPECT_THAT(Pieces(*first, "ab</s>ab", SpecialTokens::kParsed), ElementsAre(" ab", "", "ab"));
  EXPECT_THAT(Pieces(*never, "ab"), ElementsAre("ab"));
  EXPECT_FALSE(never->drops_leading_space());
  EXPECT_EQ(always->Decode(always->Encode("ab  a")), "ab  a");
}

TEST(TokenizerJsonTest, BothFormsOfMerges) {
  Json pairs = SentencePieceStyleJson();
  for (Json& merge : pairs["model"]["merges"]) {
    const std::string both = merge;
    const size_t space = both.find(' ');
    merge = Json::array({both.substr(0, space), both.substr(space + 1)});
  }
  EXPECT_EQ(Parse(pairs)->Encode("ab ab"), Parse(SentencePieceStyleJson())->Encode("ab ab"));
}

// The longest token is "</s>" of four bytes, or of six for a fallback byte; a form of Unicode's
// makes one byte of four at most.
TEST(TokenizerJsonTest, SaysHowManyBytesBecomeOneToken) {
  const auto most = [](Json json, const char* path, const Json& value) {
    json[Json::json_pointer(path)] = value;
    return Parse(json)->max_token_bytes();
  };
  constexpr int64_t kAny = Tokenizer::kAnyBytes;
  const Json bytes = ByteLevelJson({"seven77"}), pieces = SentencePieceStyleJson();
  EXPECT_EQ(Parse(ByteLevelJson())->max_token_bytes(), 4);
  EXPECT_EQ(Parse(bytes)->max_token_bytes(), 7);
  EXPECT_EQ(Parse(pieces)->max_token_bytes(), 6);
  EXPECT_EQ(
      most(bytes, "/added_tokens/1", {{"id", 300}, {"content", "<|123456|>"}, {"special", true}}),
      10);
  EXPECT_EQ(most(bytes, "/normalizer", {{"type", "NFC"}}), 28);
  EXPECT_EQ(most(pieces, "/model/vocab/▁▁▁", 264), 9) << "of text, though three spaces are shown";
  // Text that may vanish, and bytes without a token.
  EXPECT_EQ(most(bytes, "/normalizer", {{"type", "Strip"}}), kAny);
  EXPECT_EQ(most(bytes, "/added_tokens/0/lstrip", true), kAny);
  EXPECT_EQ(most(pieces, "/normalizer/normalizers/1/content", ""), kAny);
  EXPECT_EQ(most(pieces, "/model/byte_fallback", false), kAny);
  Json lacks = bytes;
  lacks["model"]["vocab"].erase("z");
  EXPECT_EQ(Parse(lacks)->max_token_bytes(), kAny);
  lacks = pieces;
  lacks["model"]["vocab"].erase("<0xC3>");
  EXPECT_EQ(Parse(lacks)->max_token_bytes(), kAny);
  lacks["model"]["fuse_unk"] = false;
  EXPECT_EQ(Parse(lacks)->max_token_bytes(), 6);
}

// No text is of fewer tokens than that allows.
TEST(TokenizerJsonTest, TextsBecomeAsManyTokensAsThatSays) {
  Json json = ByteLevelJson({"\u0390\u0390"});
  json["normalizer"] = {{"type", "NFC"}};
  Json spaces = SentencePieceStyleJson();
  spaces["model"]["vocab"]["▁▁"] = 264;
  spaces["model"]["merges"].push_back("▁ ▁");
  for (const Json& one : {json, spaces}) {
    const auto tokenizer = Parse(one);
    for (const std::string part : {"\u1fbe\u0308\u0301", "▁", " ", "ab", "é", "\xff", "</s>"}) {
      std::string text;
      for (int i = 0; i < 100; ++i) text += part;
      const auto tokens = std::ssize(tokenizer->Encode(text, SpecialTokens::kParsed));
      EXPECT_GE(tokens * tokenizer->max_token_bytes(), std::ssize(text)) << part;
    }
  }
}

std::vector<Json> EveryForm() {
  Json added = ByteLevelJson({"it", " it", "  "});
  added["added_tokens"].push_back({{"id", 300}, {"content", " é"}, {"special", false}});
  return {added, SentencePieceStyleJson(), MetaspaceJson("always"), MetaspaceJson("first"),
          MetaspaceJson("never")};
}

// A stream shows what all tokens are at once, whatever they are.
TEST(TokenizerJsonTest, StreamedPiecesAreTheWholeText) {
  for (const Json& json : EveryForm()) ExpectStreamsAreWholeTexts(*Parse(json));
}

// "always" puts no space before a text that begins with one.
TEST(TokenizerJsonTest, MegabytesComeBack) {
  for (const Json& json :
       {ByteLevelJson({"it", " it", "  "}), SentencePieceStyleJson(), MetaspaceJson("never")}) {
    ExpectMegabytesComeBack(*Parse(json));
  }
}

TEST(TokenizerJsonTest, RefusesByNameWhatItDoesNotSupport) {
  const auto refusal = [](const Json& base, const char* path, const Json& value) {
    Json json = base;
    json[Json::json_pointer(path)] = value;
    return Refusal(json);
  };
  const Json bytes = ByteLevelJson();
  const Json pieces = SentencePieceStyleJson();
  EXPECT_EQ(refusal(bytes, "/model/type", "WordPiece"),
            "tokenizer.json: model: type is \"WordPiece\"; supported: BPE, Unigram, WordLevel");
  EXPECT_EQ(refusal(bytes, "/normalizer", {{"type", "Lowercase"}}),
            "tokenizer.json: normalizer: type is \"Lowercase\"; supported: NFC, NFD, NFKC, NFKD, "
            "Prepend, Replace, Strip, Sequence");
  EXPECT_EQ(refusal(pieces, "/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
            "tokenizer.json: pre_tokenizer: type is \"BertPreTokenizer\"; supported: ByteLevel, "
            "Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Sequence");
  EXPECT_EQ(refusal(bytes, "/model/dropout", 0.1),
            "tokenizer.json: model: dropout is 0.1; supported: null, 0");
  EXPECT_EQ(refusal(bytes, "/model/end_of_word_suffix", "</w>"),
            "tokenizer.json: model: end_of_word_suffix is \"</w>\"; supported: null, \"\"");
  EXPECT_THAT(refusal(bytes, "/decoder", {{"type", "WordPiece"}}),
              StartsWith("tokenizer.json: decoder: type is \"WordPiece\"; supported: "));
  EXPECT_THAT(refusal(bytes, "/decoder", pieces["decoder"]),
              HasSubstr("decoder and pre_tokenizer differ"));
  EXPECT_EQ(refusal(pieces, "/decoder/decoders/0/content", "four"),
            "tokenizer.json: decoder.decoders[0]: content is \"four\"; supported: no longer than "
            "the pattern");
  EXPECT_THAT(refusal(bytes, "/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("supported: TemplateProcessing, ByteLevel, Sequence"));
  EXPECT_THAT(refusal(bytes, "/surprise", 1), HasSubstr("surprise is not a field that is known"));
  EXPECT_THAT(refusal(bytes, "/model/surprise", 1), HasSubstr("is not a field that is known"));
  EXPECT_EQ(refusal(pieces, "/model/merges/0", "a"),
            "tokenizer.json: model: merges[0] is \"a\"; allowed: two tokens of vocab that together "
            "are one");
  EXPECT_THAT(refusal(pieces, "/model/merges/0", {"a", "nowhere"}), HasSubstr("merges[0] is"));
  EXPECT_THAT(refusal(pieces, "/model/vocab/x", 2'000'000'000), HasSubstr("allowed: an integer"));
  EXPECT_THAT(refusal(pieces, "/model/vocab/x", -1), HasSubstr("allowed: an integer"));
  EXPECT_THAT(refusal(pieces, "/model/vocab/x", 5), HasSubstr("which"));
  EXPECT_THAT(refusal(pieces, "/model/unk_token", "nowhere"), HasSubstr("a token of vocab"));
  EXPECT_THAT(refusal(pieces, "/added_tokens/0/id", 7), HasSubstr("in vocab \"<unk>\" is 0"));
  EXPECT_THAT(refusal(pieces, "/added_tokens/0/content", ""), HasSubstr("1 to 256 bytes"));
  EXPECT_THAT(refusal(pieces, "/added_tokens/0/content", std::string(257, 'x')),
              HasSubstr("1 to 256 bytes"));
  EXPECT_THAT(refusal(pieces, "/post_processor/single", Json::array()), HasSubstr("supported: "));
  try {
    ParseTokenizerJson(pieces.dump(), "tokenizer.json", {});
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr("no token ends texts"));
  }
}

// Steps inside steps end where JSON is nested too deeply, many where there are too many.
TEST(TokenizerJsonTest, StepsAreBounded) {
  Json json = ByteLevelJson();
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", Json::array_t(40, Json{{"type", "NFC"}})}};
  EXPECT_THAT(Refusal(json), HasSubstr("more than 32 steps"));
}

// Whether by one step or by many that each make little.
TEST(TokenizerJsonTest, OutputOfStepsIsBounded) {
  const auto encodes = [](const Json& json, const std::string& text) {
    try {
      Parse(json)->Encode(text);
    } catch (const EncodeError& e) {
      EXPECT_THAT(e.what(), testing::StartsWith("the tokenizer's steps write "));
      return false;
    }
    return true;
  };
  Json spaces = SentencePieceStyleJson();
  spaces["normalizer"] = nullptr;
  spaces["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", std::string(4096, ' ')}};
  EXPECT_TRUE(encodes(spaces, "a b"));
  EXPECT_FALSE(encodes(spaces, std::string(100, ' ')));
  spaces["pre_tokenizer"]["replacement"] = "  ";
  spaces["pre_tokenizer"]["split"] = false;
  spaces["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", Json::array_t(30, spaces["pre_tokenizer"])}};
  EXPECT_FALSE(encodes(spaces, " "));
  Json prepends = SentencePieceStyleJson();
  prepends["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(4096, '_')}};
  prepends["added_tokens"].push_back(
      {{"id", 300}, {"content", "."}, {"special", false}, {"normalized", false}});
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "a.";
  EXPECT_TRUE(encodes(prepends, text.substr(0, 20)));
  EXPECT_FALSE(encodes(prepends, text));
}

TEST(TokenizerJsonTest, MemoryOfAddedTokensIsBounded) {
  const std::string dashes(240, '-');
  const auto refusal = [&](const std::string& end, const Json& normalizer) {
    Json json = ByteLevelJson();
    json["normalizer"] = normalizer;
    for (int i = 0; i < 20'000; ++i) {
      json["added_tokens"].push_back({{"id", 300 + i},
                                      {"content", std::to_string(100'000 + i) + end},
                                      {"normalized", !normalizer.is_null()}});
    }
    return Refusal(json);
  };
  EXPECT_EQ(refusal("-", nullptr), "accepted");
  EXPECT_EQ(refusal(dashes, nullptr),
            "tokenizer.json: added_tokens is more than 4194304 bytes of text; allowed: at most "
            "4194304");
  EXPECT_EQ(
      refusal("-", {{"type", "Replace"}, {"pattern", {{"String", "-"}}}, {"content", dashes}}),
      "tokenizer.json: added_tokens cannot be normalized: they become more than 4194304 "
      "bytes");
}

// Tables of names are no slower for those that were chosen to be.
TEST(TokenizerJsonTest, AVocabularyMadeToCollideIsReadAsOthers) {
  Json json = ByteLevelJson();
  int32_t id = 300;
  for (const std::string& text : CollidingTexts(32)) json["model"]["vocab"][text] = id++;
  EXPECT_EQ(Parse(json)->vocab_size(), 300 + 32 * 32 * 32);
}

TEST(TokenizerJsonTest, AFileThatIsCutShortAnywhereIsRefused) {
  const std::string text = SentencePieceStyleJson().dump();
  for (size_t length = 0; length < text.size(); length += 7) {
    EXPECT_THROW(ParseTokenizerJson(text.substr(0, length), "tokenizer.json", {.end_text = "</s>"}),
                 LoadError);
  }
}

// A flag that fine-tuning tools leave false, and tokens that are not added ones at all.
TEST(TokenizerJsonTest, TokensThatEndTextsAreSpecialWhateverTheirFlagSays) {
  Json json = ByteLevelJson({"ab", "end"});
  const int32_t flagged = json["added_tokens"][0]["id"];
  for (const char* text : {"<|im_end|>", "<stop>", "<plain>"}) {
    json["added_tokens"].push_back({{"id", flagged + std::ssize(json["added_tokens"])},
                                    {"content", text},
                                    {"special", false}});
  }
  const int32_t turn = flagged + 1, stop = flagged + 2, plain = flagged + 3;
  const int32_t merged = json["model"]["vocab"]["end"];
  const auto tokenizer = ParseTokenizerJson(json.dump(), "tokenizer.json",
                                            {.end_text = "<stop>", .end_tokens = {merged, 'b'}});
  EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(stop, merged, 'b'));
  for (const auto& [token, text] :
       {std::pair{stop, "<stop>"}, {merged, "end"}, {turn, "<|im_end|>"}}) {
    EXPECT_EQ(tokenizer->Decode(token), "") << text;
    EXPECT_THAT(tokenizer->Encode(text), testing::Not(testing::Contains(token)));
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
    EXPECT_THAT(tokenizer->Encode(text, SpecialTokens::kParsed), ElementsAre(token));
  }
  EXPECT_THAT(tokenizer->Encode("<plain>"), ElementsAre(plain));
  // Texts cannot do without a byte.
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("bb")), "bb");
}

}  // namespace
}  // namespace triptych::checkpoint::tokenizer_json_test
