#include "engine/checkpoint/tokenizer/scored_pieces.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/keyed_hash.h"
#include "engine/base/quoted.h"
#include "engine/base/replace_all.h"
#include "engine/base/utf8.h"
#include "engine/text/bpe_tokenizer.h"

namespace triptych::checkpoint {
namespace {

// All ways to cut a piece in two are looked at.
constexpr size_t kMaxPieceBytes = 128;
// Of published vocabularies, about two for each piece.
constexpr size_t kMaxMerges = size_t{1} << 22;

bool IsOneCharacter(std::string_view text) {
  return !text.empty() && FirstUtf8Piece(text).length == text.size();
}

}  // namespace

void CheckPieceCount(const ScoredVocabulary& vocabulary, const std::string& source) {
  if (vocabulary.pieces.size() < kMaxScoredPieces) return;
  throw LoadError(source + ": holds more than " + std::to_string(kMaxScoredPieces) +
                  " tokens; allowed: at most so many");
}

std::shared_ptr<const Tokenizer> MakeScoredTokenizer(ScoredVocabulary vocabulary,
                                                     const std::string& source) {
  const size_t count = vocabulary.pieces.size();
  const auto refuse = [&](size_t token, const std::string& why) {
    throw LoadError(source + ": token " + std::to_string(token) + " " + why);
  };
  BpeTokenizerParts parts;
  parts.pieces.resize(count);
  parts.decoded.resize(count);
  parts.options.fuse_unknown = true;
  std::vector<std::string> merged(count);  // what merges may make
  std::vector<bool> unused(count);         // of it, what texts are not made of
  std::vector<float> scores;
  size_t added_bytes = 0;
  std::unordered_set<std::string_view, KeyedHash> known;
  for (size_t token = 0; token < count; ++token) {
    const auto& [text, score, kind] = vocabulary.pieces[token];
    if (!std::isfinite(score)) refuse(token, "has no finite score");
    scores.push_back(score);
    if (!text.empty() && !known.insert(text).second) {
      refuse(token, "is " + Quoted(text) + ", which another one is too");
    }
    const auto id = static_cast<int32_t>(token);
    switch (kind) {
      case ScoredPiece::kNormal:
      case ScoredPiece::kUnused:
        if (text.size() > kMaxPieceBytes) {
          refuse(token, "is " + Quoted(text) + "; allowed: at most 128 bytes");
        }
        merged[token] = text;
        // A character cannot be taken apart: SentencePiece leaves it, used or not.
        unused[token] = kind == ScoredPiece::kUnused && !IsOneCharacter(text);
        if (unused[token]) break;
        parts.pieces[token] = text;
        parts.decoded[token] = ReplaceAll(text, vocabulary.space, " ");
        break;
      case ScoredPiece::kByte: {
        const std::optional<char> byte = FallbackByte(text);
        if (!byte)
          refuse(token, "is " + Quoted(text) + "; allowed for bytes: \"<0x00>\" to \"<0xFF>\"");
        parts.pieces[token] = text;
        parts.decoded[token] = std::string(1, *byte);
        parts.options.byte_fallback = true;
        break;
      }
      case ScoredPiece::kUnknown:
        parts.options.unknown = parts.options.unknown.value_or(id);
        [[fallthrough]];
      case ScoredPiece::kControl:
      case ScoredPiece::kUserDefined:
        if (text.empty()) break;
        if (text.size() > kMaxAddedTokenBytes || FindInvalidUtf8(text)) {
          refuse(token, "is " + Quoted(text) + "; allowed: UTF-8 of at most 256 bytes");
        }
        added_bytes += text.size();
        if (added_bytes > kMaxAddedBytes) {
          refuse(token, "makes special and user-defined ones more than " +
                            std::to_string(kMaxAddedBytes) + " bytes; allowed: at most so many");
        }
        parts.added.push_back(
            {.token = id, .text = text, .special = kind != ScoredPiece::kUserDefined});
        if (kind == ScoredPiece::kUserDefined) {
          parts.added.back().text = ReplaceAll(text, vocabulary.space, " ");
          parts.decoded[token] = parts.added.back().text;
        }
        break;
    }
  }
  const auto check = [&](int32_t token, const char* what) {
    if (token >= 0 && static_cast<size_t>(token) < count) return;
    throw LoadError(source + ": has no token " + std::to_string(token) + ", which is to " + what +
                    " texts");
  };
  if (vocabulary.begin) check(*vocabulary.begin, "begin");
  for (const int32_t end : vocabulary.ends) check(end, "end");
  if (vocabulary.ends.empty()) throw LoadError(source + ": no token ends texts");

  std::optional<std::vector<Merge>> merges = MergesByScore(merged, scores, kMaxMerges);
  if (!merges) {
    throw LoadError(source + ": its pieces are made of others in more than " +
                    std::to_string(kMaxMerges) + " ways; allowed: at most so many");
  }
  parts.merges = *std::move(merges);
  const auto made = std::find_if(parts.merges.begin(), parts.merges.end(),
                                 [&](const Merge& merge) { return unused[merge.result]; });
  if (made != parts.merges.end()) {
    // SentencePiece takes it apart by all that can be merged in a text, which those cut here.
    if (std::any_of(parts.added.begin(), parts.added.end(),
                    [](const AddedToken& token) { return !token.special; })) {
      refuse(made->result,
             "is unused, and others merge to it; supported: no such token where some "
             "are user-defined");
    }
    parts.options.unused = std::move(unused);
  }
  if (vocabulary.adds_space) parts.normalizer.emplace_back(PrependStep{vocabulary.space});
  if (vocabulary.space != " ") {
    parts.normalizer.emplace_back(ReplaceStep{Regex(" ", Regex::Syntax::kLiteral, source),
                                              vocabulary.space, /*match_bytes=*/1});
  }
  parts.drops_leading_space = vocabulary.adds_space;
  parts.begin = vocabulary.begin;
  parts.ends = std::move(vocabulary.ends);
  return std::make_shared<const BpeTokenizer>(std::move(parts));
}

}  // namespace triptych::checkpoint
