#include "engine/text/unigram.h"

#include <algorithm>
#include <limits>

#include "engine/base/utf8.h"

namespace triptych {
namespace {

// A character that is no piece scores this much less than the lowest score.
constexpr double kUnknownPenalty = 10;
constexpr int32_t kNoToken = -1;

// The best way found to a place in a word.
struct Place {
  double score = -std::numeric_limits<double>::infinity();
  size_t from = 0;
  int32_t token = kNoToken;  // kNoToken: an unknown character
};

}  // namespace

Unigram::Unigram(UnigramParts parts) : parts_(std::move(parts)) {
  for (size_t token = 0; token < parts_.pieces.size(); ++token) {
    const std::string& piece = parts_.pieces[token];
    if (!piece.empty()) sorted_.emplace_back(piece, static_cast<int32_t>(token));
  }
  std::sort(sorted_.begin(), sorted_.end());
  for (size_t i = 0; i < sorted_.size(); ++i) {
    auto& [begin, end] = by_first_byte_[static_cast<unsigned char>(sorted_[i].first[0])];
    if (begin == end) begin = i;
    end = i + 1;
  }
}

template <typename OnPiece>
void Unigram::ForEachPiece(std::string_view text, const OnPiece& on_piece) const {
  const std::pair<size_t, size_t>& range = by_first_byte_[static_cast<unsigned char>(text[0])];
  size_t begin = range.first, end = range.second;
  // sorted_[begin, end) are the pieces that begin with the first `bytes` bytes of the text.
  for (size_t bytes = 1; begin < end; ++bytes) {
    if (sorted_[begin].first.size() == bytes) on_piece(sorted_[begin++].second, bytes);
    if (bytes == text.size()) return;
    const auto next = static_cast<unsigned char>(text[bytes]);
    const auto at = [&](size_t i) { return static_cast<unsigned char>(sorted_[i].first[bytes]); };
    const auto bound = [&](size_t first, int byte) {
      size_t last = end;
      while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (at(middle) < byte) {
          first = middle + 1;
        } else {
          last = middle;
        }
      }
      return first;
    };
    begin = bound(begin, next);
    end = bound(begin, next + 1);
  }
}

void Unigram::Encode(std::string_view word, std::vector<int32_t>& tokens) const {
  std::vector<Place> places(word.size() + 1);
  places[0].score = 0;
  const double unknown_score = parts_.lowest_score - kUnknownPenalty;
  for (size_t at = 0; at < word.size();) {
    const size_t character = FirstUtf8Piece(word.substr(at)).length;
    const double score = places[at].score;
    const auto reach = [&](size_t bytes, double reached, int32_t token) {
      Place& place = places[at + bytes];
      if (reached > place.score) place = {reached, at, token};
    };
    bool is_piece = false;
    ForEachPiece(word.substr(at), [&](int32_t token, size_t bytes) {
      is_piece = is_piece || bytes == character;
      reach(bytes, score + parts_.scores[token], token);
    });
    if (!is_piece) reach(character, score + unknown_score, kNoToken);
    at += character;
  }
  std::vector<std::pair<size_t, size_t>> ranges;  // from the end
  for (size_t end = word.size(); end > 0; end = places[end].from) {
    ranges.emplace_back(places[end].from, end);
  }
  size_t run = 0;  // bytes of the unknown characters before
  for (auto it = ranges.rbegin(); it != ranges.rend(); ++it) {
    const auto [from, end] = *it;
    const int32_t token = places[end].token;
    if (token == kNoToken) {
      run += end - from;
      continue;
    }
    if (run > 0) AddUnknown(word.substr(from - run, run), tokens);
    run = 0;
    tokens.push_back(token);
  }
  if (run > 0) AddUnknown(word.substr(word.size() - run), tokens);
}

void Unigram::AddUnknown(std::string_view run, std::vector<int32_t>& tokens) const {
  if (!parts_.bytes.empty()) {
    for (const char c : run) tokens.push_back(parts_.bytes[static_cast<unsigned char>(c)]);
  } else if (parts_.unknown) {
    tokens.push_back(*parts_.unknown);
  }
}

std::optional<size_t> Unigram::MaxTokenBytes() const {
  if (parts_.bytes.empty()) return std::nullopt;
  size_t most = 1;
  for (const auto& [piece, token] : sorted_) most = std::max(most, piece.size());
  return most;
}

}  // namespace triptych
