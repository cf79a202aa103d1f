// Small tokenizer.json files in published forms.
#ifndef TRIPTYCH_TESTS_SUPPORT_TOKENIZER_FILES_H_
#define TRIPTYCH_TESTS_SUPPORT_TOKENIZER_FILES_H_

#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/json.h"

namespace triptych {

// GPT-2's form: tokens 0 to 255 are bytes, tokens from 256 are `words`, and "</s>" is the last.
// Every word is merged letter by letter from its end, if its letters are ASCII.
inline Json ByteLevelJson(const std::vector<std::string>& words = {}) {
  Json vocab;
  std::vector<std::string> letters(256);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int code_point = printed ? byte : next++;
    letters[byte] = code_point < 0x80 ? std::string(1, static_cast<char>(code_point))
                                      : std::string{static_cast<char>(0xC0 | code_point >> 6),
                                                    static_cast<char>(0x80 | (code_point & 0x3F))};
    vocab[letters[byte]] = byte;
  }
  Json merges = Json::array();
  int id = 256;
  for (const std::string& word : words) {
    std::string tail = letters[static_cast<unsigned char>(word.back())];
    for (size_t i = word.size() - 1; i-- > 0;) {
      const std::string& head = letters[static_cast<unsigned char>(word[i])];
      const std::string merge = head + " " + tail;
      tail = head + tail;
      if (vocab.contains(tail)) continue;
      merges.push_back(merge);
      vocab[tail] = id++;
    }
  }
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", id}, {"content", "</s>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

// ByteLevelJson() whose texts begin with "<s>", token 257, and end with "</s>", token 256.
inline Json BeginAndEndJson() {
  Json json = ByteLevelJson();
  json["added_tokens"].push_back({{"id", 257}, {"content", "<s>"}, {"special", true}});
  const Json begin = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json end = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", Json::array({begin, text, end})}};
  return json;
}

// Llama 2's form: tokens 3 to 258 are bytes, 259 is a space; then come "a", "b", "ab", " ab".
inline Json SentencePieceStyleJson() {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocab[name] = 3 + byte;
  }
  int id = 259;
  for (const char* piece : {"▁", "a", "b", "ab", "▁ab"}) vocab[piece] = id++;
  Json added = Json::array();
  for (const char* text : {"<unk>", "<s>", "</s>"}) {
    added.push_back({{"id", vocab[text]}, {"content", text}, {"special", true}});
  }
  const Json space = {{"String", " "}};
  const Json mark = {{"String", "▁"}};
  const Json begin = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {
      {"added_tokens", added},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "▁"}},
          {{"type", "Replace"}, {"pattern", space}, {"content", "▁"}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor", {{"type", "TemplateProcessing"}, {"single", Json::array({begin, text})}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", mark}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", {"a b", "▁ ab"}}}}};
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_TOKENIZER_FILES_H_
