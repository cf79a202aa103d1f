#include "engine/text/text_stream.h"

#include <algorithm>
#include <utility>

namespace triptych {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Piece {
  enum Kind { kCharacter, kIllFormed, kUnfinished } kind;
  size_t length;
};

// The first character of `bytes`, or the maximal subpart that cannot become one, or all of `bytes`
// if more of them may finish it (Unicode 15, table 3-7). REQUIRES: not empty.
Piece FirstPiece(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Piece::kCharacter, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Piece::kIllFormed, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Piece::kUnfinished, i};
    if (byte(i) < low || byte(i) > high) return {Piece::kIllFormed, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Piece::kCharacter, length};
}

}  // namespace

std::string ToValidUtf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Push(bytes);
  return text += stream.Flush();
}

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Piece piece = FirstPiece(rest);
    if (piece.kind == Piece::kUnfinished) break;
    text += piece.kind == Piece::kCharacter ? rest.substr(0, piece.length) : kReplacement;
    rest.remove_prefix(piece.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Utf8Stream::Flush() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return std::string(unfinished ? kReplacement : "");
}

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    Automaton automaton{std::move(stop), {0, 0}, 0};
    for (size_t length = 2; length < automaton.stop.size(); ++length) {
      automaton.Advance(automaton.stop[length - 1]);
      automaton.border.push_back(automaton.length);
    }
    automaton.length = 0;
    automata_.push_back(std::move(automaton));
  }
}

void StopStrings::Automaton::Advance(char c) {
  while (length > 0 && stop[length] != c) length = border[length];
  if (stop[length] == c) ++length;
}

std::string StopStrings::Push(std::string_view text) {
  if (matched_ || text.empty()) return "";
  size_t partial = 0;  // the longest suffix that is a proper prefix of a stop string
  for (const char c : text) {
    held_ += c;
    partial = 0;
    for (Automaton& automaton : automata_) {
      automaton.Advance(c);
      if (automaton.length == automaton.stop.size()) {
        const size_t start = held_.size() - automaton.length;
        if (!found_ || start < found_->start) found_ = {start, automaton.stop};
        automaton.length = 0;  // where it comes again, it does not start first
      }
      partial = std::max(partial, automaton.length);
    }
    if (found_ && held_.size() - partial >= found_->start) return Flush();
  }
  std::string released = held_.substr(0, held_.size() - partial);
  held_.erase(0, released.size());
  if (found_) found_->start -= released.size();
  return released;
}

std::string StopStrings::Flush() {
  std::string text = std::move(held_);
  held_.clear();
  if (found_) {
    text.resize(found_->start);
    matched_ = std::move(found_->stop);
    found_.reset();
  }
  return text;
}

}  // namespace triptych
