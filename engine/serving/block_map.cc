#include "engine/serving/block_map.h"

#include <algorithm>
#include <bit>

#include "engine/base/ceil_div.h"

namespace triptych::serving {

void BlockMap::Draw(const BlockPool& pool, std::span<const BlockTable* const> tables) {
  const auto least = static_cast<uint64_t>(CeilDiv(pool.total(), kMaxCells));
  cell_blocks = static_cast<int64_t>(std::bit_ceil(std::max<uint64_t>(least, 1)));
  const int shift = std::countr_zero(static_cast<uint64_t>(cell_blocks));
  std::vector<Cell> cells(CeilDiv(pool.total(), cell_blocks));
  int64_t block = 0;
  for (Cell& cell : cells) {
    for (const int64_t end = std::min(block + cell_blocks, pool.total()); block < end; ++block) {
      const auto id = static_cast<int32_t>(block);
      const int32_t holds = pool.ref_count(id);
      if (holds > 0) ++cell.allocated;
      if (holds > 1) ++cell.shared;
      if (pool.is_evictable(id)) ++cell.evictable;
    }
  }

  std::vector<int64_t> own(cells.size()), most(cells.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::vector<int32_t>& blocks = tables[i]->blocks();
    for (const int32_t id : blocks) {
      if (id != BlockTable::kNone) ++own[id >> shift];
    }
    for (const int32_t id : blocks) {
      if (id == BlockTable::kNone) continue;
      const int32_t cell = id >> shift;
      if (own[cell] > most[cell]) {
        most[cell] = own[cell];
        cells[cell].holder = static_cast<int32_t>(i + 1);
      }
      own[cell] = 0;
    }
  }

  for (const Cell& cell : cells) {
    if (runs.empty() || runs.back().cell != cell) runs.push_back({.cells = 0, .cell = cell});
    ++runs.back().cells;
  }
}

}  // namespace triptych::serving
