#include "server/core/stats/stats_service.h"

#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <utility>

#include "server/core/requests/validation.h"
#include "server/core/stats/metrics.h"

namespace triptych::server {
namespace {

// Unless the caller is admin, a block map shows only the KV caches of other clients' sequences.
ModelStats AsSeenBy(const Caller& caller, ModelStats stats) {
  if (stats.block_map == nullptr) return stats;
  if (caller.admin) {
    stats.holders = {stats.block_map, &stats.block_map->holders};
    return stats;
  }
  auto holders = std::make_shared<std::vector<serving::SequenceStats>>(stats.block_map->holders);
  for (serving::SequenceStats& holder : *holders) {
    if (caller.inference && holder.client == caller.client) {
      holder.client.clear();
    } else {
      serving::SequenceStats seen;
      seen.order = holder.order;
      seen.state = holder.state;
      seen.kv_cache = holder.kv_cache;
      holder = std::move(seen);
    }
  }
  stats.holders = std::move(holders);
  return stats;
}

}  // namespace

StatsService::StatsService(const ModelRegistry& models, EngineLoopThread& engines,
                           const RequestService& requests)
    : models_(models),
      engines_(engines),
      requests_(requests),
      collector_(engines,
                 [this](std::function<void()> task) { answer_worker_.Post(std::move(task)); }) {}

void StatsService::Collect(const StatsParams& params, const Caller& caller,
                           std::function<void(Result<RegistryStats>)> done) {
  Result<std::vector<size_t>> models = models_.FindAll(params.model);
  if (!models.ok()) return done(models.error());
  collector_.Ask(params.block_map, [models = std::move(models).value(), caller,
                                    done = std::move(done)](const std::vector<ModelStats>& all) {
    RegistryStats stats;
    for (const size_t i : models) stats.Add(AsSeenBy(caller, all[i]));
    done(std::move(stats));
  });
}

void StatsService::Collect(const StatsWatch& watch, std::function<void(RegistryStats)> done) {
  collector_.Ask(/*block_maps=*/false, [models = watch.models, done = std::move(done)](
                                           const std::vector<ModelStats>& all) {
    RegistryStats stats;
    for (const size_t i : models) stats.Add(all[i]);
    done(std::move(stats));
  });
}

std::string StatsService::Metrics() const {
  std::vector<ModelMetrics> metrics;
  for (size_t i = 0; i < models_.models().size(); ++i) {
    metrics.push_back({.model = &models_.models()[i],
                       .stats = engines_.Published(i),
                       .metrics = &engines_.metrics(i),
                       .requests = requests_.outcomes(i),
                       .expert_load = engines_.expert_load(i)});
  }
  return MetricsText(metrics);
}

void StatsService::ListSequences(const ListSequencesParams& params, const Caller& caller,
                                 std::function<void(Result<SequencePage>)> done) {
  Result<std::vector<size_t>> found = models_.FindAll(params.model);
  if (!found.ok()) return done(found.error());
  const Result<size_t> size = ValidatePageSize(params.page_size);
  if (!size.ok()) return done(size.error());
  std::string query =
      fmt::format("sequences/{}/{}", params.model, caller.admin ? "" : "of " + caller.client);
  const Result<uint64_t> after = page_tokens_.Read(query, params.page_token);
  if (!after.ok()) return done(after.error());
  SequenceListing listing = {.models = std::move(found).value(),
                             .after = after.value(),
                             .limit = size.value(),
                             .client = {}};
  if (!caller.admin) listing.client = caller.client;
  const bool asked = collector_.Ask(listing, [this, listing, query, done, admin = caller.admin](
                                                 const std::vector<LiveSequence>& sequences) {
    SequencePage page{.sequences = sequences, .next_page_token = {}};
    if (SortAndCut(listing, page.sequences)) {
      page.next_page_token = page_tokens_.Make(query, page.sequences.back().stats.number);
    }
    if (!admin) {
      for (LiveSequence& sequence : page.sequences) sequence.stats.client.clear();
    }
    done(std::move(page));
  });
  if (!asked) done(StatisticsLimit("different lists of sequences", StatsCollector::kMaxListings));
}

Result<StatsWatch> StatsService::Watch(const WatchStatsParams& params) {
  Result<std::vector<size_t>> found = models_.FindAll(params.model);
  if (!found.ok()) return found.error();
  const Result<std::chrono::milliseconds> interval = ValidateInterval(params.interval);
  if (!interval.ok()) return interval.error();
  StatsWatch watch{
      .models = std::move(found).value(), .interval = interval.value(), .permit = watchers_.Take()};
  if (watch.permit == nullptr) return StatisticsLimit("streams of statistics", kMaxWatchers);
  return watch;
}

}  // namespace triptych::server
