// Where in a pool the blocks of live sequences lie. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_BLOCK_MAP_H_
#define TRIPTYCH_ENGINE_SERVING_BLOCK_MAP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/block_table.h"
#include "engine/serving/stats.h"

namespace triptych::serving {

// Of a pool at one moment, in the order of its blocks: cells of so many consecutive blocks, a power
// of two, that there are at most kMaxCells.
struct BlockMap {
  static constexpr int64_t kMaxCells = 2048;
  static constexpr size_t kMaxHolders = 256;

  // What a cell holds; what it does not is free.
  struct Cell {
    // Who holds most of its blocks, of equals the first: an index of `holders`, from 1; 0 if none
    // of them holds any.
    int32_t holder = 0;
    int32_t allocated = 0;  // blocks, by anybody
    int32_t shared = 0;     // of these, by several
    int32_t evictable = 0;

    bool operator==(const Cell&) const = default;
  };
  // Cells that are alike, one after another.
  struct Run {
    int32_t cells = 0;
    Cell cell;
  };

  int64_t cell_blocks = 0;  // the last cell may have fewer
  // Of the live sequences that hold blocks the first kMaxHolders, in the order of arrival.
  std::vector<SequenceStats> holders;
  std::vector<Run> runs;

  // Fills in the cells. `tables`: the holders'.
  void Draw(const BlockPool& pool, std::span<const BlockTable* const> tables);
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_BLOCK_MAP_H_
