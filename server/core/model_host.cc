#include "server/core/model_host.h"

#include <numeric>
#include <utility>

#include "engine/serving/engine_loop.h"
#include "engine/text/text_stream.h"

namespace triptych {
namespace {

std::string NameList(const std::vector<ServedModel>& models) {
  std::string names;
  for (const ServedModel& model : models) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

}  // namespace

// An engine, behind the inbox of the loop that runs it.
class ModelHost::LoopHandle final : public EngineHandle {
 public:
  LoopHandle(EngineLoop& loop, Engine& engine) : loop_(loop), engine_(engine) {}

  void Submit(Request request, std::shared_ptr<RequestSink> sink) override {
    loop_.Post([&engine = engine_, request = std::move(request), sink = std::move(sink)] {
      engine.Submit(request, sink);
    });
  }
  void Cancel(const std::string& id) override {
    loop_.Post([&engine = engine_, id] { engine.Cancel(id); });
  }

 private:
  EngineLoop& loop_;
  Engine& engine_;
};

ModelHost::ModelHost(std::vector<ServedEngine> served) {
  std::vector<Engine*> engines;
  for (ServedEngine& one : served) {
    models_.push_back(std::move(one.model));
    engines_.push_back(std::move(one.engine));
    engines.push_back(engines_.back().get());
  }
  loop_ = std::make_unique<EngineLoop>(engines);
  for (Engine* engine : engines) handles_.push_back(std::make_unique<LoopHandle>(*loop_, *engine));
}

ModelHost::~ModelHost() = default;

Result<size_t> ModelHost::FindIndex(const std::string& name) const {
  if (name.empty() && models_.size() != 1) {
    return InvalidArgument("model", "is empty, but several are loaded: " + NameList(models_));
  }
  for (size_t i = 0; i < models_.size(); ++i) {
    if (name.empty() || models_[i].name == name) return i;
  }
  return ModelNotFound(name, NameList(models_));
}

Result<const ServedModel*> ModelHost::Find(const std::string& name) const {
  const Result<size_t> index = FindIndex(name);
  if (!index.ok()) return index.error();
  return &models_[index.value()];
}

Result<std::vector<size_t>> ModelHost::FindAll(const std::string& name) const {
  if (name.empty()) {
    std::vector<size_t> all(models_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }
  const Result<size_t> index = FindIndex(name);
  if (!index.ok()) return index.error();
  return std::vector{index.value()};
}

template <typename Params>
Result<std::shared_ptr<Generation>> ModelHost::Make(const Params& params) {
  const Result<size_t> index = FindIndex(params.model);
  if (!index.ok()) return index.error();
  const ServedModel& model = models_[index.value()];
  Result<ValidRequest> valid = Validate(params, model);
  if (!valid.ok()) return valid.error();
  valid.value().request.id = std::to_string(++requests_);
  return std::make_shared<Generation>(model, *handles_[index.value()], std::move(valid).value());
}

Result<std::shared_ptr<Generation>> ModelHost::Generate(const GenerateParams& params) {
  return Make(params);
}

Result<std::shared_ptr<Generation>> ModelHost::Score(const ScoreParams& params) {
  return Make(params);
}

Result<std::vector<int32_t>> ModelHost::Tokenize(const std::string& model,
                                                 std::string_view text) const {
  const Result<const ServedModel*> found = Find(model);
  if (!found.ok()) return found.error();
  return found.value()->tokenizer->Encode(text);
}

Result<std::string> ModelHost::Detokenize(const std::string& model,
                                          std::span<const int32_t> ids) const {
  const Result<const ServedModel*> found = Find(model);
  if (!found.ok()) return found.error();
  if (const auto error = CheckTokenIds(ids, *found.value(), "token_ids")) return *error;
  std::string bytes;
  for (const int32_t id : ids) bytes += found.value()->tokenizer->Decode(id);
  return ToValidUtf8(bytes);
}

void ModelHost::CollectStats(const std::string& model,
                             std::function<void(Result<HostStats>)> done) {
  const Result<std::vector<size_t>> found = FindAll(model);
  if (found.ok()) {
    CollectStats({.models = found.value(), .interval = {}}, std::move(done));
  } else {
    done(found.error());
  }
}

void ModelHost::CollectStats(const StatsWatch& watch, std::function<void(HostStats)> done) {
  loop_->Post([this, indices = watch.models, done = std::move(done)] {
    HostStats stats;
    for (const size_t i : indices) stats.Add({models_[i].name, engines_[i]->Stats()});
    done(std::move(stats));
  });
}

void ModelHost::ListSequences(const ListSequencesParams& params,
                              std::function<void(Result<SequencePage>)> done) {
  const Result<std::vector<size_t>> found = FindAll(params.model);
  if (!found.ok()) return done(found.error());
  const Result<PageRange> range = ValidatePage(params);
  if (!range.ok()) return done(range.error());
  loop_->Post([this, indices = found.value(), range = range.value(), done = std::move(done)] {
    std::vector<LiveSequence> live;
    for (const size_t i : indices) {
      for (SequenceStats& sequence : engines_[i]->Sequences()) {
        live.push_back({models_[i].name, std::move(sequence)});
      }
    }
    done(SelectPage(std::move(live), range));
  });
}

Result<StatsWatch> ModelHost::Watch(const WatchStatsParams& params) const {
  const Result<std::vector<size_t>> found = FindAll(params.model);
  if (!found.ok()) return found.error();
  const Result<std::chrono::milliseconds> interval = ValidateInterval(params.interval);
  if (!interval.ok()) return interval.error();
  return StatsWatch{found.value(), interval.value()};
}

bool ModelHost::Drain(std::chrono::nanoseconds timeout) { return loop_->Drain(timeout); }

}  // namespace triptych
