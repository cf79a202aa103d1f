#include "engine/checkpoint/llama2c_tokenizer.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/text/bpe_tokenizer.h"

namespace triptych {
namespace {

constexpr int32_t kUnknown = 0;
constexpr int32_t kBegin = 1;
constexpr int32_t kEnd = 2;
constexpr int32_t kFirstByte = 3;  // "<0x00>" and those after it
constexpr int32_t kFirstPiece = kFirstByte + 256;
constexpr int32_t kMaxPieceBytes = 128;

}  // namespace

std::shared_ptr<const Tokenizer> ParseLlama2cTokenizer(std::string_view bytes,
                                                       const std::string& source) {
  // Little-endian, as the machines are that this is built for.
  const auto take = [&]<typename T>(T value) {
    if (bytes.size() < sizeof(T)) throw LoadError(source + ": ends inside a token");
    std::memcpy(&value, bytes.data(), sizeof(T));
    bytes.remove_prefix(sizeof(T));
    return value;
  };
  take(int32_t{});  // the longest length
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::set<std::string_view> known;
  while (!bytes.empty()) {
    const std::string token = source + ": token " + std::to_string(pieces.size());
    scores.push_back(take(float{}));
    if (!std::isfinite(scores.back())) throw LoadError(token + " has no finite score");
    const auto length = take(int32_t{});
    if (length < 0 || length > kMaxPieceBytes || static_cast<size_t>(length) > bytes.size()) {
      throw LoadError(token + " is " + std::to_string(length) + " bytes long; allowed: 0 to " +
                      std::to_string(kMaxPieceBytes) + ", and no more than the file holds");
    }
    const std::string_view piece = bytes.substr(0, length);
    bytes.remove_prefix(length);
    if (length > 0 && !known.insert(piece).second) throw LoadError(token + " is another one too");
    pieces.emplace_back(piece);
  }
  if (std::ssize(pieces) < kFirstPiece) {
    throw LoadError(source + ": has " + std::to_string(pieces.size()) +
                    " tokens; allowed: at least " + std::to_string(kFirstPiece));
  }
  BpeTokenizerParts parts;
  parts.decoded = pieces;
  for (int byte = 0; byte < 256; ++byte) {
    parts.decoded[kFirstByte + byte] = std::string(1, static_cast<char>(byte));
  }
  // Text makes none of these.
  std::vector<std::string> of_text = pieces;
  for (int32_t token = 0; token < kFirstPiece; ++token) of_text[token].clear();
  for (const int32_t token : {kUnknown, kBegin, kEnd}) {
    parts.decoded[token].clear();
    pieces[token].clear();
  }
  for (const auto& [token, text] : {std::pair{kBegin, "<s>"}, {kEnd, "</s>"}}) {
    parts.added.push_back({.token = token, .text = text, .special = true});
  }
  parts.merges = MergesByScore(of_text, scores);
  parts.pieces = std::move(pieces);
  parts.options.byte_fallback = true;
  parts.options.unknown = kUnknown;
  parts.normalizer.emplace_back(PrependStep{" "});
  parts.drops_leading_space = true;
  parts.begin = kBegin;
  parts.ends = {kEnd};
  return std::make_shared<const BpeTokenizer>(std::move(parts));
}

}  // namespace triptych
