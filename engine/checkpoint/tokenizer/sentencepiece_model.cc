#include "engine/checkpoint/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/tokenizer/protobuf_wire.h"

namespace triptych::checkpoint {
namespace {

// The fields used of ModelProto, SentencePiece, TrainerSpec and NormalizerSpec
// (sentencepiece_model.proto).
enum ModelField : uint64_t { kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5 };
enum PieceField : uint64_t { kText = 1, kScore = 2, kType = 3 };
enum TrainerField : uint64_t {
  kModelType = 3,
  kSpaceAsSuffix = 24,
  kByteFallback = 35,
  kBeginPiece = 46,
  kEndPiece = 47,
};
enum NormalizerField : uint64_t {
  kNormalizerName = 1,
  kCharsMap = 2,
  kAddDummyPrefix = 3,
  kRemoveExtraSpaces = 4,
  kEscapeSpaces = 5,
};
constexpr uint64_t kUnigram = 1;
constexpr uint64_t kBpe = 2;
// Types of pieces by their numbers, from 1 on.
constexpr ScoredPiece::Kind kKinds[] = {ScoredPiece::kNormal,  ScoredPiece::kUnknown,
                                        ScoredPiece::kControl, ScoredPiece::kUserDefined,
                                        ScoredPiece::kUnused,  ScoredPiece::kByte};

struct Specs {
  uint64_t model_type = kUnigram;
  bool space_as_suffix = false;
  std::string_view begin_piece = "<s>";
  std::string_view end_piece = "</s>";
  bool adds_space = true;
  bool removes_spaces = true;
  bool escapes_spaces = true;
};

ScoredPiece ReadPiece(std::string_view bytes, size_t token, const std::string& source) {
  ScoredPiece piece;
  WireReader reader(bytes, source);
  for (WireReader::Field field; reader.Next(field);) {
    if (field.number == kText) piece.text = field.bytes;
    if (field.number == kScore && field.bytes.size() == sizeof(float)) {
      std::memcpy(&piece.score, field.bytes.data(), sizeof(float));  // little-endian
    }
    if (field.number != kType) continue;
    if (field.value < 1 || field.value > std::size(kKinds)) {
      throw LoadError(source + ": token " + std::to_string(token) + " is of type " +
                      std::to_string(field.value) + "; allowed: 1 to 6");
    }
    piece.kind = kKinds[field.value - 1];
  }
  return piece;
}

void ReadTrainer(std::string_view bytes, const std::string& source, Specs& specs) {
  WireReader reader(bytes, source);
  for (WireReader::Field field; reader.Next(field);) {
    if (field.number == kModelType) specs.model_type = field.value;
    if (field.number == kSpaceAsSuffix) specs.space_as_suffix = field.value != 0;
    if (field.number == kBeginPiece) specs.begin_piece = field.bytes;
    if (field.number == kEndPiece) specs.end_piece = field.bytes;
  }
}

void RefuseCharsMap(const WireReader::Field& field, const std::string& source) {
  if (field.number != kCharsMap || field.bytes.empty()) return;
  throw LoadError(source + ": normalizer_spec.precompiled_charsmap is " +
                  std::to_string(field.bytes.size()) +
                  " bytes; supported: none, as in models that keep characters as they are");
}

void ReadNormalizer(std::string_view bytes, const std::string& source, Specs& specs) {
  WireReader reader(bytes, source);
  for (WireReader::Field field; reader.Next(field);) {
    RefuseCharsMap(field, source);
    if (field.number == kAddDummyPrefix) specs.adds_space = field.value != 0;
    if (field.number == kRemoveExtraSpaces) specs.removes_spaces = field.value != 0;
    if (field.number == kEscapeSpaces) specs.escapes_spaces = field.value != 0;
  }
}

void CheckSpecs(const Specs& specs, const std::string& source) {
  const auto refuse = [&](const char* field, const std::string& value, const char* supported) {
    throw LoadError(source + ": " + field + " is " + value + "; supported: " + supported);
  };
  if (specs.model_type != kBpe) {
    refuse("trainer_spec.model_type", std::to_string(specs.model_type), "2 (BPE)");
  }
  if (specs.space_as_suffix) refuse("trainer_spec.treat_whitespace_as_suffix", "true", "false");
  if (specs.removes_spaces) refuse("normalizer_spec.remove_extra_whitespaces", "true", "false");
  if (!specs.escapes_spaces) refuse("normalizer_spec.escape_whitespaces", "false", "true");
}

// Completes a vocabulary whose pieces have been read.
class Completion {
 public:
  Completion(const std::string& source, const Specs& specs, const TokenizerSettings& settings,
             TokenizerNotes& notes, ScoredVocabulary& vocabulary)
      : source_(source),
        specs_(specs),
        settings_(settings),
        notes_(notes),
        vocabulary_(vocabulary) {}

  void Run() {
    RequireNoUserDefined();
    vocabulary_.space = kMetaspace;
    vocabulary_.adds_space = settings_.adds_space.value_or(specs_.adds_space);
    AddTokens();
    TakeBegin();
    TakeEnds();
  }

 private:
  void RequireNoUserDefined() const {
    const std::vector<ScoredPiece>& pieces = vocabulary_.pieces;
    const auto found = std::find_if(pieces.begin(), pieces.end(), [](const ScoredPiece& piece) {
      return piece.kind == ScoredPiece::kUserDefined;
    });
    if (!specs_.adds_space || found == pieces.end()) return;
    throw LoadError(source_ + ": token " + std::to_string(found - pieces.begin()) +
                    " is user-defined; supported: none where normalizer_spec.add_dummy_prefix is "
                    "true");
  }

  // Files repeat pieces of the model as added tokens.
  void AddTokens() {
    for (const AddedToken& token : settings_.added) {
      const auto id = static_cast<size_t>(token.token);
      if (id >= vocabulary_.pieces.size()) {
        vocabulary_.added.push_back(token);
        vocabulary_.added.back().special = token.special || OnlyEndsTurns(token.text);
      } else if (vocabulary_.pieces[id].text != token.text) {
        notes_.warnings.push_back("the added token " + Quoted(token.text) + " has the id " +
                                  std::to_string(id) + " of a piece of tokenizer.model, " +
                                  Quoted(vocabulary_.pieces[id].text) + ", and is passed over");
      }
    }
  }

  std::optional<int32_t> Find(std::string_view text) const {
    for (const AddedToken& token : vocabulary_.added) {
      if (token.text == text) return token.token;
    }
    const std::vector<ScoredPiece>& pieces = vocabulary_.pieces;
    const auto found = std::find_if(pieces.begin(), pieces.end(),
                                    [&](const ScoredPiece& piece) { return piece.text == text; });
    if (found == pieces.end()) return std::nullopt;
    return static_cast<int32_t>(found - pieces.begin());
  }

  // One of the model's own tokens.
  std::optional<int32_t> FindControl(std::string_view text) const {
    const std::optional<int32_t> found = Find(text);
    const auto pieces = std::ssize(vocabulary_.pieces);
    if (!found || *found >= pieces) return std::nullopt;
    return vocabulary_.pieces[*found].kind == ScoredPiece::kControl ? found : std::nullopt;
  }

  void TakeBegin() {
    if (!settings_.begins.value_or(true)) return;
    if (settings_.begin_text) {
      vocabulary_.begin = Find(*settings_.begin_text);
      notes_.begin = "bos_token of tokenizer_config.json";
      if (vocabulary_.begin) return;
      notes_.warnings.push_back("tokenizer_config.json: bos_token " +
                                Quoted(*settings_.begin_text) +
                                " is no token of tokenizer.model, and is passed over");
    }
    vocabulary_.begin = FindControl(specs_.begin_piece);
    notes_.begin = vocabulary_.begin ? "tokenizer.model" : "";
  }

  void TakeEnds() {
    if (settings_.end_text) {
      const std::optional<int32_t> token = Find(*settings_.end_text);
      if (!token) {
        throw LoadError(source_ + ": has no token " + Quoted(*settings_.end_text) +
                        ", which is to end texts");
      }
      AddEnd(*token, "eos_token of tokenizer_config.json");
    }
    if (const auto own = FindControl(specs_.end_piece)) AddEnd(*own, "tokenizer.model");
    for (const int32_t token : settings_.end_tokens) {
      const auto is_it = [&](const AddedToken& added) { return added.token == token; };
      if (token < std::ssize(vocabulary_.pieces) ||
          std::any_of(vocabulary_.added.begin(), vocabulary_.added.end(), is_it)) {
        AddEnd(token, "eos_token_id of " + settings_.end_tokens_file);
        continue;
      }
      notes_.warnings.push_back(settings_.end_tokens_file + ": eos_token_id " +
                                std::to_string(token) +
                                " is no token of the tokenizer, and is passed over");
    }
  }

  void AddEnd(int32_t token, const std::string& from) {
    std::vector<int32_t>& ends = vocabulary_.ends;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) return;
    ends.push_back(token);
    notes_.ends.emplace(token, from);
  }

  const std::string& source_;
  const Specs& specs_;
  const TokenizerSettings& settings_;
  TokenizerNotes& notes_;
  ScoredVocabulary& vocabulary_;
};

}  // namespace

std::shared_ptr<const Tokenizer> ParseSentencePieceModel(std::string_view model,
                                                         const std::string& source,
                                                         const TokenizerSettings& settings,
                                                         TokenizerNotes* notes) {
  ScoredVocabulary vocabulary;
  Specs specs;
  WireReader reader(model, source);
  for (WireReader::Field field; reader.Next(field);) {
    if (field.number == kPieces) {
      CheckPieceCount(vocabulary, source);
      vocabulary.pieces.push_back(ReadPiece(field.bytes, vocabulary.pieces.size(), source));
    } else if (field.number == kTrainer) {
      ReadTrainer(field.bytes, source, specs);
    } else if (field.number == kNormalizer) {
      ReadNormalizer(field.bytes, source, specs);
    } else if (field.number == kDenormalizer) {
      WireReader denormalizer(field.bytes, source);
      for (WireReader::Field option; denormalizer.Next(option);) RefuseCharsMap(option, source);
    }
  }
  CheckSpecs(specs, source);
  TokenizerNotes unread;
  Completion(source, specs, settings, notes != nullptr ? *notes : unread, vocabulary).Run();
  return MakeScoredTokenizer(std::move(vocabulary), source);
}

std::string WriteSentencePieceModel(const ScoredVocabulary& vocabulary) {
  WireWriter model;
  bool has_bytes = false;
  for (const auto& [text, score, kind] : vocabulary.pieces) {
    const auto* const type = std::find(std::begin(kKinds), std::end(kKinds), kind);
    WireWriter piece;
    piece.AddBytes(kText, text);
    piece.AddFloat(kScore, score);
    piece.AddNumber(kType, static_cast<uint64_t>(type - std::begin(kKinds) + 1));
    model.AddBytes(kPieces, piece.bytes());
    has_bytes = has_bytes || kind == ScoredPiece::kByte;
  }
  WireWriter trainer;
  trainer.AddNumber(kModelType, kBpe);
  trainer.AddNumber(kByteFallback, has_bytes ? 1 : 0);
  if (vocabulary.begin) trainer.AddBytes(kBeginPiece, vocabulary.pieces[*vocabulary.begin].text);
  trainer.AddBytes(kEndPiece, vocabulary.pieces[vocabulary.ends.front()].text);
  model.AddBytes(kTrainer, trainer.bytes());
  WireWriter normalizer;
  normalizer.AddBytes(kNormalizerName, "identity");
  normalizer.AddNumber(kAddDummyPrefix, vocabulary.adds_space ? 1 : 0);
  normalizer.AddNumber(kRemoveExtraSpaces, 0);
  normalizer.AddNumber(kEscapeSpaces, 1);
  model.AddBytes(kNormalizer, normalizer.bytes());
  return model.bytes();
}

}  // namespace triptych::checkpoint
