// Makes a checkpoint of another attention kind out of one.
#ifndef TRIPTYCH_ENGINE_TOOLS_CONVERT_H_
#define TRIPTYCH_ENGINE_TOOLS_CONVERT_H_

#include <filesystem>

#include "engine/model/checkpoint.h"

namespace triptych {

struct ConvertTarget {
  AttentionKind attention = AttentionKind::kMla;
  int64_t groups = 0;  // G, for GQA
  int64_t rank = 0;    // r, for MLA: the same in every layer
};

// MHA to GQA pools heads; GQA to MHA repeats them, exactly; MHA or GQA to MLA factors keys and
// values, exactly from r = min(2*G*d, D) on (definitions, section 5). Weights keep their dtype.
// Throws LoadError if there is no such conversion or a size is out of range; `source` is the
// model's name for messages.
Checkpoint ConvertCheckpoint(const Checkpoint& from, const ConvertTarget& target,
                             const std::string& source);

// The same from directory to directory; the new checkpoint keeps the stored dtype.
void Convert(const std::filesystem::path& from, const std::filesystem::path& to,
             const ConvertTarget& target);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TOOLS_CONVERT_H_
