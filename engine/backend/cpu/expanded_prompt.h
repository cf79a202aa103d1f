// Expanded keys and values that MLA keeps between a prompt's prefill steps.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_EXPANDED_PROMPT_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_EXPANDED_PROMPT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/cpu/attention_layer.h"
#include "engine/backend/model_backend.h"
#include "engine/kernels/large_pages.h"

namespace triptych::cpu {

// Expanded keys and values of one prompt in all layers.
class ExpandedPrompt final : public PromptScratch {
 public:
  // `widths`: [layers], elements of a position's expanded row. `held`: bytes of all live
  // ExpandedPrompts; it outlives them. Null if the bytes would exceed `most`, no layer expands, or
  // memory runs out.
  static std::unique_ptr<ExpandedPrompt> Make(int64_t prompt, const std::vector<int64_t>& widths,
                                              int64_t most, int64_t& held);
  ~ExpandedPrompt() override { held_ -= bytes_; }
  ExpandedPrompt(const ExpandedPrompt&) = delete;
  ExpandedPrompt& operator=(const ExpandedPrompt&) = delete;

  ExpandedRows& layer(int64_t index) { return layers_[index]; }
  // Drops the rows of positions from `length` on, which are to be expanded again.
  void Truncate(int64_t length) {
    for (ExpandedRows& layer : layers_) layer.length = std::min(layer.length, length);
  }

 private:
  ExpandedPrompt(int64_t positions, const std::vector<int64_t>& widths, int64_t bytes,
                 int64_t& held);

  kernels::LargePages memory_;
  std::vector<ExpandedRows> layers_;
  int64_t bytes_;
  int64_t& held_;
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_EXPANDED_PROMPT_H_
