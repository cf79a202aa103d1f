#include "engine/text/text_stream.h"

#include <algorithm>
#include <utility>

#include "engine/base/utf8.h"

namespace triptych {
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
    const Utf8Piece piece = FirstUtf8Piece(rest);
    if (piece.kind == Utf8Piece::kUnfinished) break;
    text +=
        piece.kind == Utf8Piece::kCharacter ? rest.substr(0, piece.length) : kReplacementCharacter;
    rest.remove_prefix(piece.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Utf8Stream::Flush() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return std::string(unfinished ? kReplacementCharacter : "");
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
        automaton.length = 0;  // a later occurrence does not start first
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
