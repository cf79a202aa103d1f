// Map of a pool's blocks and of the sequences that hold them.
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

// A pool at one moment, in the order of its blocks, in cells of `cell_blocks` consecutive blocks.
// cell_blocks is the least power of two that gives at most kMaxCells cells.
struct BlockMap {
  static constexpr int64_t kMaxCells = 2048;
  static constexpr size_t kMaxHolders = 256;

  // Numbers of a cell's blocks by state; the rest are free.
  struct Cell {
    // The holder with the most blocks in the cell, the first of equals: an index into `holders`,
    // counted from 1. 0 if no holder has a block here.
    int32_t holder = 0;
    int32_t allocated = 0;  // by any sequence
    int32_t shared = 0;     // of these, with several references
    int32_t evictable = 0;

    bool operator==(const Cell&) const = default;
  };
  // Consecutive equal cells.
  struct Run {
    int32_t cells = 0;
    Cell cell;
  };

  int64_t cell_blocks = 0;  // the last cell may have fewer
  // The first kMaxHolders live sequences with allocated blocks, in order of arrival.
  std::vector<SequenceStats> holders;
  std::vector<Run> runs;

  // Fills in `cell_blocks` and `runs`. `tables`: the block tables of `holders`, in that order.
  void Draw(const BlockPool& pool, std::span<const BlockTable* const> tables);
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_BLOCK_MAP_H_
