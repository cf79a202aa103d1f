// Loss of a model's conversions, before and after a short training, by cache bytes.
#ifndef TRIPTYCH_ENGINE_TOOLS_RESEARCH_SWEEP_H_
#define TRIPTYCH_ENGINE_TOOLS_RESEARCH_SWEEP_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace triptych::tools {

struct SweepOptions {
  std::filesystem::path model;  // a checkpoint that `convert` makes MLA of
  std::filesystem::path text;
  std::optional<double> held_out = {};  // absent: as Corpus has it for the model
  std::filesystem::path csv;
  int64_t heal_steps = 0;  // training steps after each conversion: 0, or 2 and more
  // Each point is healed once with each seed. Seeds choose the windows of the text: they are new to
  // the model if it was not trained with one of these seeds.
  std::vector<uint64_t> heal_seeds = {11, 12, 13};
};

// Measures the held-out loss of the model itself, of GQA at every G that divides its own, and of
// MLA. Each is measured as converted and, with `heal_steps`, healed: after that many steps of
// training with the model as the only teacher. The model itself is trained in the same way. With
// the first seed, each is also measured after half as many steps, in a run of its own whose rate
// falls as the whole run's does: the change in the second half shows how flat the curve is.
//
// Without rotation, GQA is made by a common basis (ByBetterBases), and MLA at sixteenths of the
// full rank, both by activations. With rotation, GQA is made by pooling, and MLA with rows of
// sixteenths of the model's own: by weights, by activations, and by activations with two adjacent
// frequencies mixed as one, "folded". The width of the decoupled keys in a row is the one of
// DecoupledWidths (latent_cut.h) that loses least on training text, as converted. With normed keys,
// GQA is made by pooling, too. Their rows of MLA have inverse norms, which count as elements. With
// rotation, the latent gives up their bytes, in the checkpoint's dtype.
//
// The CSV has a line that identifies the sweep, and one row for each point, seed and format of the
// cache:
//   attention,method,groups,rank,rope_head_dim,elements_per_position,cache,bytes_per_position,loss,
//   seed,half_healed_loss,healed_loss
// Rows are appended as they are found, all points of one seed before the next. Existing rows are
// kept, so the same command resumes after an interruption, or with more seeds after the first.
// Prints a table at the end: for each point the loss as converted, the mean, minimum and maximum
// after training, and the change in the second half.
//
// Models are measured as stored, in the checkpoint's dtype. Losses are computed in float32, except
// for the rows of the cache. Throws LoadError or std::runtime_error, also if `csv` has another
// sweep or anything else.
void Sweep(const SweepOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_RESEARCH_SWEEP_H_
