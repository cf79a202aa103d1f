// Where a text is cut before it is merged into tokens, which span no cut. Torch-free.
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

// What becomes of the places that match.
enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

std::string_view Name(SplitBehavior behavior);  // in files

struct SplitStep {
  Regex pattern;
  SplitBehavior behavior;
  bool invert;  // of what does not match
};
// A space before every piece that begins with none.
struct PrefixSpaceStep {};
// Spaces become `replacement`, and one is put before pieces that begin with none.
enum class PrependScheme {
  kAlways,
  kFirst,  // to what begins the text
  kNever,
};
std::string_view Name(PrependScheme scheme);
struct MetaspaceStep {
  std::string replacement;
  PrependScheme prepend;
};
using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, MetaspaceStep>;

// The pieces of a text, none empty. `begins` says that it is the beginning of one. REQUIRES: UTF-8.
// Throws EncodeError.
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
  std::deque<std::string> made_;          // whose strings do not move
  bool begins_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_PRE_TOKENIZER_H_
