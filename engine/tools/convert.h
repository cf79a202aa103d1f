// Makes a checkpoint of another attention kind out of one, and says what it cost.
#ifndef TRIPTYCH_ENGINE_TOOLS_CONVERT_H_
#define TRIPTYCH_ENGINE_TOOLS_CONVERT_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/decoder/convert_weights.h"
#include "engine/decoder/weights.h"
#include "engine/tools/corpus.h"

namespace triptych::tools {

struct ConvertOptions {
  std::filesystem::path from;  // directory
  std::filesystem::path to;    // directory; must be absent or empty
  AttentionKind attention = AttentionKind::kMla;
  std::optional<int64_t> groups = {};  // G: with GQA, and only with it

  // MLA: at most one of these; none is the full rank, which loses nothing.
  std::optional<int64_t> rank;                // r, the same in every layer
  std::optional<int64_t> bytes_per_position;  // at most, over all layers, in the stored dtype
  std::optional<double> max_loss_increase;    // nats per token on the text's training part
  // MLA of rotated keys: d_R, chosen if absent, with a text and one of the last two; and how many
  // adjacent frequencies are mixed as one.
  std::optional<int64_t> rope_head_dim = {};
  int64_t fold_frequencies = 1;

  std::optional<ConversionMethod> method;  // GQA and MLA: MethodOf's if absent
  std::filesystem::path calibrate;         // text, or empty
  // Fraction of the text's end: losses are reported on it, and nothing is chosen by it. Absent:
  // what Corpus says for the source.
  std::optional<double> held_out = {};
  std::optional<TensorFormat> dtype;  // to store; the source's if absent
  std::string command = {};           // that was typed, for the card
};

// What a conversion did to one layer.
struct LayerReport {
  int64_t elements_before = 0;  // of a cache row
  int64_t elements_after = 0;
  // Share of the squared singular values, of keys' and of values' alike where each have their own,
  // or of the weights' squares.
  double energy_kept = 1;
  // Share that decoupled keys keep of what rotation does to keys, where they are rotated.
  std::optional<double> rotation_kept = {};
  // |[W_K; W_V] made - given| / |given|, over all query heads, those of a common basis turned back.
  double weight_error = 0;
};

// Windows of the text's training part, of CalibrationLength, that a model is chosen by.
// Throws std::runtime_error if that is shorter than one.
std::vector<Window> ChoosingWindows(const Corpus& corpus, const ModelConfig& config);

// GQA by common bases.
struct GroupedByBases {
  bool like_together;             // and not the heads as they stand
  Checkpoint from;                // with its heads in the order in which they share groups
  std::vector<GroupBases> bases;  // of each layer of it
  Checkpoint to;                  // as stored
};

// With like heads together; with `windows`, or with the heads as they stand if that loses less on
// them, as bases that keep more squares need not lose less. `covariances` may be empty. REQUIRES:
// what FindGroupBases does.
GroupedByBases ByBetterBases(const Checkpoint& from, int64_t groups,
                             const std::vector<at::Tensor>& covariances,
                             const std::vector<Window>& windows);

// The widths of decoupled keys that are tried where none is asked for, ascending: a quarter of a
// head's, each next twice the one before, and G * d, at which nothing is lost. Left out are those
// above 2 * d with which a layer's queries, [H * (d + d_R), D], would be more than all its other
// weights: the G * d of large models. REQUIRES: MHA or GQA with rotary positions.
std::vector<int64_t> DecoupledWidths(const ModelConfig& config);

// How much losing all of a layer's energy would cost, for each layer: the divergence of the model
// from itself with that layer alone cut to a quarter of its full rank, in nats per token of the
// text's training part, over the energy lost by that.
std::vector<double> Sensitivities(const Checkpoint& from, const std::vector<KeyValueSvd>& svds,
                                  const Corpus& corpus, const DecoupledKeys& decoupled = {});

// One rank for each layer, at least 1 each and `total` in all (or every layer's full rank, if that
// is less): those that lose the least energy, summed over the layers, where all of a layer's counts
// as its weight says.
std::vector<int64_t> AllocateRanks(const std::vector<KeyValueSvd>& svds,
                                   const std::vector<double>& weights, int64_t total);

// Converts from directory to directory, prints what each layer lost and writes the same into the
// new model's card. No model is left behind if it fails. Throws LoadError or std::runtime_error.
void ConvertModel(const ConvertOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CONVERT_H_
