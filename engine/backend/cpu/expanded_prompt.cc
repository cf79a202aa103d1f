#include "engine/backend/cpu/expanded_prompt.h"

#include <new>
#include <numeric>

#include "engine/base/ceil_div.h"

namespace triptych::cpu {

std::unique_ptr<ExpandedPrompt> ExpandedPrompt::Make(int64_t prompt,
                                                     const std::vector<int64_t>& widths,
                                                     int64_t most, int64_t& held) {
  const int64_t positions = CeilDiv(prompt, kernels::kPanelPositions) * kernels::kPanelPositions;
  const int64_t position_bytes = std::accumulate(widths.begin(), widths.end(), int64_t{0}) *
                                 static_cast<int64_t>(sizeof(float));
  if (position_bytes == 0 || positions > (most - held) / position_bytes) return nullptr;
  try {
    return std::unique_ptr<ExpandedPrompt>(
        new ExpandedPrompt(positions, widths, positions * position_bytes, held));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

ExpandedPrompt::ExpandedPrompt(int64_t positions, const std::vector<int64_t>& widths, int64_t bytes,
                               int64_t& held)
    : memory_(bytes), bytes_(bytes), held_(held) {
  auto* elements = reinterpret_cast<float*>(memory_.data());
  for (const int64_t width : widths) {
    layers_.push_back({.cache = {.elements = elements,
                                 .format = CacheFormat::kFloat32,
                                 .row_width = width,
                                 .block_positions = kernels::kPanelPositions}});
    elements += positions * width;
  }
  held_ += bytes;
}

}  // namespace triptych::cpu
