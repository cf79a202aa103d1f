#include "engine/serving/block_map.h"

#include <algorithm>

#include "engine/base/ceil_div.h"

namespace triptych {

void BlockMap::Draw(const BlockPool& pool, std::span<const BlockTable* const> tables) {
  cell_blocks = std::max<int64_t>(CeilDiv(pool.total(), kMaxCells), 1);
  std::vector<Cell> cells(CeilDiv(pool.total(), cell_blocks));
  int64_t block = 0;
  for (Cell& cell : cells) {
    for (const int64_t end = std::min(block + cell_blocks, pool.total()); block < end; ++block) {
      const auto id = static_cast<int32_t>(block);
      if (pool.holds(id) > 0) ++cell.held;
      if (pool.holds(id) > 1) ++cell.shared;
      if (pool.is_cached(id)) ++cell.cached;
    }
  }

  std::vector<int64_t> own(cells.size()), most(cells.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::vector<int32_t>& blocks = tables[i]->blocks();
    for (const int32_t id : blocks) ++own[id / cell_blocks];
    for (const int32_t id : blocks) {
      const int64_t cell = id / cell_blocks;
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

}  // namespace triptych
