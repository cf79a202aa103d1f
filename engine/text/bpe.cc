#include "engine/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>
#include <utility>

#include "engine/base/utf8.h"

namespace triptych {
namespace {

std::string ByteName(int byte) {
  char name[8];
  std::snprintf(name, sizeof(name), "<0x%02X>", byte);
  return name;
}

}  // namespace

std::optional<char> FallbackByte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  int byte = 0;
  for (const char c : piece.substr(3, 2)) {
    const size_t digit = std::string_view("0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    byte = byte * 16 + static_cast<int>(digit);
  }
  return static_cast<char>(byte);
}

Bpe::Bpe(std::vector<std::string> pieces, const std::vector<Merge>& merges, BpeOptions options)
    : pieces_(std::move(pieces)),
      merges_(std::bit_ceil(2 * merges.size() + 1), Merge{-1, -1, 0, 0}),
      options_(std::move(options)) {
  tokens_.reserve(pieces_.size());
  for (size_t token = 0; token < pieces_.size(); ++token) {
    if (!pieces_[token].empty()) tokens_.emplace(pieces_[token], static_cast<int32_t>(token));
  }
  for (const Merge& merge : merges) {
    Merge& place = merges_[Slot(merge.left, merge.right)];
    if (place.left < 0 || merge.rank < place.rank) place = merge;
  }
  for (int byte = 0; byte < 256; ++byte) {
    bytes_[byte] =
        Find(options_.symbols == BpeOptions::kBytes ? std::string(1, static_cast<char>(byte))
                                                    : ByteName(byte));
  }
}

std::optional<int32_t> Bpe::Find(std::string_view piece) const {
  const auto it = tokens_.find(piece);
  if (it == tokens_.end()) return std::nullopt;
  return it->second;
}

size_t Bpe::Slot(int32_t left, int32_t right) const {
  const uint64_t both = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  size_t slot = hash_(both) & (merges_.size() - 1);
  while (merges_[slot].left >= 0 && (merges_[slot].left != left || merges_[slot].right != right)) {
    slot = (slot + 1) & (merges_.size() - 1);
  }
  return slot;
}

const Merge* Bpe::FindMerge(int32_t left, int32_t right) const {
  const Merge& merge = merges_[Slot(left, right)];
  return merge.left < 0 ? nullptr : &merge;
}

void Bpe::Split(std::string_view word, Workspace& work) const {
  bool after_unknown = false;
  const auto add = [&](int32_t token) {
    const auto at = static_cast<int32_t>(work.symbols.size());
    work.symbols.push_back({token, at - 1, at + 1});
  };
  while (!word.empty()) {
    const size_t length = options_.symbols == BpeOptions::kBytes ? 1 : FirstUtf8Piece(word).length;
    const std::string_view symbol = word.substr(0, length);
    word.remove_prefix(length);
    const std::optional<int32_t> token = options_.symbols == BpeOptions::kBytes
                                             ? bytes_[static_cast<unsigned char>(symbol[0])]
                                             : Find(symbol);
    const auto is_token = [&](char c) { return bytes_[static_cast<unsigned char>(c)].has_value(); };
    if (token) {
      add(*token);
    } else if (options_.byte_fallback && std::all_of(symbol.begin(), symbol.end(), is_token)) {
      for (const char c : symbol) add(*bytes_[static_cast<unsigned char>(c)]);
    } else {
      if (options_.unknown && !(after_unknown && options_.fuse_unknown)) add(*options_.unknown);
      after_unknown = true;
      continue;
    }
    after_unknown = false;
  }
  if (!work.symbols.empty()) work.symbols.back().next = -1;
}

void Bpe::Push(Workspace& work, int32_t left, int32_t right) const {
  const int32_t a = work.symbols[left].token;
  const int32_t b = work.symbols[right].token;
  if (const Merge* const merge = FindMerge(a, b)) {
    work.queue.push_back(uint64_t{static_cast<uint32_t>(merge->rank)} << 32 |
                         static_cast<uint32_t>(left));
    if (IsUnused(merge->result)) work.parts[static_cast<uint64_t>(merge->result)] = {a, b};
  }
}

void Bpe::Add(int32_t token, const Workspace& work, std::vector<int32_t>& tokens) const {
  const auto parts =
      IsUnused(token) ? work.parts.find(static_cast<uint64_t>(token)) : work.parts.end();
  if (parts == work.parts.end()) {
    tokens.push_back(token);
    return;
  }
  Add(parts->second.first, work, tokens);
  Add(parts->second.second, work, tokens);
}

void Bpe::Encode(std::string_view word, Workspace& work, std::vector<int32_t>& tokens) const {
  if (options_.ignore_merges) {
    if (const std::optional<int32_t> token = Find(word)) {
      tokens.push_back(*token);
      return;
    }
  }
  work.symbols.clear();
  work.queue.clear();
  Split(word, work);
  const auto count = static_cast<int32_t>(work.symbols.size());
  for (int32_t i = 0; i + 1 < count; ++i) Push(work, i, i + 1);
  std::make_heap(work.queue.begin(), work.queue.end(), std::greater<>());
  const auto push = [&](int32_t left, int32_t right) {
    const size_t before = work.queue.size();
    Push(work, left, right);
    if (work.queue.size() > before) {
      std::push_heap(work.queue.begin(), work.queue.end(), std::greater<>());
    }
  };
  while (!work.queue.empty()) {
    std::pop_heap(work.queue.begin(), work.queue.end(), std::greater<>());
    const auto position = static_cast<int32_t>(work.queue.back());
    const auto rank = static_cast<int32_t>(work.queue.back() >> 32);
    work.queue.pop_back();
    ++work.candidates;
    Workspace::Symbol& left = work.symbols[position];
    if (left.token < 0 || left.next < 0) continue;
    Workspace::Symbol& right = work.symbols[left.next];
    const Merge* const merge = FindMerge(left.token, right.token);
    if (merge == nullptr || merge->rank != rank) continue;  // one of them was merged since then
    left.token = merge->result;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) work.symbols[left.next].previous = position;
    // SentencePiece's order, which decides how unused tokens are split.
    if (left.previous >= 0) push(left.previous, position);
    if (left.next >= 0) push(position, left.next);
  }
  for (int32_t at = count > 0 ? 0 : -1; at >= 0; at = work.symbols[at].next) {
    Add(work.symbols[at].token, work, tokens);
  }
}

std::optional<size_t> Bpe::MaxTokenBytes() const {
  constexpr size_t kMaxCharacterBytes = 4;
  const bool has_bytes = (options_.symbols == BpeOptions::kBytes || options_.byte_fallback) &&
                         std::all_of(bytes_.begin(), bytes_.end(),
                                     [](const auto& token) { return token.has_value(); });
  if (!has_bytes && (!options_.unknown || options_.fuse_unknown)) return std::nullopt;
  size_t most = has_bytes ? 1 : kMaxCharacterBytes;
  for (const std::string& piece : pieces_) most = std::max(most, piece.size());
  return most;
}

std::optional<std::vector<Merge>> MergesByScore(const std::vector<std::string>& pieces,
                                                const std::vector<float>& scores, size_t most) {
  std::unordered_map<std::string_view, int32_t, KeyedHash> tokens;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].empty()) tokens.emplace(pieces[i], static_cast<int32_t>(i));
  }
  std::vector<float> ranks = scores;
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::vector<Merge> merges;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i];
    const auto rank = std::lower_bound(ranks.begin(), ranks.end(), scores[i], std::greater<>());
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = tokens.find(piece.substr(0, cut));
      if (left == tokens.end()) continue;
      const auto right = tokens.find(piece.substr(cut));
      if (right == tokens.end()) continue;
      if (merges.size() == most) return std::nullopt;
      merges.push_back({left->second, right->second, static_cast<int32_t>(rank - ranks.begin()),
                        static_cast<int32_t>(i)});
    }
  }
  return merges;
}

}  // namespace triptych
