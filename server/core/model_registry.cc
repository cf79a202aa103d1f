#include "server/core/model_registry.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "engine/base/request_limits.h"
#include "engine/serving/engine_loop.h"
#include "server/core/stats/metrics.h"

namespace triptych::server {
namespace {

// The names, as many as fit into an error with everything else.
std::string NameList(const std::vector<ModelInfo>& models) {
  constexpr size_t kMaxBytes = 512;
  std::string names;
  for (size_t i = 0; i < models.size(); ++i) {
    if (names.size() + models[i].name.size() > kMaxBytes) {
      return names + fmt::format("{}{} more", i == 0 ? "" : " and ", models.size() - i);
    }
    names += (i == 0 ? "" : ", ") + models[i].name;
  }
  return names;
}

// Of others' sequences a block map shows whoever is not admin what their caches take, and no more.
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

// An engine, behind the inbox of the loop that runs it.
class ModelRegistry::LoopHandle final : public EngineHandle {
 public:
  LoopHandle(serving::EngineLoop& loop, serving::Engine& engine) : loop_(loop), engine_(engine) {}

  void Submit(serving::Request request, std::shared_ptr<serving::RequestSink> sink) override {
    loop_.Post([&engine = engine_, request = std::move(request), sink = std::move(sink)] {
      engine.Submit(request, sink);
    });
  }
  void Cancel(const std::string& id) override {
    try {
      loop_.Post([&engine = engine_, id] { engine.Cancel(id); });
    } catch (const std::exception& e) {  // such as std::bad_alloc
      spdlog::error("request {} is not cancelled: {}", id, e.what());
    }
  }

 private:
  serving::EngineLoop& loop_;
  serving::Engine& engine_;
};

// All engines, on their thread.
class ModelRegistry::LoopEngines final : public StatsCollector::Engines {
 public:
  explicit LoopEngines(const ModelRegistry& registry) : registry_(registry) {}

  std::vector<ModelStats> Stats(bool block_maps) override {
    std::vector<ModelStats> stats;
    for (size_t i = 0; i < registry_.models_.size(); ++i) {
      const serving::Engine& engine = *registry_.engines_[i];
      stats.push_back(
          {.model = registry_.models_[i].name, .kv_cache = engine.Stats(), .block_map = nullptr});
      if (block_maps) {
        stats.back().block_map = std::make_shared<const serving::BlockMap>(engine.MapBlocks());
      }
    }
    return stats;
  }

  std::vector<LiveSequence> Sequences(const SequenceListing& listing) override {
    // One more than fits, so that it is known whether there are more.
    const serving::SequenceQuery query = {
        .after = listing.after, .limit = listing.limit + 1, .client = listing.client};
    std::vector<LiveSequence> sequences;
    for (const size_t i : listing.models) {
      for (serving::SequenceStats& one : registry_.engines_[i]->Sequences(query)) {
        sequences.push_back({registry_.models_[i].name, std::move(one)});
      }
    }
    return sequences;
  }

 private:
  const ModelRegistry& registry_;
};

ModelRegistry::ModelRegistry(std::vector<ModelEntry> served, const AdmissionLimits& limits,
                             std::function<void(const std::string&)> on_device_lost)
    : outcomes_(served.size()), admission_(limits) {
  std::vector<serving::Engine*> engines;
  for (ModelEntry& one : served) {
    models_.push_back(std::move(one.model));
    engines_.push_back(std::move(one.engine));
    engines.push_back(engines_.back().get());
  }
  loop_ = std::make_unique<serving::EngineLoop>(engines, std::move(on_device_lost));
  loop_engines_ = std::make_unique<LoopEngines>(*this);
  desk_ = std::make_unique<StatsCollector>(
      *loop_engines_,
      [loop = loop_.get()](std::function<void()> task) { loop->Post(std::move(task)); },
      [this](std::function<void()> task) { worker_.Post(std::move(task)); });
  for (serving::Engine* engine : engines)
    handles_.push_back(std::make_unique<LoopHandle>(*loop_, *engine));
}

ModelRegistry::~ModelRegistry() = default;

Result<size_t> ModelRegistry::FindIndex(const std::string& name) const {
  if (name.empty() && models_.size() != 1) {
    return InvalidArgument("model", "is empty, but several are loaded: " + NameList(models_));
  }
  for (size_t i = 0; i < models_.size(); ++i) {
    if (name.empty() || models_[i].name == name) return i;
  }
  return ModelNotFound(name, NameList(models_));
}

Result<const ModelInfo*> ModelRegistry::Find(const std::string& name) const {
  const Result<size_t> index = FindIndex(name);
  if (!index.ok()) return index.error();
  return &models_[index.value()];
}

Result<std::vector<size_t>> ModelRegistry::FindAll(const std::string& name) const {
  if (name.empty()) {
    std::vector<size_t> all(models_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }
  const Result<size_t> index = FindIndex(name);
  if (!index.ok()) return index.error();
  return std::vector{index.value()};
}

Result<ModelPage> ModelRegistry::ListModels(const ListModelsParams& params) const {
  constexpr const char* kQuery = "models";
  const Result<size_t> size = ValidatePageSize(params.page_size);
  if (!size.ok()) return size.error();
  const Result<uint64_t> first = page_tokens_.Read(kQuery, params.page_token);
  if (!first.ok()) return first.error();
  const size_t end = std::min<size_t>(models_.size(), first.value() + size.value());
  const std::span<const ModelInfo> all = models_;
  return ModelPage{
      .models = all.subspan(first.value(), end - first.value()),
      .next_page_token = end < all.size() ? page_tokens_.Make(kQuery, end) : std::string()};
}

void ModelRegistry::Identify(const Caller& caller, uint64_t sequences, serving::Request& request) {
  const RequestIds::Id id = ids_.Take(sequences);
  request.id = id.text;
  request.number = id.number;
  request.client = caller.client;
  request.arrived = caller.arrived;
}

Error ModelRegistry::Refuse(size_t model, Outcome outcome, Error error) {
  outcomes_[model].Add(outcome);
  return error;
}

RequestLog ModelRegistry::Log(size_t model, const Caller& caller) {
  return [this, model, traceparent = caller.traceparent](RequestSummary summary) {
    outcomes_[model].Add(summary.outcome);
    // A client that is refused may come again at once, and as often as it likes.
    const auto level = summary.refused ? spdlog::level::debug : spdlog::level::info;
    if (!spdlog::should_log(level)) return;
    summary.traceparent = traceparent;
    worker_.Post([level, summary = std::move(summary)] {
      if (const auto json = spdlog::get(kJsonLogger)) {
        json->log(level, summary.JsonMembers());
      } else {
        spdlog::log(level, summary.Text());
      }
    });
  };
}

Result<std::shared_ptr<Generation>> ModelRegistry::Generate(const GenerateParams& params,
                                                            const Caller& caller) {
  const Result<size_t> index = FindIndex(params.model);
  if (!index.ok()) return index.error();
  const ModelInfo& model = models_[index.value()];
  Result<Admission::Permit> place = admission_.Enter(caller.client, 1);
  if (!place.ok()) return Refuse(index.value(), Outcome::kRefused, place.error());
  Result<ValidRequest> valid = Validate(params, model);
  if (!valid.ok()) return Refuse(index.value(), Outcome::kInvalid, valid.error());
  serving::Request& request = valid.value().request;
  Identify(caller, request.choices, request);
  return std::make_shared<Generation>(
      model, *handles_[index.value()], std::move(valid).value(),
      CallContext{.place = std::move(place).value(), .log = Log(index.value(), caller)});
}

Result<std::shared_ptr<Scoring>> ModelRegistry::Score(const ScoreParams& params,
                                                      const Caller& caller) {
  const Result<size_t> index = FindIndex(params.model);
  if (!index.ok()) return index.error();
  const ModelInfo& model = models_[index.value()];
  Result<Admission::Permit> place = admission_.Enter(caller.client, std::ssize(params.inputs));
  if (!place.ok()) return Refuse(index.value(), Outcome::kRefused, place.error());
  Result<std::vector<ValidRequest>> valid = Validate(params, model);
  if (!valid.ok()) return Refuse(index.value(), Outcome::kInvalid, valid.error());
  for (ValidRequest& one : valid.value()) Identify(caller, 1, one.request);
  return std::make_shared<Scoring>(
      model, *handles_[index.value()], std::move(valid).value(),
      CallContext{.place = std::move(place).value(), .log = Log(index.value(), caller)});
}

Result<TokenizedText> ModelRegistry::Tokenize(const TokenizeParams& params) const {
  const Result<const ModelInfo*> found = Find(params.model);
  if (!found.ok()) return found.error();
  return server::Tokenize(params, *found.value());
}

Result<std::string> ModelRegistry::Detokenize(const std::string& model,
                                              std::span<const int32_t> ids) const {
  const Result<const ModelInfo*> found = Find(model);
  if (!found.ok()) return found.error();
  return server::Detokenize(ids, *found.value());
}

void ModelRegistry::CollectStats(const StatsParams& params, const Caller& caller,
                                 std::function<void(Result<RegistryStats>)> done) {
  Result<std::vector<size_t>> models = FindAll(params.model);
  if (!models.ok()) return done(models.error());
  desk_->Ask(params.block_map, [models = std::move(models).value(), caller,
                                done = std::move(done)](const std::vector<ModelStats>& all) {
    RegistryStats stats;
    for (const size_t i : models) stats.Add(AsSeenBy(caller, all[i]));
    done(std::move(stats));
  });
}

void ModelRegistry::CollectStats(const StatsWatch& watch, std::function<void(RegistryStats)> done) {
  desk_->Ask(/*block_maps=*/false,
             [models = watch.models, done = std::move(done)](const std::vector<ModelStats>& all) {
               RegistryStats stats;
               for (const size_t i : models) stats.Add(all[i]);
               done(std::move(stats));
             });
}

std::string ModelRegistry::Metrics() const {
  std::vector<ModelMetrics> metrics;
  for (size_t i = 0; i < models_.size(); ++i) {
    metrics.push_back({.model = &models_[i],
                       .stats = engines_[i]->Published(),
                       .metrics = &engines_[i]->metrics(),
                       .requests = outcomes_[i].counts()});
  }
  return MetricsText(metrics);
}

void ModelRegistry::ListSequences(const ListSequencesParams& params, const Caller& caller,
                                  std::function<void(Result<SequencePage>)> done) {
  Result<std::vector<size_t>> found = FindAll(params.model);
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
  const bool asked = desk_->Ask(listing, [this, listing, query, done, admin = caller.admin](
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

Result<StatsWatch> ModelRegistry::Watch(const WatchStatsParams& params) {
  Result<std::vector<size_t>> found = FindAll(params.model);
  if (!found.ok()) return found.error();
  const Result<std::chrono::milliseconds> interval = ValidateInterval(params.interval);
  if (!interval.ok()) return interval.error();
  StatsWatch watch{
      .models = std::move(found).value(), .interval = interval.value(), .place = watchers_.Take()};
  if (watch.place == nullptr) return StatisticsLimit("streams of statistics", kMaxWatchers);
  return watch;
}

bool ModelRegistry::Drain(std::chrono::nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  return loop_->Drain(timeout) && admission_.AwaitNone(deadline);
}

}  // namespace triptych::server
