#include "engine/checkpoint/tokenizer/llama2c_tokenizer.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/tokenizer/scored_pieces.h"

namespace triptych::checkpoint {
namespace {

constexpr int32_t kUnknown = 0;
constexpr int32_t kBeginToken = 1;
constexpr int32_t kEndToken = 2;
constexpr int32_t kFirstByte = 3;  // "<0x00>"; the other bytes follow
constexpr int32_t kFirstPiece = kFirstByte + 256;
constexpr int32_t kMaxLlama2cPieceBytes = 128;

}  // namespace

std::shared_ptr<const Tokenizer> ParseLlama2cTokenizer(std::string_view bytes,
                                                       const std::string& source) {
  // Files and supported machines are little-endian.
  const auto take = [&]<typename T>(T value) {
    if (bytes.size() < sizeof(T)) throw LoadError(source + ": ends inside a token");
    std::memcpy(&value, bytes.data(), sizeof(T));
    bytes.remove_prefix(sizeof(T));
    return value;
  };
  take(int32_t{});  // the longest length
  ScoredVocabulary vocabulary;
  std::vector<ScoredPiece>& pieces = vocabulary.pieces;
  while (!bytes.empty()) {
    CheckPieceCount(vocabulary, source);
    const auto score = take(float{});
    const auto length = take(int32_t{});
    if (length < 0 || length > kMaxLlama2cPieceBytes ||
        static_cast<size_t>(length) > bytes.size()) {
      throw LoadError(source + ": token " + std::to_string(pieces.size()) + " is " +
                      std::to_string(length) + " bytes long; allowed: 0 to " +
                      std::to_string(kMaxLlama2cPieceBytes) + ", and no more than the file holds");
    }
    pieces.push_back({.text = std::string(bytes.substr(0, length)), .score = score});
    bytes.remove_prefix(length);
  }
  if (std::ssize(pieces) < kFirstPiece) {
    throw LoadError(source + ": has " + std::to_string(pieces.size()) +
                    " tokens; allowed: at least " + std::to_string(kFirstPiece));
  }
  // The file has other texts for the special tokens.
  pieces[kUnknown].text.clear();
  pieces[kUnknown].kind = ScoredPiece::kUnknown;
  for (const auto& [token, text] : {std::pair{kBeginToken, "<s>"}, {kEndToken, "</s>"}}) {
    pieces[token].text = text;
    pieces[token].kind = ScoredPiece::kControl;
  }
  for (int32_t token = kFirstByte; token < kFirstPiece; ++token) {
    pieces[token].kind = ScoredPiece::kByte;
  }
  vocabulary.begin = kBeginToken;
  vocabulary.ends = {kEndToken};
  return MakeScoredTokenizer(std::move(vocabulary), source);
}

}  // namespace triptych::checkpoint
