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

// Every way to split a piece in two is looked at.
constexpr size_t kMaxPieceBytes = 128;
// Published vocabularies have about two merges for each piece.
constexpr size_t kMaxMerges = size_t{1} << 22;

bool IsOneCharacter(std::string_view text) {
  return !text.empty() && FirstUtf8Piece(text).length == text.size();
}

// Makes the parts of a tokenizer out of scored pieces.
class PartsBuilder {
 public:
  PartsBuilder(ScoredVocabulary vocabulary, const std::string& source)
      : vocabulary_(std::move(vocabulary)),
        source_(source),
        merged_(vocabulary_.pieces.size()),
        unused_(vocabulary_.pieces.size()) {
    parts_.pieces.resize(vocabulary_.pieces.size());
    parts_.decoded.resize(vocabulary_.pieces.size());
    parts_.options.fuse_unknown = true;
  }

  BpeTokenizerParts Build() {
    CheckEnds();
    MakeEndsControl(vocabulary_);
    for (size_t token = 0; token < vocabulary_.pieces.size(); ++token) AddPiece(token);
    AddMerges();
    for (AddedToken& token : vocabulary_.added) Add(std::move(token));
    parts_.begin = vocabulary_.begin;
    parts_.ends = std::move(vocabulary_.ends);
    AddSpaces();
    return std::move(parts_);
  }

 private:
  [[noreturn]] void Refuse(size_t token, const std::string& why) const {
    throw LoadError(source_ + ": token " + std::to_string(token) + " " + why);
  }

  void AddPiece(size_t token) {
    const auto& [text, score, kind] = vocabulary_.pieces[token];
    if (!std::isfinite(score)) Refuse(token, "has no finite score");
    scores_.push_back(score);
    if (!text.empty() && !known_.insert(text).second) {
      Refuse(token, "is " + Quoted(text) + ", which another one is too");
    }
    switch (kind) {
      case ScoredPiece::kNormal:
      case ScoredPiece::kUnused:
        AddMerged(token);
        break;
      case ScoredPiece::kByte:
        AddByte(token);
        break;
      case ScoredPiece::kUnknown:
        parts_.options.unknown = parts_.options.unknown.value_or(static_cast<int32_t>(token));
        [[fallthrough]];
      case ScoredPiece::kControl:
      case ScoredPiece::kUserDefined:
        AddWhole(token);
        break;
    }
  }

  void AddMerged(size_t token) {
    const std::string& text = vocabulary_.pieces[token].text;
    if (text.size() > kMaxPieceBytes) {
      Refuse(token, "is " + Quoted(text) + "; allowed: at most " + std::to_string(kMaxPieceBytes) +
                        " bytes");
    }
    merged_[token] = text;
    // A character cannot be split: SentencePiece keeps it, used or not.
    unused_[token] =
        vocabulary_.pieces[token].kind == ScoredPiece::kUnused && !IsOneCharacter(text);
    if (unused_[token]) return;
    parts_.pieces[token] = text;
    parts_.decoded[token] = ReplaceAll(text, vocabulary_.space, " ");
  }

  void AddByte(size_t token) {
    const std::string& text = vocabulary_.pieces[token].text;
    const std::optional<char> byte = FallbackByte(text);
    if (!byte) {
      Refuse(token, "is " + Quoted(text) + "; allowed for bytes: \"<0x00>\" to \"<0xFF>\"");
    }
    parts_.pieces[token] = text;
    parts_.decoded[token] = std::string(1, *byte);
    parts_.options.byte_fallback = true;
  }

  // A token that is found in texts before anything is merged.
  void AddWhole(size_t token) {
    const auto& [text, score, kind] = vocabulary_.pieces[token];
    if (text.empty()) return;
    if (text.size() > kMaxAddedTokenBytes || FindInvalidUtf8(text)) {
      Refuse(token, "is " + Quoted(text) + "; allowed: UTF-8 of at most " +
                        std::to_string(kMaxAddedTokenBytes) + " bytes");
    }
    CountAdded(token, text);
    const bool special = kind != ScoredPiece::kUserDefined;
    parts_.added.push_back(
        {.token = static_cast<int32_t>(token), .text = text, .special = special});
    if (special) return;
    parts_.added.back().text = ReplaceAll(text, vocabulary_.space, " ");
    parts_.decoded[token] = parts_.added.back().text;
  }

  void CountAdded(size_t token, const std::string& text) {
    added_bytes_ += text.size();
    if (added_bytes_ <= kMaxAddedBytes) return;
    Refuse(token, "brings special and user-defined tokens to " + std::to_string(added_bytes_) +
                      " bytes; allowed: at most " + std::to_string(kMaxAddedBytes));
  }

  // Adds a token after the pieces.
  void Add(AddedToken token) {
    const auto id = static_cast<size_t>(token.token);
    const std::string& text = token.text;
    // Ids may have gaps, but memory must be in proportion to the files.
    const size_t most = 2 * (vocabulary_.pieces.size() + vocabulary_.added.size()) + 4096;
    if (token.token < 0 || id < parts_.decoded.size() || id > most) {
      Refuse(id, "is " + Quoted(text) + "; allowed for added tokens: ids from " +
                     std::to_string(parts_.decoded.size()) + " to " + std::to_string(most));
    }
    if (text.empty() || text.size() > kMaxAddedTokenBytes || FindInvalidUtf8(text)) {
      Refuse(id, "is " + Quoted(text) + "; allowed: UTF-8 of 1 to " +
                     std::to_string(kMaxAddedTokenBytes) + " bytes");
    }
    if (!known_.insert(text).second) {
      Refuse(id, "is " + Quoted(text) + ", which another one is too");
    }
    CountAdded(id, text);
    parts_.pieces.resize(id + 1);
    parts_.decoded.resize(id + 1);
    if (Ends(token.token)) token.special = true;
    if (!token.special) parts_.decoded[id] = text;
    parts_.added.push_back(std::move(token));
  }

  bool Ends(int32_t token) const {
    const std::vector<int32_t>& ends = vocabulary_.ends;
    return std::find(ends.begin(), ends.end(), token) != ends.end();
  }

  void CheckEnds() const {
    const size_t pieces = vocabulary_.pieces.size();
    const auto check = [&](int32_t token, const char* what) {
      const auto is_it = [&](const AddedToken& added) { return added.token == token; };
      if (token >= 0 && static_cast<size_t>(token) < pieces) return;
      if (std::any_of(vocabulary_.added.begin(), vocabulary_.added.end(), is_it)) return;
      throw LoadError(source_ + ": has no token " + std::to_string(token) + ", which is to " +
                      what + " texts");
    };
    if (vocabulary_.begin) check(*vocabulary_.begin, "begin");
    for (const int32_t end : vocabulary_.ends) check(end, "end");
    if (vocabulary_.ends.empty()) throw LoadError(source_ + ": no token ends texts");
  }

  void AddMerges() {
    std::optional<std::vector<Merge>> merges = MergesByScore(merged_, scores_, kMaxMerges);
    if (!merges) {
      throw LoadError(source_ + ": its pieces are made of others in more than " +
                      std::to_string(kMaxMerges) + " ways; allowed: at most " +
                      std::to_string(kMaxMerges));
    }
    parts_.merges = *std::move(merges);
    const auto made = std::find_if(parts_.merges.begin(), parts_.merges.end(),
                                   [&](const Merge& merge) { return unused_[merge.result]; });
    if (made == parts_.merges.end()) return;
    // SentencePiece splits an unused piece by every merge within a text. User-defined tokens end
    // such a text here.
    if (std::any_of(parts_.added.begin(), parts_.added.end(),
                    [](const AddedToken& token) { return !token.special; })) {
      Refuse(made->result,
             "is unused, and others merge to it; supported: no such token where some "
             "are user-defined");
    }
    parts_.options.unused = std::move(unused_);
  }

  void AddSpaces() {
    if (vocabulary_.adds_space) parts_.normalizer.emplace_back(PrependStep{vocabulary_.space});
    if (vocabulary_.space != " ") {
      parts_.normalizer.emplace_back(ReplaceStep{Regex(" ", Regex::Syntax::kLiteral, source_),
                                                 vocabulary_.space, /*match_bytes=*/1});
    }
    parts_.drops_leading_space = vocabulary_.adds_space;
  }

  ScoredVocabulary vocabulary_;
  const std::string& source_;
  BpeTokenizerParts parts_;
  std::vector<std::string> merged_;  // texts that merges may make, by token
  std::vector<bool> unused_;         // of those, the tokens that texts do not consist of
  std::vector<float> scores_;
  size_t added_bytes_ = 0;
  std::unordered_set<std::string_view, KeyedHash> known_;
};

}  // namespace

void MakeEndsControl(ScoredVocabulary& vocabulary) {
  for (const int32_t end : vocabulary.ends) {
    if (static_cast<size_t>(end) >= vocabulary.pieces.size()) continue;
    auto& [text, score, kind] = vocabulary.pieces[end];
    const bool merged = kind == ScoredPiece::kNormal && !IsOneCharacter(text);
    if (merged || kind == ScoredPiece::kUserDefined) kind = ScoredPiece::kControl;
  }
}

void CheckPieceCount(const ScoredVocabulary& vocabulary, const std::string& source) {
  if (vocabulary.pieces.size() < kMaxScoredPieces) return;
  throw LoadError(source + ": holds more than " + std::to_string(kMaxScoredPieces) +
                  " tokens; allowed: at most " + std::to_string(kMaxScoredPieces));
}

std::shared_ptr<const Tokenizer> MakeScoredTokenizer(ScoredVocabulary vocabulary,
                                                     const std::string& source) {
  return std::make_shared<const BpeTokenizer>(PartsBuilder(std::move(vocabulary), source).Build());
}

}  // namespace triptych::checkpoint
