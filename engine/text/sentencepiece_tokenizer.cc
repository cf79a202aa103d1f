#include "engine/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quoted.h"

namespace triptych {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";      // U+2581, a space in a piece
constexpr std::string_view kUnknown = " \xE2\x81\x87 ";  // as the library shows what has no piece

// Reads the wire format of protocol buffers as far as a file has to be checked before the library
// reads it, which trusts it.
class WireReader {
 public:
  struct Field {
    uint64_t number = 0;
    uint64_t value = 0;      // of a varint
    std::string_view bytes;  // of what has a length
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

// The fields of ModelProto, TrainerSpec and NormalizerSpec (sentencepiece_model.proto) that count.
enum ModelField : uint64_t { kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5 };
enum PieceField : uint64_t { kPiece = 1 };
enum TrainerField : uint64_t { kModelType = 3 };
enum NormalizerField : uint64_t { kCharsMap = 2, kAddDummyPrefix = 3 };
constexpr uint64_t kUnigram = 1;
constexpr uint64_t kBpe = 2;

// Whether texts begin with a space that encoding adds.
bool CheckModel(const std::string& model, const std::string& source) {
  bool adds_prefix = true;
  uint64_t type = kUnigram;
  WireReader reader(model, source);
  for (WireReader::Field field; reader.Next(field);) {
    if (field.number == kPieces) {
      WireReader piece(field.bytes, source);
      for (WireReader::Field of_piece; piece.Next(of_piece);) {
        if (of_piece.number != kPiece || of_piece.bytes.size() <= kMaxAddedTokenBytes) continue;
        throw LoadError(source + ": a piece is " + std::to_string(of_piece.bytes.size()) +
                        " bytes long; allowed: at most " + std::to_string(kMaxAddedTokenBytes));
      }
    } else if (field.number == kTrainer) {
      WireReader trainer(field.bytes, source);
      for (WireReader::Field option; trainer.Next(option);) {
        if (option.number == kModelType) type = option.value;
      }
    } else if (field.number == kNormalizer || field.number == kDenormalizer) {
      WireReader normalizer(field.bytes, source);
      for (WireReader::Field option; normalizer.Next(option);) {
        if (option.number == kCharsMap && !option.bytes.empty()) {
          throw LoadError(source + ": normalizer_spec.precompiled_charsmap is " +
                          std::to_string(option.bytes.size()) +
                          " bytes; supported: none, as in models that keep characters as they are");
        }
        if (option.number == kAddDummyPrefix && field.number == kNormalizer) {
          adds_prefix = option.value != 0;
        }
      }
    }
  }
  if (type != kUnigram && type != kBpe) {
    throw LoadError(source + ": trainer_spec.model_type is " + std::to_string(type) +
                    "; supported: 1 (unigram), 2 (BPE)");
  }
  return adds_prefix;
}

std::string DecodedPiece(const sentencepiece::SentencePieceProcessor& processor, int id) {
  if (processor.IsControl(id)) return "";
  if (processor.IsUnknown(id)) return std::string(kUnknown);
  const std::string& piece = processor.IdToPiece(id);
  if (processor.IsByte(id)) {
    return std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
  }
  std::string decoded;
  for (size_t at = 0; at < piece.size();) {
    if (piece.compare(at, kSpace.size(), kSpace) == 0) {
      decoded += ' ';
      at += kSpace.size();
    } else {
      decoded += piece[at++];
    }
  }
  return decoded;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& model, const std::string& source,
                                               bool begins, const std::vector<int32_t>& ends)
    : drops_leading_space_(CheckModel(model, source)) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const sentencepiece::util::Status status = processor->LoadFromSerializedProto(model);
  if (!status.ok()) {
    throw LoadError(source +
                    ": the SentencePiece library cannot read it: " + Printable(status.message()));
  }
  std::vector<AddedToken> control;
  for (int id = 0; id < processor->GetPieceSize(); ++id) {
    decoded_.push_back(DecodedPiece(*processor, id));
    if (!processor->IsControl(id) || processor->IdToPiece(id).empty()) continue;
    special_.push_back({id, processor->IdToPiece(id)});
    control.push_back({.token = id, .text = processor->IdToPiece(id), .special = true});
  }
  finder_ = std::make_unique<const AddedTokenFinder>(std::move(control));
  if (begins && processor->bos_id() >= 0) begin_ = processor->bos_id();
  if (processor->eos_id() >= 0) ends_.push_back(processor->eos_id());
  for (const int32_t end : ends) {
    if (end < 0 || end >= vocab_size()) {
      throw LoadError(source + ": has no token " + std::to_string(end) + ", which is to end texts");
    }
    if (std::find(ends_.begin(), ends_.end(), end) == ends_.end()) ends_.push_back(end);
  }
  if (ends_.empty()) throw LoadError(source + ": has no end token");
  processor_ = std::move(processor);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::vector<int32_t> SentencePieceTokenizer::Encode(std::span<const TextPart> parts) const {
  const JoinedText joined = Join(parts);
  const std::string_view text = joined.text;
  std::vector<int32_t> tokens;
  const auto add = [&](std::string_view part) {
    if (part.empty()) return;
    std::vector<int> ids;
    const sentencepiece::util::Status status =
        processor_->Encode(absl::string_view(part.data(), part.size()), &ids);
    if (!status.ok()) throw EncodeError("SentencePiece: " + Printable(status.message()));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  };
  size_t end = 0;
  for (const AddedTokenFinder::Match& match : finder_->FindAll(text, joined.parsed)) {
    add(text.substr(end, match.range.begin - end));
    tokens.push_back(match.token);
    end = match.range.end;
  }
  add(text.substr(end));
  return tokens;
}

std::string SentencePieceTokenizer::Decode(int32_t token) const {
  if (token < 0 || token >= vocab_size()) return "";
  return decoded_[token];
}

}  // namespace triptych
