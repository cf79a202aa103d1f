#include "engine/backend/model_backend.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace triptych {
namespace {

void Check(int64_t index, int64_t size, const char* what) {
  if (index >= 0 && index < size) return;
  throw std::out_of_range(std::string(what) + " " + std::to_string(index) + "; allowed: 0 to " +
                          std::to_string(size - 1));
}

}  // namespace

void CheckStep(const StepInput& step, const BackendInfo& info) {
  for (const int64_t id : step.ids) Check(id, info.vocab_size, "token id");
  for (const StepInput::Sequence& sequence : step.sequences) {
    Check(sequence.start, info.max_positions, "position");
    Check(sequence.start + sequence.count - 1, info.max_positions, "position");
  }
}

int64_t BackendInfo::pool_positions() const {
  const int64_t size = geometry.block_positions;
  const LayerGroups groups = geometry.Groups();
  const int64_t of_window = groups.MostWindowBlocks(max_step_tokens, size);
  if (groups.windowed == 0 || blocks < groups.count() * of_window) {
    return blocks / groups.count() * size;
  }
  // Windowed groups need no more.
  if (groups.full == 0) return std::max(blocks / groups.count() * size, max_positions);
  return (blocks - groups.windowed * of_window) / groups.full * size;
}

int64_t MostScratchBytes(const ModelConfig& config) {
  constexpr int64_t kMost = int64_t{256} << 20, kContexts = 4;
  const int64_t position_bytes =
      config.num_hidden_layers * MhaRowElements(config) * static_cast<int64_t>(sizeof(float));
  if (position_bytes >= kMost) return kMost;  // the product below could overflow
  return std::min(kMost, kContexts * config.max_position_embeddings * position_bytes);
}

BackendInfo MakeInfo(const ModelConfig& config, const BackendOptions& options,
                     std::optional<int64_t> expand_from) {
  BackendInfo info{
      .vocab_size = config.vocab_size,
      .max_positions = config.max_position_embeddings,
      .geometry = MakeCacheGeometry(config, options.cache_format, options.block_positions),
      .blocks = 0,
      .cache_bytes = 0,
      .expand_from = expand_from,
      .prompt_rows_differ = false,
      .device_memory = {},
      .likely_tokens = 0,
      .least_prefill_rows = 1,
      .max_step_tokens = options.max_step_tokens};
  info.blocks = BlocksIn(info.geometry, options.kv_cache_bytes);
  return info;
}

}  // namespace triptych
