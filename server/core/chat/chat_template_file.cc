#include "server/core/chat/chat_template_file.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <map>
#include <utility>

namespace triptych::server {
namespace {

constexpr std::string_view kAsciiSpaces = " \t\n\r\f\v";

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Offset of the first tag; the text's size if there is none.
size_t FindTag(std::string_view text) {
  for (size_t i = text.find('{'); i < text.size(); i = text.find('{', i + 1)) {
    const std::string_view tag = text.substr(i, 2);
    if (tag == "{{" || tag == "{%") return i;
  }
  return text.size();
}

// Removes the string literal at the front of `text`, or all of `text` if the literal does not end,
// and returns it in canonical quotes.
std::string TakeString(std::string_view& text) {
  const char quote = text.front();
  bool plain = true;  // contains no quotation mark, so either kind can delimit it
  std::string content;
  size_t i = 1;
  for (; i < text.size() && text[i] != quote; ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) content += text[i++];
    plain = plain && text[i] != '\'' && text[i] != '"';
    if (text[i] == '\n') {
      content += content.ends_with('\\') ? "\n" : "\\n";
    } else {
      content += text[i];
    }
  }
  text.remove_prefix(std::min(i + 1, text.size()));
  const char mark = plain ? '\'' : quote;
  return mark + content + mark;
}

// Removes the tag up to and including `end` from the front of `text`. Returns its content without
// the white space between Jinja's tokens.
std::string TakeTag(std::string_view& text, std::string_view end) {
  std::string tag;
  bool space = false;
  while (!text.empty() && !text.starts_with(end)) {
    const char c = text.front();
    if (kAsciiSpaces.find(c) != kAsciiSpaces.npos) {
      space = true;
      text.remove_prefix(1);
      continue;
    }
    if (std::exchange(space, false) && !tag.empty() && IsWordCharacter(tag.back()) &&
        IsWordCharacter(c)) {
      tag += ' ';
    }
    if (c == '\'' || c == '"') {
      tag += TakeString(text);
    } else {
      tag += c;
      text.remove_prefix(1);
    }
  }
  text.remove_prefix(std::min(end.size(), text.size()));
  return tag;
}

std::string Sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return hex;
}

}  // namespace

std::string CanonicalJinja(std::string_view text) {
  std::string canonical;
  if (text.ends_with('\n')) text.remove_suffix(1);
  bool strip = false;       // the last tag strips the text after it
  bool begins_line = true;  // the next text begins a line
  while (true) {
    std::string_view before = text.substr(0, FindTag(text));
    text.remove_prefix(before.size());
    const bool is_block = text.starts_with("{%");
    const bool strips_before = text.substr(0, 3).ends_with('-');
    if (strip)
      before.remove_prefix(std::min(before.find_first_not_of(kAsciiSpaces), before.size()));
    if (strips_before) {
      before = before.substr(0, before.find_last_not_of(kAsciiSpaces) + 1);
    } else if (is_block) {  // lstrip_blocks: strips the indentation
      const size_t end = before.find_last_not_of(" \t") + 1;
      if (end == 0 ? begins_line : before[end - 1] == '\n') before = before.substr(0, end);
    }
    canonical += before;
    if (text.empty()) return canonical;

    canonical += text.substr(0, 2);
    text.remove_prefix(strips_before ? 3 : 2);
    const std::string_view end = is_block ? "%}" : "}}";
    std::string tag = TakeTag(text, end);
    strip = tag.ends_with('-');
    if (strip) tag.pop_back();
    canonical.append(tag).append(end);
    begins_line = is_block && text.starts_with('\n');
    if (begins_line) text.remove_prefix(1);  // trim_blocks
  }
}

std::optional<ChatTemplate> KnownChatTemplate(std::string_view jinja) {
  // Keyed by the SHA-256 of canonical texts. tests/server/chat_templates/compare.mjs compares each
  // with its published text, and Render with what that text renders.
  static const std::map<std::string, ChatTemplate> known = {
      {"01a545b2213148253138be00177d7ca0964b9d821e64961e50a1f52942ea6d6e", ChatTemplate::kChatml},
      // With a default for add_generation_prompt.
      {"8e6fd0e647ba77482c4f486a1d4d9697af09f64dbd8785266f451c7bf26e1e9b", ChatTemplate::kChatml},
      {"eec3dad75908c008e6cf50b061da422c501828a9e37ec28f7e5651bfb766ba72", ChatTemplate::kLlama2},
      {"412eb5bf39199a0995a17c78eeb10d149ac623ee06a6efc14bfb487e85b4ca07", ChatTemplate::kLlama3},
      // The first published version: it always adds the generation prompt.
      {"364ec875ef3243578400a1ac7f6511ad66cb3a32de42658dd156639fe8fbb856", ChatTemplate::kLlama3},
      {"6584c6a067a338b58cfa64d22020bd890bbb61f1d57ff206f5a5840fc5d67ffd", ChatTemplate::kMistral},
      {"dee4947f00a36d02fcb560f91017570d95f4cca90952241dbcca43e88f5bad97", ChatTemplate::kPlain},
      {"7cb51489361f03e0f7e9529dd89aefe9a32c9ca9cd011b24e712a6168b4a0c1d", ChatTemplate::kZephyr},
  };
  const auto found = known.find(Sha256(CanonicalJinja(jinja)));
  if (found == known.end()) return std::nullopt;
  return found->second;
}

}  // namespace triptych::server
