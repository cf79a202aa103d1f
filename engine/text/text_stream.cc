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
    for (size_t length = 2; length <= automaton.stop.size(); ++length) {
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

std::string StopStrings::Push(std::string_view text, bool hidden) {
  if (matched_ || text.empty()) return "";
  if (automata_.empty()) return hidden ? "" : std::string(text);
  size_t partial = 0;  // the longest suffix that is a proper prefix of a stop string
  for (const char c : text) {
    held_ += c;
    hidden_.push_back(hidden);
    partial = 0;
    for (Automaton& automaton : automata_) {
      automaton.Advance(c);
      if (automaton.length == automaton.stop.size()) {
        const size_t start = held_.size() - automaton.length;
        if (active_ && (!found_ || start < found_->start)) found_ = {start, automaton.stop};
        // After a match, a later occurrence does not start first.
        automaton.length = active_ ? 0 : automaton.border[automaton.length];
      }
      partial = std::max(partial, automaton.length);
    }
    if (found_ && held_.size() - partial >= found_->start) return Flush();
  }
  const size_t released = held_.size() - partial;
  if (found_) found_->start -= released;
  return Release(released);
}

std::string StopStrings::Release(size_t bytes) {
  std::string shown;
  for (size_t i = 0; i < bytes; ++i) {
    if (!hidden_[i]) shown += held_[i];
  }
  held_.erase(0, bytes);
  hidden_.erase(hidden_.begin(), hidden_.begin() + static_cast<std::ptrdiff_t>(bytes));
  return shown;
}

std::string StopStrings::Flush() {
  std::string text = Release(found_ ? found_->start : held_.size());
  if (found_) {
    matched_ = std::move(found_->stop);
    found_.reset();
    Release(held_.size());
  }
  return text;
}

}  // namespace triptych
