#include "server/core/statistics.h"

#include <algorithm>
#include <utility>

#include "engine/base/parse.h"

namespace triptych {

void HostStats::Add(ModelStats stats) {
  pool_bytes += stats.kv_cache.pool_bytes;
  used_bytes += stats.kv_cache.used_bytes;
  reserved_bytes += stats.kv_cache.reserved_bytes;
  free_bytes += stats.kv_cache.free_bytes;
  models.push_back(std::move(stats));
}

SequencePage SelectPage(std::vector<LiveSequence> live, const PageRange& range) {
  const auto number = [](const LiveSequence& sequence) {
    return ParseNumber<uint64_t>(sequence.stats.id).value_or(0);
  };
  std::erase_if(live,
                [&](const LiveSequence& sequence) { return number(sequence) <= range.after; });
  std::sort(live.begin(), live.end(),
            [&](const LiveSequence& a, const LiveSequence& b) { return number(a) < number(b); });
  SequencePage page;
  if (live.size() > range.size) {
    live.resize(range.size);
    page.next_page_token = live.back().stats.id;
  }
  page.sequences = std::move(live);
  return page;
}

}  // namespace triptych
