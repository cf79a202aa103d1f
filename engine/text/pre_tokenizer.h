// Pre-tokenization: cuts a text into pieces, which no token crosses.
#ifndef TRIPTYCH_ENGINE_TEXT_PRE_TOKENIZER_H_
#define TRIPTYCH_ENGINE_TEXT_PRE_TOKENIZER_H_

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/encode_budget.h"
#include "engine/text/regex.h"

namespace triptych {

// Treatment of the matches of a pattern.
enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

std::string_view Name(SplitBehavior behavior);  // as in tokenizer files

struct SplitStep {
  Regex pattern;
  SplitBehavior behavior;
  bool invert;  // swaps the matches and the text between them
};
// Prepends a space to each piece that does not begin with one.
struct PrefixSpaceStep {};
// The pieces to which MetaspaceStep prepends.
enum class PrependScheme {
  kAlways,
  kFirst,  // only the piece that begins the text
  kNever,
};
std::string_view Name(PrependScheme scheme);
// Replaces spaces by `replacement`, and prepends it to pieces that do not begin with it.
struct MetaspaceStep {
  std::string replacement;
  PrependScheme prepend;
};
using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, MetaspaceStep>;

// The pieces of a text, none empty. `begins`: the whole text begins with `text`. REQUIRES: UTF-8,
// and `text` outlives the pieces. Throws EncodeError.
class Pieces {
 public:
  Pieces(const std::vector<PreTokenizerStep>& steps, std::string_view text, bool begins,
         EncodeBudget& budget);
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  const std::vector<std::string_view>& all() const { return pieces_; }

 private:
  void Apply(const SplitStep& step);
  void Apply(const PrefixSpaceStep& step);
  void Apply(const MetaspaceStep& step);

  EncodeBudget& budget_;
  std::vector<std::string_view> pieces_;  // of the text or of made_
  std::deque<std::string> made_;          // a deque: its strings do not move
  bool begins_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_PRE_TOKENIZER_H_
