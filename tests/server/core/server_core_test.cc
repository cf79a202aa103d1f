// Tests of the server's core on engines that compute nothing.
#include "server/core/server_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/core/model_info.h"
#include "tests/support/fake_model.h"

namespace triptych::server::server_core_test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Caller Inferring(const std::string& client) {
  return {.client = client,
          .arrived = serving::EngineClock::now(),
          .inference = true,
          .statistics = false,
          .admin = false};
}
Caller Admin() { return {.client = "root", .inference = true, .statistics = true, .admin = true}; }

// Listener that takes a call's output as soon as it arrives.
class Taker final : public CallListener {
 public:
  explicit Taker(std::shared_ptr<Call> generation) : generation_(std::move(generation)) {}

  void OnReady() override {
    while (true) {
      const Call::Event event = generation_->Take();
      if (std::holds_alternative<std::monostate>(event)) return;
      if (std::holds_alternative<RequestAccepted>(event)) accepted.set_value();
      if (const auto* chunk = std::get_if<StreamChunk>(&event)) {
        text += chunk->text;
        if (chunk->completion) usage = chunk->completion->usage;
        generation_->ChunkDone(true);
      }
      if (const auto* end = std::get_if<CallEnd>(&event)) ended.set_value(end->error);
    }
  }

  std::promise<void> accepted;
  std::promise<std::optional<Error>> ended;
  std::string text;             // set at the end
  serving::RequestUsage usage;  // set at the end

 private:
  const std::shared_ptr<Call> generation_;
};

class ServerCoreTest : public testing::Test {
 protected:
  void MakeCore(int models, const AdmissionLimits& limits = {}, int64_t positions = kPositions) {
    std::vector<ModelEntry> served;
    for (int i = 0; i < models; ++i) {
      ModelInfo model = SmallModelInfo();
      model.name = "model-" + std::to_string(i);
      model.config.max_position_embeddings = positions;
      model.info.geometry.block_positions = 1000;
      model.info.blocks = positions / 1000;
      auto fake = std::make_unique<FakeModel>(FakeModel::Shape{.vocab_size = 258,
                                                               .max_positions = positions,
                                                               .blocks = positions / 1000,
                                                               .block_positions = 1000});
      served.push_back({model, std::make_unique<serving::Engine>(std::move(fake), model.tokenizer,
                                                                 serving::EngineOptions{})});
    }
    core_ = std::make_unique<ServerCore>(std::move(served), limits);
  }

  static GenerateParams Prompt(const std::string& model, int64_t max_new_tokens) {
    GenerateParams params;
    params.model = model;
    params.prompt.input = "ab";
    params.max_new_tokens = max_new_tokens;
    params.ignore_eos = true;
    return params;
  }
  // Started, and accepted by its engine.
  std::shared_ptr<Call> Start(const std::string& model, const std::string& client,
                              int64_t max_new_tokens = kPositions / 2) {
    auto generation =
        core_->requests.Generate(Prompt(model, max_new_tokens), Inferring(client)).value();
    auto taker = std::make_shared<Taker>(generation);
    generation->Start(taker);
    taker->accepted.get_future().wait();
    takers_.push_back(std::move(taker));
    return generation;
  }
  Result<SequencePage> List(const ListSequencesParams& params, const Caller& caller) {
    std::promise<Result<SequencePage>> page;
    core_->stats.ListSequences(
        params, caller, [&](Result<SequencePage> answer) { page.set_value(std::move(answer)); });
    return page.get_future().get();
  }
  static std::vector<std::string> Ids(const SequencePage& page) {
    std::vector<std::string> ids;
    for (const LiveSequence& sequence : page.sequences) ids.push_back(sequence.stats.id);
    return ids;
  }

  static constexpr int64_t kPositions = 1'000'000;
  std::unique_ptr<ServerCore> core_;
  std::vector<std::shared_ptr<Taker>> takers_;
};

TEST_F(ServerCoreTest, ListsOnesOwnSequencesAndAdminEverybodys) {
  MakeCore(2);
  std::vector<std::shared_ptr<Call>> live;
  live.push_back(Start("model-0", "ann"));
  live.push_back(Start("model-1", "bob"));
  live.push_back(Start("model-1", "ann"));

  const SequencePage all = List({}, Admin()).value();
  EXPECT_THAT(Ids(all), ElementsAre(live[0]->id(), live[1]->id(), live[2]->id()));
  EXPECT_EQ(all.sequences[1].stats.client, "bob");
  EXPECT_EQ(all.sequences[1].model, "model-1");
  const SequencePage own = List({}, Inferring("ann")).value();
  EXPECT_THAT(Ids(own), ElementsAre(live[0]->id(), live[2]->id()));
  for (const LiveSequence& sequence : own.sequences) EXPECT_EQ(sequence.stats.client, "");
  EXPECT_THAT(
      Ids(List({.model = "model-0", .page_size = 0, .page_token = ""}, Inferring("bob")).value()),
      IsEmpty());
  for (const auto& one : live) one->Cancel();
}

TEST_F(ServerCoreTest, ABlockMapNamesOnesOwnSequencesAndToAdminEverybodys) {
  MakeCore(1);
  const std::vector<std::shared_ptr<Call>> live = {Start("", "ann"), Start("", "bob")};
  const auto holders = [&](const Caller& caller) {
    std::promise<Result<RegistryStats>> stats;
    core_->stats.Collect({.model = "", .block_map = true}, caller,
                         [&](Result<RegistryStats> answer) { stats.set_value(std::move(answer)); });
    return stats.get_future().get().value().models.at(0).holders;
  };
  const auto all = holders(Admin());
  ASSERT_THAT(*all, SizeIs(2));
  EXPECT_EQ((*all)[1].id, live[1]->id());
  EXPECT_EQ((*all)[1].client, "bob");
  Caller ann = Inferring("ann");
  ann.statistics = true;
  const auto own = holders(ann);
  ASSERT_THAT(*own, SizeIs(2));
  EXPECT_EQ((*own)[0].id, live[0]->id());
  EXPECT_EQ((*own)[0].client, "");
  const serving::SequenceStats& other = (*own)[1];
  EXPECT_EQ(other.id, "");
  EXPECT_EQ(other.client, "");
  EXPECT_EQ(other.number, 0u);
  EXPECT_EQ(other.prompt_tokens, 0);
  EXPECT_EQ(other.generated_tokens, 0);
  EXPECT_EQ(other.order, 2u);
  EXPECT_GT(other.kv_cache.allocated_bytes, 0);
  // Without the scope inference, a caller sees no ids, not even of a client of the same name.
  ann.inference = false;
  EXPECT_EQ(holders(ann)->at(0).id, "");
  for (const auto& one : live) one->Cancel();
}

TEST_F(ServerCoreTest, APageContinuesThePreviousOneOnlyForTheSameQuery) {
  MakeCore(2);
  std::vector<std::shared_ptr<Call>> live;
  for (int i = 0; i < 5; ++i) live.push_back(Start("model-" + std::to_string(i % 2), "ann"));
  ListSequencesParams params = {.model = "", .page_size = 2, .page_token = ""};
  std::vector<std::string> ids;
  std::string second_page;
  do {
    const SequencePage page = List(params, Inferring("ann")).value();
    for (const std::string& id : Ids(page)) ids.push_back(id);
    params.page_token = page.next_page_token;
    if (second_page.empty()) second_page = page.next_page_token;
  } while (!params.page_token.empty());
  ASSERT_THAT(ids, SizeIs(5));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ids[i], live[i]->id());

  params.page_token = second_page;
  params.page_size = 1000;
  EXPECT_THAT(Ids(List(params, Inferring("ann")).value()), SizeIs(3)) << "another size is fine";
  EXPECT_EQ(List(params, Inferring("bob")).error().field, "page_token");
  EXPECT_EQ(List(params, Admin()).error().field, "page_token");
  params.model = "model-0";
  EXPECT_EQ(List(params, Inferring("ann")).error().field, "page_token");
  params = {.model = "", .page_size = -1, .page_token = ""};
  EXPECT_EQ(List(params, Inferring("ann")).error().field, "page_size");
  for (const auto& one : live) one->Cancel();
}

TEST_F(ServerCoreTest, ModelsHavePagesToo) {
  MakeCore(3);
  const auto names = [](const ModelPage& page) {
    std::vector<std::string> all;
    for (const ModelInfo& model : page.models) all.push_back(model.name);
    return all;
  };
  EXPECT_THAT(names(core_->models.ListModels({}).value()),
              ElementsAre("model-0", "model-1", "model-2"));
  const ModelPage first = core_->models.ListModels({.page_size = 2, .page_token = ""}).value();
  EXPECT_THAT(names(first), ElementsAre("model-0", "model-1"));
  const ModelPage last =
      core_->models.ListModels({.page_size = 2, .page_token = first.next_page_token}).value();
  EXPECT_THAT(names(last), ElementsAre("model-2"));
  EXPECT_EQ(last.next_page_token, "");
  EXPECT_FALSE(core_->models.ListModels({.page_size = -1, .page_token = ""}).ok());
  EXPECT_FALSE(core_->models.ListModels({.page_size = 2, .page_token = "2"}).ok());
}

TEST_F(ServerCoreTest, AClientsShareIsItsOwn) {
  MakeCore(1, {.max_client_requests = 2, .client_rate = 0});
  std::vector<std::shared_ptr<Call>> live;
  for (int i = 0; i < 2; ++i) live.push_back(Start("", "ann"));
  EXPECT_EQ(core_->requests.live_requests(), 2);
  EXPECT_EQ(core_->requests.Generate(Prompt("", 1), Inferring("ann")).error().reason,
            "CLIENT_LIMIT");
  EXPECT_EQ(core_->requests.Score({.model = "", .inputs = {{.input = "a"}}}, Inferring("ann"))
                .error()
                .reason,
            "CLIENT_LIMIT");
  Start("", "bob", 1);
  for (const auto& one : live) one->Cancel();
  for (int i = 0; i < 2; ++i) takers_[i]->ended.get_future().wait();
  live.clear();
  takers_.clear();
  // The engine releases a request just after it has reported its end.
  while (!core_->requests.Generate(Prompt("", 1), Inferring("ann")).ok()) std::this_thread::yield();
}

TEST_F(ServerCoreTest, EveryRequestEndsWithALineOfTheLogWithoutItsText) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
  MakeCore(1);
  const std::string id = Start("", "ann", 5)->id();
  takers_.back()->ended.get_future().wait();
  const std::string text = takers_.back()->text;
  const auto cancelled = Start("", "ann");
  cancelled->Cancel();
  takers_.back()->ended.get_future().wait();
  takers_.clear();
  core_.reset();  // writes the remaining lines
  spdlog::set_default_logger(before);
  EXPECT_THAT(log.str(),
              AllOf(HasSubstr("request " + id +
                              " of ann on model-0: length; tokens: "
                              "prompt 3, cached 0, generated 5, drafted 0, accepted 0; ms: queue "),
                    HasSubstr("request " + cancelled->id() + " of ann on model-0: CANCELLED")));
  EXPECT_THAT(log.str(), testing::Not(HasSubstr(text)));
}

std::string Series(const std::string& name, const std::string& model, const std::string& more,
                   int64_t value) {
  return "\n" + name + "{model=\"" + model + "\",attention=\"mha\"" + more + "} " +
         std::to_string(value) + "\n";
}

TEST_F(ServerCoreTest, CountsWhatBecameOfRequestsForItsModels) {
  MakeCore(2, {.max_client_requests = 1});
  const auto count = [&](const std::string& outcome, int64_t value) {
    return HasSubstr(
        Series("triptych_requests_total", "model-1", ",outcome=\"" + outcome + "\"", value));
  };
  Start("model-1", "ann", 5);
  takers_.back()->ended.get_future().wait();
  takers_.clear();
  const auto live = Start("model-1", "bob");
  EXPECT_FALSE(core_->requests.Generate(Prompt("model-1", 1), Inferring("bob")).ok());
  EXPECT_FALSE(core_->requests.Generate(Prompt("model-1", -1), Inferring("cid")).ok());
  EXPECT_FALSE(core_->requests.Score({.model = "model-1", .inputs = {}}, Inferring("cid")).ok());
  // Names that clients make up are nobody's.
  for (const std::string odd : {"model-2", "", "a\"}\n", "triptych_requests_total"}) {
    EXPECT_FALSE(core_->requests.Generate(Prompt(odd, 1), Inferring("a\n" + odd)).ok());
  }
  live->Cancel();
  takers_.back()->ended.get_future().wait();
  const std::string metrics = core_->stats.Metrics();
  EXPECT_THAT(metrics, AllOf(count("length", 1), count("cancelled", 1), count("refused", 1),
                             count("invalid", 2), count("stop", 0)));
  EXPECT_THAT(metrics, AllOf(testing::Not(HasSubstr("model-2")), testing::Not(HasSubstr("ann")),
                             testing::Not(HasSubstr("model=\"\""))));
  // As many lines as without any request.
  MakeCore(2);
  const std::string none = core_->stats.Metrics();
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'),
            std::count(none.begin(), none.end(), '\n'));
}

TEST_F(ServerCoreTest, MetricsAreThereWhileAnEngineHangs) {
  std::promise<void> hangs, goes_on;
  ModelInfo model = SmallModelInfo();
  auto fake = std::make_unique<FakeModel>(FakeModel::Shape{});
  fake->before_step = [&, first = true](const StepInput&) mutable {
    if (!std::exchange(first, false)) return;
    hangs.set_value();
    goes_on.get_future().wait();
  };
  std::vector<ModelEntry> served;
  served.push_back({model, std::make_unique<serving::Engine>(std::move(fake), model.tokenizer,
                                                             serving::EngineOptions{})});
  core_ = std::make_unique<ServerCore>(std::move(served), AdmissionLimits{});
  const auto generation = core_->requests.Generate(Prompt("", 2), Inferring("ann")).value();
  const auto taker = std::make_shared<Taker>(generation);
  generation->Start(taker);
  hangs.get_future().wait();
  EXPECT_THAT(core_->stats.Metrics(),
              AllOf(HasSubstr(Series("triptych_generation_tokens_total", "small", "", 0)),
                    HasSubstr(Series("triptych_requests_waiting", "small", "", 1))));
  goes_on.set_value();
  taker->ended.get_future().wait();
}

TEST_F(ServerCoreTest, ARequestArrivesWhenItIsMade) {
  MakeCore(1);
  const auto generation = core_->requests.Generate(Prompt("", 1), Inferring("ann")).value();
  constexpr auto kUntilTheEngineHearsOfIt = 20ms;
  std::this_thread::sleep_for(kUntilTheEngineHearsOfIt);
  const auto taker = std::make_shared<Taker>(generation);
  generation->Start(taker);
  EXPECT_EQ(taker->ended.get_future().get(), std::nullopt);
  EXPECT_GE(taker->usage.queue_time, kUntilTheEngineHearsOfIt);
}

TEST_F(ServerCoreTest, ChoicesAreListedOneByOne) {
  MakeCore(1);
  GenerateParams params = Prompt("", kPositions / 8);
  params.n = 3;
  params.sampling.temperature = 1;
  const auto generation = core_->requests.Generate(params, Inferring("ann")).value();
  const auto taker = std::make_shared<Taker>(generation);
  generation->Start(taker);
  taker->accepted.get_future().wait();
  const auto next = Start("", "ann");
  std::vector<int32_t> choices;
  ListSequencesParams page = {.model = "", .page_size = 1, .page_token = ""};
  do {
    const SequencePage one = List(page, Inferring("ann")).value();
    ASSERT_THAT(one.sequences, SizeIs(1));
    choices.push_back(one.sequences[0].stats.choice);
    EXPECT_EQ(one.sequences[0].stats.id, choices.size() <= 3 ? generation->id() : next->id());
    page.page_token = one.next_page_token;
  } while (!page.page_token.empty());
  EXPECT_THAT(choices, ElementsAre(0, 1, 2, 0));
  generation->Cancel();
  next->Cancel();
}

TEST_F(ServerCoreTest, WatchersAreBounded) {
  MakeCore(1);
  std::vector<StatsWatch> watches;
  for (size_t i = 0; i < StatsService::kMaxWatchers; ++i) {
    watches.push_back(core_->stats.Watch({}).value());
  }
  const Result<StatsWatch> refused = core_->stats.Watch({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().reason, "STATISTICS_LIMIT");
  watches.pop_back();
  EXPECT_TRUE(core_->stats.Watch({}).ok());
  EXPECT_FALSE(core_->stats.Watch({.model = "none", .interval = {}}).ok());
  EXPECT_TRUE(core_->stats.Watch({}).ok()) << "a refusal takes no place";
}

TEST_F(ServerCoreTest, AListOfManyModelsFitsIntoAnError) {
  MakeCore(200, {}, 1000);  // pools of one block
  for (const std::string name : {"", "none"}) {
    const Result<const ModelInfo*> found = core_->models.Find(name);
    ASSERT_FALSE(found.ok());
    EXPECT_LT(found.error().Message().size(), 800u);
    EXPECT_THAT(found.error().Message(), AllOf(HasSubstr("model-0, model-1"), HasSubstr(" more")));
  }
}

}  // namespace
}  // namespace triptych::server::server_core_test
