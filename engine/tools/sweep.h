// What the saved bytes cost: one MHA model converted every way, and measured.
#ifndef TRIPTYCH_ENGINE_TOOLS_SWEEP_H_
#define TRIPTYCH_ENGINE_TOOLS_SWEEP_H_

#include <cstdint>
#include <filesystem>

namespace triptych {

struct SweepOptions {
  std::filesystem::path model;  // an MHA checkpoint
  std::filesystem::path text;
  double held_out = 0.1;
  std::filesystem::path csv;  // written row by row
  int64_t heal_steps = 0;     // of training after each conversion; 0 for none
};

// The held-out loss of the model itself, of GQA at every G that divides H, and of MLA at a ladder
// of ranks by both methods, each as converted and, with `heal_steps`, after so much more training,
// which the model itself gets as well. One row each in the CSV:
//   attention,method,groups,rank,elements_per_position,bytes_per_position,loss,healed_loss
// Models are measured as they would be stored, and bytes counted, in the checkpoint's dtype. Throws
// LoadError or std::runtime_error.
void Sweep(const SweepOptions& options);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TOOLS_SWEEP_H_
