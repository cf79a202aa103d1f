// Decomposition of rotated keys into decoupled rotary keys and a rest that is not rotated:
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
// for both elements of a pair. Queries are mixed alike, so that no score changes. The mixed pairs
// that rotation changes most are kept; all heads share them.
struct DecoupledKeys {
  // Frequency of each kept pair, in radians per position: [d_R / 2].
  std::vector<double> frequencies = {};
  // For each layer, the composition of each kept pair: [d_R / 2, d / 2 pairs, G heads] float64 with
  // orthonormal rows. Empty if keys are not rotated.
  std::vector<at::Tensor> mixes = {};
  // For each layer, the kept share of the effect of rotation on its keys.
  std::vector<double> energy_kept = {};

  bool defined() const { return !mixes.empty(); }
  int64_t width() const { return 2 * static_cast<int64_t>(frequencies.size()); }  // d_R
};

// The mixed rotary pairs of every layer's keys, computed once for every width.
class MixedPairs {
 public:
  // `fold` adjacent frequencies are mixed as if they were one, their geometric mean (1: only equal
  // ones, exactly). `covariances`: of the inputs of each layer's attention, or empty.
  // REQUIRES: MHA or GQA with rotary positions; `fold` divides d / 2.
  MixedPairs(const Checkpoint& from, int64_t fold, const std::vector<at::Tensor>& covariances);

  // The pairs with the largest effect, summed over the layers: the energy of the keys times the
  // mean of 1 - cos(frequency * distance) over the context's distances. REQUIRES: `width` even,
  // from 2 to G * d.
  DecoupledKeys Strongest(int64_t width) const;

 private:
  // Frequencies that are mixed together, and their mix in each layer.
  struct Fold {
    double frequency;
    double turning;
    std::vector<at::Tensor> vectors = {};  // of each layer [slots, slots]: rows, strongest first
    std::vector<at::Tensor> shares = {};   // of each layer [slots]: of the effect of rotation
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
  std::vector<Slot> slots_;  // of all folds, largest share first
};

// The key rows of the kept pairs, (2i, 2i+1): [d_R, ...].
//   rows: KeysToFactor or b_K, [G * d, ...]   mix: of the layer
at::Tensor DecoupledRows(const at::Tensor& rows, const at::Tensor& mix);
// The part of the keys that these pairs make: [G * d, ...].
//   decoupled: [d_R, ...]
at::Tensor AsKeyRows(const at::Tensor& decoupled, const at::Tensor& mix);
// The rest of the keys: [G * d, ...].
at::Tensor RestOfRows(const at::Tensor& rows, const at::Tensor& mix);
// The query rows of each head for the kept pairs: [H * d_R, ...].
//   rows: W_Q or b_Q, [H * d, ...] in modular order
at::Tensor DecoupledQueryRows(const at::Tensor& rows, const at::Tensor& mix);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_DECOUPLED_KEYS_H_
