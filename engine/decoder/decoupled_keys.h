// Rotated keys as a few decoupled rotary ones and a rest that is not rotated:
// engine/definitions.md#rotated-keys; after TransMLA, arXiv:2502.07864.
#ifndef TRIPTYCH_ENGINE_DECODER_DECOUPLED_KEYS_H_
#define TRIPTYCH_ENGINE_DECODER_DECOUPLED_KEYS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// Rotary pairs of one frequency are mixed across the G key heads by an orthogonal matrix, the same
// for both elements of a pair, and the queries alike: that changes no score. Of the mixed pairs
// those that rotation matters for most are kept, which all heads share.
struct DecoupledKeys {
  // Of each pair that is kept, in radians per position: [d_R / 2].
  std::vector<double> frequencies = {};
  // Of each layer: what each pair that is kept is made of, [d_R / 2, d / 2 pairs, G heads] float64
  // with orthonormal rows. Empty where keys are not rotated.
  std::vector<at::Tensor> mixes = {};
  // Of each layer: the share that is kept of what rotation does to its keys.
  std::vector<double> energy_kept = {};

  bool defined() const { return !mixes.empty(); }
  int64_t width() const { return 2 * static_cast<int64_t>(frequencies.size()); }  // d_R
};

// The rotary pairs of every layer's keys, mixed. What is computed once serves every width.
class MixedPairs {
 public:
  // `fold` adjacent frequencies are mixed as if they were one, their geometric mean (1: only equal
  // ones, exactly). `covariances`: of what each layer's attention reads, or empty.
  // REQUIRES: MHA or GQA with rotary positions; `fold` divides d / 2.
  MixedPairs(const Checkpoint& from, int64_t fold, const std::vector<at::Tensor>& covariances);

  // Those that carry the most, summed over the layers: the energy of the keys times how far
  // rotation turns them, the mean of 1 - cos(frequency * distance) over the context's distances.
  // REQUIRES: `width` even, from 2 to G * d.
  DecoupledKeys Strongest(int64_t width) const;

 private:
  // Frequencies that are mixed together, and what mixes them in each layer.
  struct Fold {
    double frequency;
    double turning;
    std::vector<at::Tensor> vectors = {};  // of each layer [slots, slots]: rows, strongest first
    std::vector<at::Tensor> shares = {};   // of each layer [slots]: of what rotation does there
  };
  struct Slot {
    double share;  // summed over the layers
    size_t fold;
    int64_t slot;
  };

  int64_t pairs_;  // d / 2
  int64_t groups_;
  int64_t fold_;
  std::vector<Fold> folds_;
  std::vector<Slot> slots_;  // of all folds, the most share first
};

// The key rows of those pairs, (2i, 2i+1): [d_R, ...].
//   rows: W_K or b_K, [G * d, ...]   mix: of the layer
at::Tensor DecoupledRows(const at::Tensor& rows, const at::Tensor& mix);
// What those pairs make of keys: [G * d, ...].
//   decoupled: [d_R, ...]
at::Tensor AsKeyRows(const at::Tensor& decoupled, const at::Tensor& mix);
// What is left of the keys without them: [G * d, ...].
at::Tensor RestOfRows(const at::Tensor& rows, const at::Tensor& mix);
// The rows of each head's queries that meet them: [H * d_R, ...].
//   rows: W_Q or b_Q, [H * d, ...] in modular order
at::Tensor DecoupledQueryRows(const at::Tensor& rows, const at::Tensor& mix);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_DECOUPLED_KEYS_H_
