// Unigram language model of words (Kudo 2018, arXiv:1804.10959): the likeliest segmentation.
#ifndef TRIPTYCH_ENGINE_TEXT_UNIGRAM_H_
#define TRIPTYCH_ENGINE_TEXT_UNIGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/word_model.h"

namespace triptych {

struct UnigramParts {
  std::vector<std::string> pieces;  // by token; "" for tokens of which words do not consist
  std::vector<double> scores;       // by token: the logarithm of its probability
  double lowest_score = 0;          // of all tokens
  // The token of characters that are no piece. A run of them becomes one; absent: they are dropped.
  std::optional<int32_t> unknown;
  // By byte: the tokens that such a run becomes instead, one for each byte. Empty: none.
  std::vector<int32_t> bytes;
};

// Chooses the segmentation with the highest sum of scores, among equal ones the one that reaches
// each place first from the left. A character that is no piece scores 10 less than the lowest.
class Unigram final : public WordModel {
 public:
  // Most bytes of a piece: each place of a word is looked up this many bytes ahead.
  static constexpr size_t kMaxPieceBytes = 256;

  // REQUIRES: pieces other than "" are distinct, and at most kMaxPieceBytes long; `scores` has as
  // many elements, all finite; `bytes` has 0 or 256.
  explicit Unigram(UnigramParts parts);
  Unigram(const Unigram&) = delete;
  Unigram& operator=(const Unigram&) = delete;

  void Encode(std::string_view word, std::vector<int32_t>& tokens) const override;
  std::optional<size_t> MaxTokenBytes() const override;
  std::string_view kind() const override { return "Unigram"; }

 private:
  // Calls on_piece(token, bytes) for each piece that begins the text, the shortest first.
  template <typename OnPiece>
  void ForEachPiece(std::string_view text, const OnPiece& on_piece) const;
  void AddUnknown(std::string_view run, std::vector<int32_t>& tokens) const;

  UnigramParts parts_;
  std::vector<std::pair<std::string_view, int32_t>> sorted_;  // pieces and their tokens
  // The range of sorted_ that begins with each byte.
  std::array<std::pair<size_t, size_t>, 256> by_first_byte_ = {};
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_UNIGRAM_H_
