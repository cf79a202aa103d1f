// Tests of KvCacheService and ModelService: loaded models and their KV cache statistics.

#include <google/protobuf/util/message_differencer.h>
#include <google/protobuf/util/time_util.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/backend/model_backend.h"
#include "server/core/stats/stats_service.h"
#include "tests/server/test_server.h"
#include "tests/support/random_model.h"

namespace triptych::server::kv_cache_service_test {
namespace {

using google::protobuf::util::MessageDifferencer;
using google::protobuf::util::TimeUtil;
using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::IsEmpty;
using testing::Lt;
using testing::Optional;
using testing::SizeIs;
using Inference = v1::InferenceService::Stub;
using Models = v1::ModelService::Stub;
using KvCache = v1::KvCacheService::Stub;

grpc::Status ListSequences(const TestServer& server, const v1::ListSequencesRequest& request,
                           v1::ListSequencesResponse* response) {
  response->Clear();
  return CallUnary(server.kv_cache(), &KvCache::ListSequences, request, response);
}

// A WatchKvCacheStats call. Cancelled if it is destroyed before its end.
class Watch {
 public:
  Watch(const TestServer& server, const v1::WatchKvCacheStatsRequest& request)
      : reader_(server.kv_cache().WatchKvCacheStats(&context_, request)) {}
  ~Watch() {
    if (!finished_) Cancel();
  }

  bool Read(v1::WatchKvCacheStatsResponse* response) { return reader_->Read(response); }
  grpc::Status Finish() {
    finished_ = true;
    v1::WatchKvCacheStatsResponse response;
    while (Read(&response)) {
    }
    return reader_->Finish();
  }
  grpc::Status Cancel() {
    context_.TryCancel();
    return Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchKvCacheStatsResponse>> reader_;
  bool finished_ = false;
};

TEST(ModelServiceTest, DescribesEachModel) {
  const TestServer server;
  v1::ListModelsResponse list;
  ASSERT_TRUE(CallUnary(server.models(), &Models::ListModels, v1::ListModelsRequest(), &list).ok());
  const std::vector<TestModel> expected = OneOfEachKind();
  const std::vector<v1::AttentionKind> kinds = {v1::ATTENTION_KIND_MHA, v1::ATTENTION_KIND_GQA,
                                                v1::ATTENTION_KIND_MLA};
  ASSERT_EQ(list.models_size(), 3);
  for (int i = 0; i < 3; ++i) {
    const v1::Model& model = list.models(i);
    const ModelConfig& config = expected[i].config;
    // 2D, 2Gd, and r of each layer.
    const int64_t mha = 2 * config.hidden_size;
    const int64_t gqa = 2 * config.num_key_value_heads * config.head_dim;
    const std::vector<std::vector<int64_t>> rows = {{mha, mha}, {gqa, gqa}, config.kv_lora_rank};
    EXPECT_EQ(model.name(), expected[i].name);
    EXPECT_EQ(model.attention(), kinds[i]);
    EXPECT_THAT(model.row_elements(), testing::ElementsAreArray(rows[i]));
    EXPECT_EQ(model.elements_per_position(), rows[i][0] + rows[i][1]);
    EXPECT_EQ(model.bytes_per_position(), 4 * (rows[i][0] + rows[i][1]));
    EXPECT_THAT(
        model.kv_cache_formula(),
        testing::StartsWith(std::to_string(model.bytes_per_position()) + " bytes a position = "));
    EXPECT_EQ(model.mha_bytes_per_position(), 4 * 2 * 2 * config.hidden_size);
    EXPECT_EQ(model.weight_dtype(), "float32");
    EXPECT_EQ(model.kv_cache_dtype(), "float32");
    EXPECT_EQ(model.parameter_bytes(), 4 * model.parameters());
    EXPECT_EQ(model.max_positions(), 64);
    const v1::KvCacheStats stats = server.Stats(model.name());
    EXPECT_EQ(model.pool_positions(), stats.total_blocks() * stats.block_positions());
    EXPECT_EQ(nlohmann::json::parse(model.config_json()).at("hidden_size"), config.hidden_size);
    EXPECT_EQ(model.tokenizer().kind(), "bytes");
    EXPECT_EQ(model.tokenizer().vocab_size(), 258);
    EXPECT_EQ(model.tokenizer().begin_token_id(), 256);
    EXPECT_THAT(model.tokenizer().end_token_ids(), ElementsAre(257));

    v1::GetModelRequest get;
    get.set_model(model.name());
    v1::GetModelResponse one;
    ASSERT_TRUE(CallUnary(server.models(), &Models::GetModel, get, &one).ok());
    EXPECT_TRUE(MessageDifferencer::Equals(one.model(), model));
  }
  // Embedding and head, learned positions, the last norm; per layer two norms, four projections of
  // D x D and three of D x F.
  EXPECT_EQ(list.models(0).parameters(),
            2 * 258 * 24 + 64 * 24 + 24 + 2 * (2 * 24 + 4 * 24 * 24 + 3 * 24 * 43));
}

TEST(ModelServiceTest, OneModelSaysItsSpecialTokens) {
  const TestServer server({.models = {SpecialTokensModel()}});
  v1::GetModelResponse one;
  ASSERT_TRUE(CallUnary(server.models(), &Models::GetModel, v1::GetModelRequest(), &one).ok());
  v1::Tokenizer& tokenizer = *one.mutable_model()->mutable_tokenizer();
  EXPECT_EQ(tokenizer.kind(), "byte-level BPE");
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(tokenizer.begin_token_id(), 257);
  EXPECT_THAT(tokenizer.end_token_ids(), ElementsAre(256));
  ASSERT_EQ(tokenizer.special_tokens_size(), 2);
  EXPECT_EQ(tokenizer.special_tokens(1).id(), 257);
  EXPECT_EQ(tokenizer.special_tokens(1).text(), "<s>");
  v1::ListModelsResponse list;
  ASSERT_TRUE(CallUnary(server.models(), &Models::ListModels, v1::ListModelsRequest(), &list).ok());
  tokenizer.clear_special_tokens();
  EXPECT_TRUE(MessageDifferencer::Equals(list.models(0), one.model())) << "small";
}

TEST(ModelServiceTest, SaysWhatARequestTakesWhereItIsSilent) {
  const TestModel with_defaults = OwnDefaultsModel(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.05,
          "max_new_tokens": 1000000})");
  const TestServer server({.models = {OneOfEachKind()[0], with_defaults}});
  v1::ListModelsResponse list;
  ASSERT_TRUE(CallUnary(server.models(), &Models::ListModels, v1::ListModelsRequest(), &list).ok());
  ASSERT_EQ(list.models_size(), 2);
  v1::GenerationDefaults expected;
  v1::SamplingParams& sampling = *expected.mutable_sampling();
  sampling.set_temperature(1);
  sampling.set_top_k(0);
  sampling.set_top_p(1);
  sampling.set_min_p(0);
  sampling.set_repetition_penalty(1);
  EXPECT_TRUE(MessageDifferencer::Equals(list.models(0).generation_defaults(), expected));
  sampling.set_temperature(0.6f);
  sampling.set_top_k(20);
  sampling.set_top_p(0.95f);
  sampling.set_min_p(0.01f);
  sampling.set_repetition_penalty(1.05f);
  expected.set_max_new_tokens(1000000);
  EXPECT_TRUE(MessageDifferencer::Equals(list.models(1).generation_defaults(), expected));
  v1::GetModelRequest get;
  get.set_model("own");
  v1::GetModelResponse one;
  ASSERT_TRUE(CallUnary(server.models(), &Models::GetModel, get, &one).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(one.model().generation_defaults(), expected));
}

TEST(ModelServiceTest, ListsModelsInPages) {
  const TestServer server;
  v1::ListModelsRequest request;
  request.set_page_size(2);
  v1::ListModelsResponse page;
  ASSERT_TRUE(CallUnary(server.models(), &Models::ListModels, request, &page).ok());
  ASSERT_EQ(page.models_size(), 2);
  request.set_page_token(page.next_page_token());
  ASSERT_TRUE(CallUnary(server.models(), &Models::ListModels, request, &page).ok());
  ASSERT_EQ(page.models_size(), 1);
  EXPECT_EQ(page.models(0).name(), "mla");
  EXPECT_EQ(page.next_page_token(), "");
  request.set_page_token("2");
  EXPECT_TRUE(
      RefusesField(CallUnary(server.models(), &Models::ListModels, request, &page), "page_token"));
}

TEST(ModelServiceTest, SaysHowLatentAttentionAttends) {
  ModelConfig gains = SmallModel(AttentionKind::kMla);
  gains.kv_lora_rank = {48, 2};
  ModelConfig does_not = SmallModel(AttentionKind::kMla);
  does_not.kv_lora_rank = {1, 2};
  // GetModel's value for the model that expanded attention makes faster.
  const auto expand_from = [&](std::optional<int64_t> asked) -> std::optional<int64_t> {
    const TestServer server({.models = {{"gains", gains},
                                        {"does-not", does_not},
                                        {"mha", SmallModel(AttentionKind::kMha)}},
                             .expand_from = asked});
    std::map<std::string, v1::Model> models;
    for (const std::string name : {"gains", "does-not", "mha"}) {
      v1::GetModelRequest request;
      request.set_model(name);
      v1::GetModelResponse response;
      EXPECT_TRUE(CallUnary(server.models(), &Models::GetModel, request, &response).ok());
      models[name] = response.model();
    }
    EXPECT_THAT(models["gains"].latent_forms(), ElementsAre("factored", "premultiplied"));
    EXPECT_THAT(models["does-not"].latent_forms(), ElementsAre("premultiplied", "premultiplied"));
    EXPECT_FALSE(models["does-not"].has_expand_from());
    EXPECT_THAT(models["mha"].latent_forms(), IsEmpty());
    EXPECT_FALSE(models["mha"].has_expand_from());
    if (!models["gains"].has_expand_from()) return std::nullopt;
    return models["gains"].expand_from();
  };
  EXPECT_THAT(expand_from({}), Optional(AllOf(Ge(0), Lt(64))));
  EXPECT_EQ(expand_from(0), 0);
  EXPECT_EQ(expand_from(63), 63);
  EXPECT_EQ(expand_from(64), std::nullopt);  // no prompt reaches it
  EXPECT_EQ(expand_from(kNeverExpand), std::nullopt);
}

// Calls every method that takes a model.
std::vector<grpc::Status> CallEverything(const TestServer& server, const std::string& model,
                                         bool empty_is_all) {
  std::vector<grpc::Status> statuses;
  const auto call = [&](auto& stub, auto method, auto request, auto response) {
    request.set_model(model);
    statuses.push_back(CallUnary(stub, method, request, &response));
  };
  call(server.models(), &Models::GetModel, v1::GetModelRequest(), v1::GetModelResponse());
  v1::ScoreRequest score;
  score.add_inputs()->set_text("a");
  call(server.inference(), &Inference::Score, score, v1::ScoreResponse());
  call(server.inference(), &Inference::Tokenize, v1::TokenizeRequest(), v1::TokenizeResponse());
  call(server.inference(), &Inference::Detokenize, v1::DetokenizeRequest(),
       v1::DetokenizeResponse());
  GenerateCall generation(server.inference(), Greedy(model, "a", 1));
  statuses.push_back(generation.Finish());
  if (!empty_is_all) {
    call(server.kv_cache(), &KvCache::GetKvCacheStats, v1::GetKvCacheStatsRequest(),
         v1::GetKvCacheStatsResponse());
    call(server.kv_cache(), &KvCache::ListSequences, v1::ListSequencesRequest(),
         v1::ListSequencesResponse());
    v1::WatchKvCacheStatsRequest watch;
    watch.set_model(model);
    statuses.push_back(Watch(server, watch).Finish());
  }
  return statuses;
}

TEST(ModelNamesTest, OneModelNeedsNoName) {
  const TestServer server({.models = {OneOfEachKind()[1]}});
  for (const grpc::Status& status : CallEverything(server, "", /*empty_is_all=*/true)) {
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST(ModelNamesTest, SeveralModelsDo) {
  const TestServer server;
  for (const grpc::Status& status : CallEverything(server, "", /*empty_is_all=*/true)) {
    EXPECT_TRUE(RefusesField(status, "model"));
    EXPECT_THAT(status.error_message(), testing::HasSubstr("mha, gqa, mla"));
  }
}

TEST(ModelNamesTest, AnUnknownModelIsNotFound) {
  const TestServer server;
  for (const grpc::Status& status : CallEverything(server, "mqa", /*empty_is_all=*/false)) {
    EXPECT_TRUE(IsError(status, grpc::StatusCode::NOT_FOUND, "MODEL_NOT_FOUND"));
    const auto info = GetDetail<google::rpc::ErrorInfo>(status);
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->metadata().at("model"), "mqa");
    EXPECT_THAT(status.error_message(), testing::HasSubstr("mha, gqa, mla"));
  }
}

void ExpectTotals(const v1::GetKvCacheStatsResponse& stats) {
  int64_t pool = 0, used = 0, allocated = 0, free = 0;
  for (const v1::KvCacheStats& model : stats.models()) {
    EXPECT_EQ(model.pool_bytes(), model.total_blocks() * model.block_bytes());
    EXPECT_EQ(model.free_bytes(), model.free_blocks() * model.block_bytes());
    EXPECT_EQ(model.pool_bytes(),
              model.allocated_bytes() + model.evictable_bytes() + model.free_bytes());
    EXPECT_EQ(model.block_bytes(), model.block_positions() * model.bytes_per_position());
    EXPECT_EQ(model.used_bytes(), model.positions() * model.bytes_per_position());
    EXPECT_LE(model.used_bytes(), model.allocated_bytes());
    EXPECT_LE(model.allocated_bytes(), model.peak_allocated_bytes());
    pool += model.pool_bytes();
    used += model.used_bytes();
    allocated += model.allocated_bytes();
    free += model.free_bytes();
  }
  EXPECT_EQ(stats.total_pool_bytes(), pool);
  EXPECT_EQ(stats.total_used_bytes(), used);
  EXPECT_EQ(stats.total_allocated_bytes(), allocated);
  EXPECT_EQ(stats.total_free_bytes(), free);
}

TEST(KvCacheServiceTest, SplitsTheTotalAndAddsItUp) {
  constexpr int64_t kTotal = 1 << 20;
  constexpr int64_t kOwn = 100'000;
  std::vector<TestModel> models = OneOfEachKind();
  models[1].kv_cache_bytes = kOwn;
  const TestServer server({.models = models, .kv_cache_bytes = kTotal});
  const v1::GetKvCacheStatsResponse stats = server.Stats();
  ExpectTotals(stats);
  ASSERT_EQ(stats.models_size(), 3);
  for (int i = 0; i < 3; ++i) {
    const v1::KvCacheStats& model = stats.models(i);
    EXPECT_EQ(model.model(), models[i].name);
    EXPECT_EQ(model.bytes_per_position(), BytesPerPosition(models[i].config));
    // Whole blocks only.
    const int64_t share = i == 1 ? kOwn : (kTotal - kOwn) / 2;
    EXPECT_EQ(model.total_blocks(), share / model.block_bytes());
    EXPECT_EQ(model.free_blocks(), model.total_blocks());
    EXPECT_EQ(model.peak_allocated_bytes(), 0);
  }

  v1::GetKvCacheStatsRequest request;
  request.set_model("gqa");
  v1::GetKvCacheStatsResponse one;
  ASSERT_TRUE(CallUnary(server.kv_cache(), &KvCache::GetKvCacheStats, request, &one).ok());
  ASSERT_EQ(one.models_size(), 1);
  EXPECT_GT(TimeUtil::DurationToNanoseconds(one.models(0).uptime()),
            TimeUtil::DurationToNanoseconds(stats.models(1).uptime()));
  v1::KvCacheStats expected = stats.models(1);
  *expected.mutable_uptime() = one.models(0).uptime();
  EXPECT_TRUE(MessageDifferencer::Equals(one.models(0), expected));
  EXPECT_EQ(one.total_pool_bytes(), stats.models(1).pool_bytes());
}

TEST(KvCacheServiceTest, MapsThePoolsForThoseWhoAsk) {
  const TestServer server({.models = {EndlessModel()}});
  GenerateCall running(server.inference(), Greedy("endless", "abc", kEndlessPositions - 10));
  ASSERT_TRUE(running.Read());
  EXPECT_FALSE(server.Stats().models(0).has_block_map());
  v1::GetKvCacheStatsRequest request;
  request.set_block_map(true);
  v1::GetKvCacheStatsResponse response;
  ASSERT_TRUE(CallUnary(server.kv_cache(), &KvCache::GetKvCacheStats, request, &response).ok());
  const v1::KvCacheStats& stats = response.models(0);
  const v1::BlockMap& map = stats.block_map();
  ASSERT_EQ(map.holders_size(), 1);
  EXPECT_EQ(map.holders(0).request_id(), running.RequestId());
  EXPECT_EQ(map.holders(0).order(), 1);
  EXPECT_EQ(map.holders(0).kv_cache().allocated_bytes(), stats.allocated_bytes());
  EXPECT_GT(stats.requests().sampled_tokens(), 0);
  EXPECT_EQ(stats.requests().first_tokens(), 1);
  EXPECT_GT(TimeUtil::DurationToNanoseconds(stats.requests().first_token_time()), 0);
  ASSERT_EQ(map.holder_size(), map.cells_size());
  ASSERT_EQ(map.allocated_size(), map.cells_size());
  ASSERT_EQ(map.shared_size(), map.cells_size());
  ASSERT_EQ(map.evictable_size(), map.cells_size());
  int64_t cells = 0, held = 0;
  for (int i = 0; i < map.cells_size(); ++i) {
    cells += map.cells(i);
    held += int64_t{map.cells(i)} * map.allocated(i);
    EXPECT_EQ(map.holder(i), map.allocated(i) > 0 ? 1 : 0);
  }
  EXPECT_EQ(held * stats.block_bytes(), stats.allocated_bytes());
  EXPECT_EQ((stats.total_blocks() + map.cell_blocks() - 1) / map.cell_blocks(), cells);
}

TEST(KvCacheServiceTest, ListsLiveSequencesInPages) {
  std::vector<TestModel> models = OneOfEachKind();
  models.push_back(EndlessModel());
  const TestServer server({.models = models, .max_running = 2});
  v1::ListSequencesRequest request;
  v1::ListSequencesResponse all;
  ASSERT_TRUE(ListSequences(server, request, &all).ok());
  EXPECT_EQ(all.sequences_size(), 0);
  EXPECT_EQ(all.next_page_token(), "");

  std::vector<std::unique_ptr<GenerateCall>> streams;
  for (int i = 0; i < 5; ++i) {
    streams.push_back(std::make_unique<GenerateCall>(
        server.inference(), Greedy("endless", std::string(i, 'a'), kEndlessPositions - 10)));
    if (i < 2) {
      ASSERT_TRUE(streams.back()->Read());
    }
  }
  ASSERT_TRUE(server.WaitForStats(
      "endless", [](const v1::KvCacheStats& stats) { return stats.waiting_sequences() == 3; }));
  ExpectTotals(server.Stats());
  EXPECT_GT(server.Stats("endless").mha_used_bytes(), server.Stats("endless").used_bytes());

  ASSERT_TRUE(ListSequences(server, request, &all).ok());
  ASSERT_EQ(all.sequences_size(), 5);
  EXPECT_EQ(all.next_page_token(), "");
  std::multiset<int> prompts;
  for (int i = 0; i < 5; ++i) {
    const v1::Sequence& sequence = all.sequences(i);
    prompts.insert(sequence.prompt_tokens());
    EXPECT_EQ(sequence.model(), "endless");
    const bool running = i < 2;  // the first two
    EXPECT_EQ(sequence.state(), running ? v1::SEQUENCE_STATE_DECODE : v1::SEQUENCE_STATE_WAITING);
    EXPECT_EQ(sequence.generated_tokens() > 0, running);
    EXPECT_EQ(sequence.kv_cache().positions() > 0, running);
    // Between two steps the last token has no row yet.
    if (running) {
      EXPECT_EQ(sequence.kv_cache().positions(),
                sequence.prompt_tokens() + sequence.generated_tokens() - 1);
    }
    EXPECT_EQ(sequence.kv_cache().bytes_per_position(), BytesPerPosition(EndlessModel().config));
  }
  EXPECT_EQ(prompts, (std::multiset<int>{1, 2, 3, 4, 5}));

  for (const int page_size : {1, 2, 4, 5, 1000}) {
    std::vector<std::string> ids;
    request.set_page_size(page_size);
    request.clear_page_token();
    v1::ListSequencesResponse page;
    do {
      ASSERT_TRUE(ListSequences(server, request, &page).ok());
      EXPECT_LE(page.sequences_size(), page_size);
      EXPECT_GT(page.sequences_size(), 0);
      for (const v1::Sequence& sequence : page.sequences()) ids.push_back(sequence.request_id());
      request.set_page_token(page.next_page_token());
    } while (!page.next_page_token().empty());
    ASSERT_THAT(ids, SizeIs(5)) << page_size;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(ids[i], all.sequences(i).request_id());
  }

  // A sequence that ended between two pages is left out; the next page continues after it.
  request.set_page_size(2);
  request.clear_page_token();
  v1::ListSequencesResponse page;
  ASSERT_TRUE(ListSequences(server, request, &page).ok());
  const std::string token = page.next_page_token();
  streams[1].reset();
  ASSERT_TRUE(server.WaitForStats("endless", [](const v1::KvCacheStats& stats) {
    return stats.running_sequences() + stats.waiting_sequences() == 4;
  }));
  request.set_page_token(token);
  ASSERT_TRUE(ListSequences(server, request, &page).ok());
  ASSERT_EQ(page.sequences_size(), 2);
  EXPECT_EQ(page.sequences(0).request_id(), all.sequences(2).request_id());
  EXPECT_EQ(page.sequences(1).request_id(), all.sequences(3).request_id());

  v1::ListSequencesRequest other;
  other.set_model("mha");
  ASSERT_TRUE(ListSequences(server, other, &page).ok());
  EXPECT_EQ(page.sequences_size(), 0);
}

TEST(KvCacheServiceTest, RefusesBadPages) {
  const TestServer server;
  v1::ListSequencesResponse response;
  v1::ListSequencesRequest sized;
  sized.set_page_size(-1);
  EXPECT_TRUE(RefusesField(ListSequences(server, sized, &response), "page_size"));
  sized.set_page_size(std::numeric_limits<int32_t>::max());
  EXPECT_TRUE(ListSequences(server, sized, &response).ok());
  for (const std::string token : {"x", "1x", "-1", " 1", "99999999999999999999999"}) {
    v1::ListSequencesRequest request;
    request.set_page_token(token);
    EXPECT_TRUE(RefusesField(ListSequences(server, request, &response), "page_token")) << token;
  }
}

TEST(KvCacheServiceTest, TheStreamsOfStatisticsAreBounded) {
  const TestServer server;
  v1::WatchKvCacheStatsRequest request;
  request.mutable_interval()->set_seconds(3600);
  std::vector<std::unique_ptr<Watch>> watches;
  v1::WatchKvCacheStatsResponse response;
  for (size_t i = 0; i < StatsService::kMaxWatchers; ++i) {
    watches.push_back(std::make_unique<Watch>(server, request));
    ASSERT_TRUE(watches.back()->Read(&response));
  }
  const grpc::Status status = Watch(server, request).Finish();
  EXPECT_TRUE(IsError(status, grpc::StatusCode::RESOURCE_EXHAUSTED, "STATISTICS_LIMIT"));
  EXPECT_TRUE(GetDetail<google::rpc::RetryInfo>(status).has_value());
  watches.pop_back();
  // The server notices it a moment later.
  while (!Watch(server, request).Read(&response)) {
  }
}

TEST(KvCacheServiceTest, WatchesUntilCancelled) {
  const TestServer server;
  v1::WatchKvCacheStatsRequest request;
  request.set_model("mla");
  request.mutable_interval()->set_nanos(50'000'000);
  Watch watch(server, request);
  v1::WatchKvCacheStatsResponse first;
  ASSERT_TRUE(watch.Read(&first));
  ExpectTotals(first.stats());
  ASSERT_EQ(first.stats().models_size(), 1);
  EXPECT_EQ(first.stats().models(0).peak_allocated_bytes(), 0);

  Generate(server.inference(), Greedy("mla", "a", 30));
  // Updates continue, and show the new state in the end.
  v1::WatchKvCacheStatsResponse update;
  do {
    ASSERT_TRUE(watch.Read(&update));
    ExpectTotals(update.stats());
  } while (update.stats().models(0).peak_allocated_bytes() == 0);
  EXPECT_EQ(watch.Cancel().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(KvCacheServiceTest, AWatchThatWaitsEndsWhenItIsCancelled) {
  const TestServer server;
  v1::WatchKvCacheStatsRequest request;
  request.mutable_interval()->set_seconds(3600);
  for (int i = 0; i < 20; ++i) {
    Watch watch(server, request);
    v1::WatchKvCacheStatsResponse response;
    // Every second call is cancelled, possibly before its first answer.
    if (i % 2 == 0) {
      ASSERT_TRUE(watch.Read(&response));
    }
    EXPECT_EQ(watch.Cancel().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST(KvCacheServiceTest, AWatchEndsWhenTheServerHasDrained) {
  auto server = std::make_unique<TestServer>();
  v1::WatchKvCacheStatsRequest request;
  request.mutable_interval()->set_seconds(3600);
  Watch watch(*server, request);
  v1::WatchKvCacheStatsResponse response;
  ASSERT_TRUE(watch.Read(&response));
  EXPECT_EQ(response.stats().models_size(), 3);
  server->Shutdown(std::chrono::milliseconds(0));
  EXPECT_TRUE(IsError(watch.Finish(), grpc::StatusCode::UNAVAILABLE, "DRAINING"));
}

TEST(KvCacheServiceTest, RefusesBadIntervals) {
  const TestServer server;
  using google::protobuf::Duration;
  std::vector<Duration> intervals = {
      Duration(),
      TimeUtil::MillisecondsToDuration(49),
      TimeUtil::NanosecondsToDuration(49'999'999),
      TimeUtil::SecondsToDuration(-1),
      TimeUtil::SecondsToDuration(3601),
      TimeUtil::NanosecondsToDuration(3'600'000'000'001),
  };
  Duration absurd;
  absurd.set_seconds(std::numeric_limits<int64_t>::max());
  intervals.push_back(absurd);
  absurd.set_seconds(std::numeric_limits<int64_t>::min());
  intervals.push_back(absurd);
  absurd.set_seconds(0);
  absurd.set_nanos(std::numeric_limits<int32_t>::min());
  intervals.push_back(absurd);
  absurd.set_seconds(1);  // the sum is zero
  absurd.set_nanos(-1'000'000'000);
  intervals.push_back(absurd);
  for (const Duration& interval : intervals) {
    v1::WatchKvCacheStatsRequest request;
    *request.mutable_interval() = interval;
    EXPECT_TRUE(RefusesField(Watch(server, request).Finish(), "interval"))
        << interval.ShortDebugString();
  }
}

}  // namespace
}  // namespace triptych::server::kv_cache_service_test
