// What the models of a host hold at one moment, between two steps.
#ifndef TRIPTYCH_SERVER_CORE_STATISTICS_H_
#define TRIPTYCH_SERVER_CORE_STATISTICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/serving/stats.h"
#include "server/core/validation.h"

namespace triptych {

struct ModelStats {
  std::string model;
  KvCacheStats kv_cache;
};

struct HostStats {
  std::vector<ModelStats> models;
  // The sums over `models`.
  int64_t pool_bytes = 0;
  int64_t used_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t free_bytes = 0;

  void Add(ModelStats stats);
};

struct LiveSequence {
  std::string model;
  SequenceStats stats;
};

struct SequencePage {
  std::vector<LiveSequence> sequences;  // in order of arrival
  std::string next_page_token;          // empty on the last page
};

// The page of `live`, which is in any order. Request ids are numbers in order of arrival.
SequencePage SelectPage(std::vector<LiveSequence> live, const PageRange& range);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_STATISTICS_H_
