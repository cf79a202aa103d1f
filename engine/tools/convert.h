// Conversion of a checkpoint to another attention kind.
#ifndef TRIPTYCH_ENGINE_TOOLS_CONVERT_H_
#define TRIPTYCH_ENGINE_TOOLS_CONVERT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/decoder/convert_weights.h"
#include "engine/decoder/weights.h"
#include "engine/tools/convert_options.h"
#include "engine/tools/corpus.h"

namespace triptych::tools {

// The effect of a conversion on one layer.
struct LayerReport {
  int64_t elements_before = 0;  // of a cache row
  int64_t elements_after = 0;
  // Share of the squared singular values: the mean of keys and values if each have their own; for
  // pooled or repeated heads, the share of the weights' squares.
  double energy_kept = 1;
  // Share of the effect of rotation on keys that decoupled keys keep. Absent without rotation.
  std::optional<double> rotation_kept = {};
  // |[W_K; W_V] made - given| / |given| over all query heads, after undoing a common basis.
  double weight_error = 0;
};

// GQA by common bases.
struct GroupedByBases {
  bool like_together;             // true if like heads share groups; else heads as they stand
  Checkpoint from;                // with its heads in the order in which they share groups
  std::vector<GroupBases> bases;  // of each layer of `from`
  Checkpoint to;                  // as stored
};

// GQA with like heads together. With `windows`, the heads as they stand if that loses less on them:
// bases that keep more squares need not lose less. `covariances` may be empty. REQUIRES: as
// FindGroupBases.
GroupedByBases ByBetterBases(const Checkpoint& from, int64_t groups,
                             const std::vector<at::Tensor>& covariances,
                             const std::vector<Window>& windows);

// Converts from directory to directory. Prints the loss of each layer and writes it to the new
// model's card. Leaves no model behind if it fails. Throws LoadError or std::runtime_error.
void ConvertModel(const ConvertOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CONVERT_H_
