// What MLA keeps of a prompt under way.
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

// The keys and values of a prompt that were expanded, of all layers.
class ExpandedPrompt final : public PromptScratch {
 public:
  // `widths`: elements of a position's expanded row, of each layer. `held`: bytes of all that live,
  // whom it outlives. Null if they would be more than `most`, or there is no memory.
  static std::unique_ptr<ExpandedPrompt> Make(int64_t prompt, const std::vector<int64_t>& widths,
                                              int64_t most, int64_t& held);
  ~ExpandedPrompt() override { held_ -= bytes_; }
  ExpandedPrompt(const ExpandedPrompt&) = delete;
  ExpandedPrompt& operator=(const ExpandedPrompt&) = delete;

  ExpandedRows& layer(int64_t index) { return layers_[index]; }
  // The rows of positions from `length` on are computed again.
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
