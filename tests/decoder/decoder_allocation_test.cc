// A decoding step allocates nothing. A program of its own, for it counts what every thread takes
// from the heap.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "engine/backend/cpu/cache_memory.h"
#include "engine/serving/engine.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/random_model.h"
#include "tests/support/serving.h"

namespace {

std::atomic<int64_t> allocations = 0;
std::atomic<int64_t> bytes_taken = 0;

void* Allocate(size_t bytes, size_t alignment) {
  ++allocations;
  bytes_taken += static_cast<int64_t>(bytes);
  void* const memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The other forms of new and delete call these, except one that AddressSanitizer replaces.
// Not inlined, so that gcc does not take free() for the wrong end of a new.
void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, alignof(std::max_align_t));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace triptych::decoder_allocation_test {
namespace {

class DecoderAllocationTest : public testing::TestWithParam<NamedConfig> {};

// Sequences that decode a token each: so many that threads share the work.
TEST_P(DecoderAllocationTest, DecodingTakesNothingFromTheHeap) {
  const ModelConfig& config = GetParam().config;
  constexpr int64_t kLast = 19;
  constexpr int64_t kSequences = 32;
  std::vector<int64_t> ids(kSequences), logit_rows(kSequences);
  for (int64_t s = 0; s < kSequences; ++s) {
    ids[s] = s % config.vocab_size;
    logit_rows[s] = s;
  }
  std::vector<int32_t> blocks(2 * kSequences);  // two of each
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  for (const auto& [name, weights] : Names<WeightFormat>()) {
    const CacheFormat format = DefaultCacheFormat(weights);
    BackendOptions options{.cache_format = format};
    options.kv_cache_bytes =
        std::ssize(blocks) *
        MakeCacheGeometry(config, format, options.block_positions).BlockBytes();
    for (const int threads : {1, 3}) {
      const auto model =
          MakeServingModel(config, RandomWeights(config, 1), options, weights, threads);
      StepInput step;
      // Heap memory of a step.
      const auto measure = [&](int64_t position) {
        step.ids = ids;
        step.logit_rows = logit_rows;
        step.sequences.clear();
        for (int64_t s = 0; s < kSequences; ++s) {
          step.sequences.push_back({&blocks[2 * s], position, 1, 0});
        }
        const AllocationMeter tensors;
        const int64_t before = allocations;
        model->Step(step);
        const int64_t after = allocations;
        EXPECT_EQ(tensors.total(), 0);
        return after - before;
      };
      EXPECT_GT(measure(0), 0);  // what the steps keep
      for (int64_t position = 1; position <= kLast; ++position) measure(position);
      for (int i = 0; i < 20; ++i) EXPECT_EQ(measure(kLast), 0) << threads << " threads";
    }
  }
}

// Nor do long contexts, which threads share in splits, and prompts whose keys are expanded.
TEST(DecoderAllocationTest, LongContextsAndExpandedPromptsTakeNothingFromTheHeap) {
  constexpr int64_t kLength = 4096;
  std::vector<int32_t> blocks(kLength / 16);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    ModelConfig config = SmallModel(kind);
    config.position_embedding = PositionEmbedding::kNone;
    config.max_position_embeddings = kLength;
    if (kind == AttentionKind::kMla) config.kv_lora_rank.assign(config.num_hidden_layers, 40);
    BackendOptions options{.expand_from = 0};
    options.kv_cache_bytes =
        std::ssize(blocks) *
        MakeCacheGeometry(config, options.cache_format, options.block_positions).BlockBytes();
    for (const int threads : {1, 3}) {
      const auto model = MakeServingModel(config, RandomWeights(config, 1), options,
                                          ComputeType::kFloat32, threads);
      EXPECT_EQ(model->info().expand_from.has_value(), kind == AttentionKind::kMla);
      StepInput step;
      const auto measure = [&](int64_t start, int64_t count) {
        step.ids.assign(count, 7);
        step.logit_rows = {count - 1};
        step.sequences = {{blocks.data(), start, count, kLength - 1}};
        const int64_t before = allocations;
        model->Step(step);
        return allocations - before;
      };
      for (int64_t start = 0; start < kLength - 1; start += 273) measure(start, 273);
      for (int i = 0; i < 5; ++i) {
        measure(kLength - 274, 273);
        measure(kLength - 1, 1);
      }
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(measure(kLength - 274, 273), 0) << threads << " threads, a prompt's end";
        EXPECT_EQ(measure(kLength - 1, 1), 0) << threads << " threads, a generated token";
      }
    }
  }
}

// The CPU's cache takes from the heap what it says, and no more than a table besides.
TEST(CacheMemoryAllocation, TakesTheBytesItReports) {
  const int64_t before = bytes_taken;
  std::vector<kernels::PagedCache> layers;
  for (const int64_t width : {64, 100, 7}) {
    layers.push_back({nullptr, CacheFormat::kBFloat16, width, 16});
  }
  const cpu::CacheMemory memory(1000, std::move(layers));
  EXPECT_EQ(memory.bytes(), 1000 * 16 * 2 * (64 + 100 + 7));
  EXPECT_GE(bytes_taken - before, memory.bytes());
  EXPECT_LE(bytes_taken - before, memory.bytes() + 4096);
}

// The engine's work around the decoder does not allocate either, except for the lists of a
// sequence's tokens, blocks and indices, which double now and then.
class EngineAllocationTest : public testing::TestWithParam<serving::Speculation> {};

TEST_P(EngineAllocationTest, DecodingTakesNothingFromTheHeap) {
  ModelConfig config = EveryOption().front().config;
  config.max_position_embeddings = 2048;
  constexpr int kSteps = 240;
  class Sink final : public serving::RequestSink {
   public:
    void OnRejected(serving::SubmitStatus) override { FAIL(); }
    void OnDelta(serving::Delta) override { ++tokens; }
    void OnFinish(serving::Completion) override { FAIL(); }
    int64_t tokens = 0;
  };
  EngineSetup setup;
  setup.kv_cache_bytes = 1 << 24;
  setup.speculation = GetParam();
  setup.kv_events = 1;
  const auto made = MakeEngine(config, RandomWeights(config, 1), setup, ComputeType::kFloat32, 1);
  serving::Engine& engine = *made;
  const auto sink = std::make_shared<Sink>();
  const std::vector<serving::SamplingParams> all = {{.temperature = 0},
                                                    {.top_k = 20, .top_p = 0.9f}};
  for (size_t i = 0; i < all.size(); ++i) {
    serving::Request request;
    request.id = std::to_string(i);
    request.prompt = {1, 2, 3, 1, 2, 3};
    request.max_new_tokens = 2000;
    request.most_drafted = 4;
    request.ignore_eos = true;
    request.share_prefix = false;  // the prefix cache and its events take memory for each block
    request.sampling = all[i];
    engine.Submit(request, sink);
  }
  for (int i = 0; i < 4; ++i) engine.Step();
  const int64_t before = allocations, tokens = sink->tokens;
  for (int i = 0; i < kSteps; ++i) {
    engine.Step();
    engine.Publish();
  }
  EXPECT_GE(sink->tokens - tokens, std::ssize(all) * kSteps);
  EXPECT_EQ(engine.metrics().drafted_tokens.value() > 0, GetParam() != serving::Speculation::kOff);
  EXPECT_LT(allocations - before, kSteps / 2);
}

INSTANTIATE_TEST_SUITE_P(Speculation, EngineAllocationTest,
                         testing::Values(serving::Speculation::kOff,
                                         serving::Speculation::kWherePays,
                                         serving::Speculation::kAlways));
INSTANTIATE_TEST_SUITE_P(EveryOption, DecoderAllocationTest, testing::ValuesIn(EveryOption()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace triptych::decoder_allocation_test
