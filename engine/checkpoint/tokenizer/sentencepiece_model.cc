#include "engine/checkpoint/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/error.h"

namespace triptych::checkpoint {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, a space in a piece

// Reads the wire format of protocol buffers.
class WireReader {
 public:
  struct Field {
    uint64_t number = 0;
    uint64_t value = 0;      // of a varint
    std::string_view bytes;  // of a field with a length
  };

  WireReader(std::string_view bytes, const std::string& source) : rest_(bytes), source_(source) {}

  // False at the end. Throws LoadError.
  bool Next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t key = Varint();
    field = {key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        field.value = Varint();
        return true;
      case 1:
        field.bytes = Take(8);
        return true;
      case 2:
        field.bytes = Take(Varint());
        return true;
      case 5:
        field.bytes = Take(4);
        return true;
      default:
        Fail();
    }
  }

 private:
  [[noreturn]] void Fail() const { throw LoadError(source_ + ": is no SentencePiece model"); }

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(Take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    Fail();
  }

  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) Fail();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  const std::string& source_;
};

// Writes the wire format of protocol buffers.
class WireWriter {
 public:
  void AddNumber(uint64_t field, uint64_t value) {
    Varint(field << 3);
    Varint(value);
  }
  void AddFloat(uint64_t field, float value) {
    Varint(field << 3 | 5);
    char bytes[sizeof(float)];
    std::memcpy(bytes, &value, sizeof(float));  // little-endian
    bytes_.append(bytes, sizeof(float));
  }
  void AddBytes(uint64_t field, std::string_view bytes) {
    Varint(field << 3 | 2);
    Varint(bytes.size());
    bytes_.append(bytes);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

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

std::optional<int32_t> FindControl(const std::vector<ScoredPiece>& pieces, std::string_view text) {
  for (size_t token = 0; token < pieces.size(); ++token) {
    if (pieces[token].kind == ScoredPiece::kControl && pieces[token].text == text) {
      return static_cast<int32_t>(token);
    }
  }
  return std::nullopt;
}

}  // namespace

std::shared_ptr<const Tokenizer> ParseSentencePieceModel(std::string_view model,
                                                         const std::string& source, bool begins,
                                                         const std::vector<int32_t>& ends) {
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
  const auto is_user_defined = [](const ScoredPiece& piece) {
    return piece.kind == ScoredPiece::kUserDefined;
  };
  const auto found =
      std::find_if(vocabulary.pieces.begin(), vocabulary.pieces.end(), is_user_defined);
  if (specs.adds_space && found != vocabulary.pieces.end()) {
    throw LoadError(source + ": token " + std::to_string(found - vocabulary.pieces.begin()) +
                    " is user-defined; supported: none where normalizer_spec.add_dummy_prefix is "
                    "true");
  }
  vocabulary.space = kSpace;
  vocabulary.adds_space = specs.adds_space;
  if (begins) vocabulary.begin = FindControl(vocabulary.pieces, specs.begin_piece);
  if (const auto end = FindControl(vocabulary.pieces, specs.end_piece)) {
    vocabulary.ends.push_back(*end);
  }
  for (const int32_t end : ends) {
    const std::vector<int32_t>& known = vocabulary.ends;
    if (std::find(known.begin(), known.end(), end) == known.end()) vocabulary.ends.push_back(end);
  }
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
