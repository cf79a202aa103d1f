#include "engine/text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

namespace triptych {
namespace {

struct Part {
  TextRange range;
  bool matches;
};

// Splits a piece into its matches and the text between them.
std::vector<Part> PartsOf(const SplitStep& step, std::string_view piece,
                          EncodeBudget::Clock::time_point deadline) {
  std::vector<Part> parts;
  size_t end = 0;
  const auto add = [&](size_t begin, size_t until, bool matches) {
    if (begin < until) parts.push_back({{begin, until}, matches != step.invert});
  };
  for (const TextRange& match : step.pattern.FindAll(piece, deadline)) {
    add(end, match.begin, false);
    add(match.begin, match.end, true);
    end = match.end;
  }
  add(end, piece.size(), false);
  return parts;
}

// True if `part` extends the piece of `before` instead of beginning one.
bool Joins(SplitBehavior behavior, const Part& before, const Part& part) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      return false;
    case SplitBehavior::kMergedWithPrevious:
      return part.matches && !before.matches;
    case SplitBehavior::kMergedWithNext:
      return before.matches && !part.matches;
    case SplitBehavior::kContiguous:
      return before.matches == part.matches;
  }
  return false;
}

}  // namespace

std::string_view Name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      return "Removed";
    case SplitBehavior::kIsolated:
      return "Isolated";
    case SplitBehavior::kMergedWithPrevious:
      return "MergedWithPrevious";
    case SplitBehavior::kMergedWithNext:
      return "MergedWithNext";
    case SplitBehavior::kContiguous:
      return "Contiguous";
  }
  return "";
}

std::string_view Name(PrependScheme scheme) {
  switch (scheme) {
    case PrependScheme::kAlways:
      return "always";
    case PrependScheme::kFirst:
      return "first";
    case PrependScheme::kNever:
      return "never";
  }
  return "";
}

Pieces::Pieces(const std::vector<PreTokenizerStep>& steps, std::string_view text, bool begins,
               EncodeBudget& budget)
    : budget_(budget), begins_(begins) {
  if (!text.empty()) pieces_.push_back(text);
  for (const PreTokenizerStep& step : steps) {
    std::visit([this](const auto& it) { Apply(it); }, step);
  }
}

void Pieces::Apply(const SplitStep& step) {
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const std::string_view piece = pieces_[i];
    const Part* before = nullptr;
    size_t begin = 0;
    const std::vector<Part> parts = PartsOf(step, piece, budget_.deadline());
    for (const Part& part : parts) {
      if (before != nullptr && Joins(step.behavior, *before, part)) {
        pieces.back() = piece.substr(begin, part.range.end - begin);
      } else if (step.behavior != SplitBehavior::kRemoved || !part.matches) {
        begin = part.range.begin;
        pieces.push_back(piece.substr(begin, part.range.end - begin));
      } else if (i == 0 && pieces.empty()) {
        begins_ = false;  // the beginning of the text was removed
      }
      before = &part;
    }
  }
  pieces_ = std::move(pieces);
}

void Pieces::Apply(const PrefixSpaceStep& /*step*/) {
  for (std::string_view& piece : pieces_) {
    if (piece.starts_with(' ')) continue;
    budget_.Write(1 + piece.size());
    piece = made_.emplace_back(' ' + std::string(piece));
  }
}

void Pieces::Apply(const MetaspaceStep& step) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto spaces = static_cast<size_t>(std::count(pieces_[i].begin(), pieces_[i].end(), ' '));
    budget_.Write(pieces_[i].size() + (spaces + 1) * step.replacement.size());
    std::string replaced;
    for (const char c : pieces_[i]) {
      if (c == ' ') {
        replaced += step.replacement;
      } else {
        replaced += c;
      }
    }
    const bool prepends = step.prepend == PrependScheme::kAlways ||
                          (step.prepend == PrependScheme::kFirst && i == 0 && begins_);
    if (prepends && !replaced.starts_with(step.replacement)) replaced.insert(0, step.replacement);
    pieces_[i] = made_.emplace_back(std::move(replaced));
  }
}

}  // namespace triptych
