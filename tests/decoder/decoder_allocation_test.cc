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

#include "engine/decoder/decoder.h"
#include "engine/kernels/threads.h"
#include "engine/serving/engine.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/random_model.h"
#include "tests/support/tokenizer.h"

namespace {

std::atomic<int64_t> allocations = 0;

void* Allocate(size_t bytes, size_t alignment) {
  ++allocations;
  void* const memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The other forms of new and delete call these.
void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace triptych {
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
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto decoder = ServingDecoder(config, RandomWeights(config, 1), dtype);
    KvCacheStorage cache(std::ssize(blocks), 16, CacheRowElements(config), dtype);
    Workspace workspace;
    // What a step takes.
    const auto measure = [&](int64_t position) {
      PagedStep step;
      for (int64_t s = 0; s < kSequences; ++s) {
        step.positions.push_back(position);
        step.sequences.push_back({&blocks[2 * s], position, 1});
      }
      const AllocationMeter tensors;
      const int64_t before = allocations;
      {
        const Workspace::Scope scope(workspace);
        decoder->Step(ids, step, logit_rows, cache, workspace);
      }
      const int64_t after = allocations;
      EXPECT_EQ(tensors.total(), 0);
      return after - before;
    };

    SetServingThreads(1);
    EXPECT_GT(measure(0), 0);  // what the steps keep
    for (int64_t position = 1; position <= kLast; ++position) measure(position);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(measure(kLast), 0);

    // Other threads keep scratch memory of their own, from when they first have a task of each
    // sort.
    constexpr int kThreads = 3;
    SetServingThreads(kThreads);
    for (int i = 0; i < 100; ++i) measure(kLast);
    int64_t taken = 0;
    for (int i = 0; i < 100; ++i) taken += measure(kLast);
    EXPECT_LE(taken, 4 * (kThreads - 1));
  }
}

// Nor does what the engine does around the decoder, but for the lists of a sequence's tokens and
// blocks, which double now and then.
TEST(EngineAllocationTest, DecodingTakesNothingFromTheHeap) {
  SetServingThreads(1);
  ModelConfig config = EveryOption().front().config;
  config.max_position_embeddings = 64;
  constexpr int kSteps = 48;
  class Sink final : public RequestSink {
   public:
    void OnRejected(SubmitStatus) override { FAIL(); }
    void OnDelta(Delta) override { ++tokens; }
    void OnFinish(Completion) override { FAIL(); }
    int64_t tokens = 0;
  };
  Engine engine(ServingDecoder(config, RandomWeights(config, 1), at::kFloat), TestTokenizer(),
                {.kv_cache_bytes = 1 << 20});
  const auto sink = std::make_shared<Sink>();
  const std::vector<SamplingParams> all = {{.temperature = 0}, {.top_k = 20, .top_p = 0.9f}};
  for (size_t i = 0; i < all.size(); ++i) {
    Request request;
    request.id = std::to_string(i);
    request.prompt = {1, 2, 3};
    request.max_new_tokens = kSteps + 8;
    request.ignore_eos = true;
    request.sampling = all[i];
    engine.Submit(request, sink);
  }
  for (int i = 0; i < 4; ++i) engine.Step();
  const int64_t before = allocations, tokens = sink->tokens;
  for (int i = 0; i < kSteps; ++i) engine.Step();
  EXPECT_EQ(sink->tokens - tokens, std::ssize(all) * kSteps);
  EXPECT_LE(allocations - before, std::ssize(all) * 8);
}

INSTANTIATE_TEST_SUITE_P(EveryOption, DecoderAllocationTest, testing::ValuesIn(EveryOption()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace triptych
