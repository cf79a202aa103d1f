#include "engine/checkpoint/tokenizer/json_decoder.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "engine/base/quoted.h"
#include "engine/base/replace_all.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tokenizer/byte_level.h"
#include "engine/checkpoint/tokenizer/json_pipeline.h"
#include "engine/checkpoint/tokenizer/json_steps.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"
#include "engine/text/bpe.h"
#include "engine/text/pre_tokenizer.h"

namespace triptych::checkpoint {
namespace {

// Before Fuse a step changes each token, after it the whole text.
void ParseDecoderStep(Json json, const std::string& source, Decoding& decoding, bool& fused) {
  JsonFields fields(std::move(json), source);
  const std::string type = fields.Text("type");
  if (type == "Fuse") {
    fused = true;
  } else if (type == "Strip" && fused) {
    const std::string content = fields.Text("content");
    const int64_t start = fields.Int("start", {0, 1});
    fields.Int("stop", {0, 0});
    if (content != " ") fields.Refuse("content", Quoted(content), "supported: \" \"");
    decoding.drops_leading_space = start == 1;
  } else if (type == "ByteFallback" && !fused) {
    decoding.byte_fallback = true;
  } else if (type == "Replace" && !fused) {
    JsonFields pattern(fields.Take("pattern", nullptr), source + ": pattern");
    std::string what = NonEmptyText(pattern, "String");
    pattern.RefuseLeftOver();
    std::string by = fields.Text("content");
    if (by.size() > what.size()) {
      fields.Refuse("content", Quoted(by), "supported: no longer than the pattern");
    }
    decoding.replacements.push_back({std::move(what), std::move(by)});
  } else {
    fields.Refuse("type", Quoted(type),
                  "supported: Replace and ByteFallback, then Fuse, then Strip");
  }
  fields.RefuseLeftOver();
}

}  // namespace

std::string Decoding::Bytes(const std::string& piece) const {
  if (byte_level) return ByteLevelBytes(piece).value_or(piece);
  if (byte_fallback) {
    if (const std::optional<char> byte = FallbackByte(piece)) return std::string(1, *byte);
  }
  std::string bytes = before + piece;
  for (const Replacement& it : replacements) bytes = ReplaceAll(bytes, it.what, it.by);
  return bytes;
}

Decoding ParseDecoder(Json json, const std::string& source) {
  Decoding decoding;
  if (json.is_null()) {
    decoding.before = " ";
    decoding.drops_leading_space = true;
    return decoding;
  }
  JsonFields fields(std::move(json), source);
  const std::string type = fields.Text("type");
  const std::string supported =
      "supported: ByteLevel, Metaspace, Sequence of Replace, ByteFallback, Fuse, Strip";
  if (type == "ByteLevel") {
    decoding.byte_level = true;
    for (const char* option : {"add_prefix_space", "trim_offsets", "use_regex"}) {
      fields.Take(option, true);  // the decoder reads none of them
    }
  } else if (type == "Metaspace") {
    decoding.replacements.push_back({NonEmptyText(fields, "replacement", kMetaspace), " "});
    decoding.drops_leading_space = TakePrependScheme(fields) != PrependScheme::kNever;
    fields.Bool("split", true);
    fields.Take("str_rep", "");
  } else if (type == "Sequence") {
    Json list = fields.List("decoders");
    RequireFewSteps(list.size(), source);
    bool fused = false;
    for (size_t i = 0; i < list.size(); ++i) {
      ParseDecoderStep(std::move(list[i]), IndexedSource(source + ".decoders", i), decoding, fused);
    }
  } else {
    fields.Refuse("type", Quoted(type), supported);
  }
  fields.RefuseLeftOver();
  return decoding;
}

}  // namespace triptych::checkpoint
