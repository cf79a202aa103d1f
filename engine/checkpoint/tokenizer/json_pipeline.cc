#include "engine/checkpoint/tokenizer/json_pipeline.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/tokenizer/json_steps.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/text/regex.h"

namespace triptych::checkpoint {
namespace {

// The pattern of GPT-2's byte-level pre-tokenizer, which use_regex turns off.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Words, and runs of other characters that are no white space. PCRE2's \\w is narrower.
constexpr char kWordPattern[] = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|)"
                                R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+)";

Regex Pattern(Json json, const std::string& source) {
  JsonFields pattern(std::move(json), source + ": pattern");
  const bool literal = pattern.Has("String");
  const std::string field = literal ? "String" : "Regex";
  const std::string text = NonEmptyText(pattern, field);
  pattern.RefuseLeftOver();
  return Regex(text, literal ? Regex::Syntax::kLiteral : Regex::Syntax::kPattern,
               source + ": pattern." + field);
}

void ParseMetaspace(JsonFields& fields, const std::string& source, TextPipeline& pipeline) {
  std::string replacement = NonEmptyText(fields, "replacement", kMetaspace);
  const PrependScheme scheme = TakePrependScheme(fields);
  pipeline.pre_tokenizer.emplace_back(MetaspaceStep{replacement, scheme});
  fields.Take("str_rep", "");  // older files repeat the replacement here
  if (!fields.Bool("split", true)) return;
  pipeline.pre_tokenizer.emplace_back(SplitStep{Regex(replacement, Regex::Syntax::kLiteral, source),
                                                SplitBehavior::kMergedWithNext, false});
}

}  // namespace

PrependScheme TakePrependScheme(JsonFields& fields) {
  const bool legacy = fields.Bool("add_prefix_space", true);
  return fields.Choice<PrependScheme>("prepend_scheme", legacy ? "always" : "never");
}

void ParseNormalizer(Json json, const std::string& source, TextPipeline& pipeline) {
  if (json.is_null()) return;
  RequireFewSteps(pipeline.normalizer.size(), source);
  JsonFields fields(std::move(json), source);
  const std::string type = fields.Text("type");
  std::vector<NormalizerStep>& steps = pipeline.normalizer;
  if (type == "NFC") {
    steps.emplace_back(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    steps.emplace_back(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    steps.emplace_back(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    steps.emplace_back(UnicodeForm::kNfkd);
  } else if (type == "Prepend") {
    steps.emplace_back(PrependStep{NonEmptyText(fields, "prepend")});
  } else if (type == "Replace") {
    std::string by = fields.Text("content");
    const Json what = fields.Take("pattern", nullptr);
    std::optional<size_t> match_bytes;
    if (what.is_object() && what.contains("String") && what["String"].is_string()) {
      match_bytes = what["String"].get_ref<const std::string&>().size();
    }
    steps.emplace_back(ReplaceStep{Pattern(what, source), std::move(by), match_bytes});
  } else if (type == "Strip") {
    const bool left = fields.Bool("strip_left", true);
    steps.emplace_back(StripStep{left, fields.Bool("strip_right", true)});
  } else if (type == "Sequence") {
    Json list = fields.List("normalizers");
    for (size_t i = 0; i < list.size(); ++i) {
      ParseNormalizer(std::move(list[i]), IndexedSource(source + ".normalizers", i), pipeline);
    }
  } else {
    fields.Refuse("type", Quoted(type),
                  "supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Sequence");
  }
  fields.RefuseLeftOver();
}

void ParsePreTokenizer(Json json, const std::string& source, TextPipeline& pipeline) {
  if (json.is_null()) return;
  RequireFewSteps(pipeline.pre_tokenizer.size(), source);
  if (pipeline.byte_level) {
    throw LoadError(source + ": comes after ByteLevel; supported: before it");
  }
  JsonFields fields(std::move(json), source);
  const std::string type = fields.Text("type");
  std::vector<PreTokenizerStep>& steps = pipeline.pre_tokenizer;
  if (type == "ByteLevel") {
    pipeline.byte_level = true;
    if (fields.Bool("add_prefix_space", true)) steps.emplace_back(PrefixSpaceStep{});
    if (fields.Bool("use_regex", true)) {
      steps.emplace_back(SplitStep{Regex(kByteLevelPattern, Regex::Syntax::kPattern, source),
                                   SplitBehavior::kIsolated, false});
    }
    fields.Take("trim_offsets", true);  // of offsets, which are not served
  } else if (type == "Split") {
    Regex pattern = Pattern(fields.Take("pattern", nullptr), source);
    const auto behavior = fields.Choice<SplitBehavior>("behavior");
    steps.emplace_back(SplitStep{std::move(pattern), behavior, fields.Bool("invert", false)});
  } else if (type == "Digits") {
    const bool individual = fields.Bool("individual_digits", false);
    steps.emplace_back(SplitStep{Regex("\\p{N}", Regex::Syntax::kPattern, source),
                                 individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                                 false});
  } else if (type == "Whitespace") {
    steps.emplace_back(SplitStep{Regex(kWordPattern, Regex::Syntax::kPattern, source),
                                 SplitBehavior::kRemoved, true});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(
        SplitStep{Regex("\\s", Regex::Syntax::kPattern, source), SplitBehavior::kRemoved, false});
  } else if (type == "Metaspace") {
    ParseMetaspace(fields, source, pipeline);
  } else if (type == "Sequence") {
    Json list = fields.List("pretokenizers");
    for (size_t i = 0; i < list.size(); ++i) {
      ParsePreTokenizer(std::move(list[i]), IndexedSource(source + ".pretokenizers", i), pipeline);
    }
  } else {
    fields.Refuse("type", Quoted(type),
                  "supported: ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, "
                  "Sequence");
  }
  fields.RefuseLeftOver();
}

}  // namespace triptych::checkpoint
