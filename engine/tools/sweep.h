// What the saved bytes cost: one model converted every way, healed, and measured.
#ifndef TRIPTYCH_ENGINE_TOOLS_SWEEP_H_
#define TRIPTYCH_ENGINE_TOOLS_SWEEP_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace triptych::tools {

struct SweepOptions {
  std::filesystem::path model;  // an MHA or GQA checkpoint
  std::filesystem::path text;
  std::optional<double> held_out = {};  // absent: what Corpus says for the model
  std::filesystem::path csv;
  int64_t heal_steps = 0;  // of training after each conversion, at least 2; 0 for none
  // Each point is healed once with each. They choose the windows of the text, which are new to the
  // model where none of these is a seed that it was trained with.
  std::vector<uint64_t> heal_seeds = {11, 12, 13};
};

// The held-out loss of the model itself, of GQA at every G that divides its own, and of MLA; each
// as converted and, with `heal_steps`, healed: after so much more training with the model as the
// only teacher, which the model itself gets as well; with the first seed also after half as much in
// a run of its own, whose rate falls as the whole one's does. What the second half still changes
// says how flat the curve is.
//
// Where keys are not rotated, GQA is made by pooling and by a common basis (by weights, by
// activations; ByBetterBases), and MLA at sixteenths of the full rank, both ways. Where they are,
// GQA is made by pooling alone, and MLA with rows of sixteenths of the model's own: by weights, by
// activations, and by activations with two adjacent frequencies mixed as one, "folded". How much of
// a row is decoupled keys is what loses least on training text, as converted, of DecoupledWidths
// (convert.h).
//
// One row for each point, seed and format of the cache in the CSV, after a line that says whose it
// is:
//   attention,method,groups,rank,rope_head_dim,elements_per_position,cache,bytes_per_position,loss,
//   seed,half_healed_loss,healed_loss
// Rows are written as they are found, all points with one seed before the next. Those that are
// there are kept, so that the same command goes on after an interruption, or with more seeds behind
// the first one. Then
// prints a table: of each point the loss as converted, the mean, least and most after the training,
// and what the second half of it changed.
//
// Models are measured as they would be stored, in the checkpoint's dtype; losses are computed in
// float32, but for the rows of the cache. Throws LoadError or std::runtime_error, also if `csv`
// holds another sweep or anything else.
void Sweep(const SweepOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_SWEEP_H_
