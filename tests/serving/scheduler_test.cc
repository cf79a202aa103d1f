#include "engine/serving/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "engine/serving/prefill_throttle.h"

namespace triptych::serving::scheduler_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Request MakeRequest(std::string id, int64_t prompt, int64_t max_new_tokens) {
  Request request;
  request.id = std::move(id);
  // No two prompts begin alike.
  static int32_t first = 0;
  request.prompt.assign(prompt, 1);
  if (prompt > 0) request.prompt.front() = ++first;
  request.max_new_tokens = max_new_tokens;
  return request;
}

// A scheduler, and the part of an engine that it relies on: it computes every chunk of a plan,
// appends a token if the chunk samples one, and removes finished sequences.
class Harness {
 public:
  Harness(const SchedulerLimits& limits, int64_t blocks, int64_t block_positions,
          const LayerGroups& groups = {})
      : limits_(limits), pool_(blocks), scheduler_(limits, pool_, block_positions, groups) {}

  // Arrives one second after the previous request.
  SubmitStatus Submit(Request request) {
    now_ += std::chrono::seconds(1);
    request.number = ++submitted_;
    request.arrived = now_;
    return scheduler_.Submit(std::move(request), nullptr);
  }
  SubmitStatus Submit(const std::string& id, int64_t prompt, int64_t max_new_tokens) {
    return Submit(MakeRequest(id, prompt, max_new_tokens));
  }

  // Runs one step. "a 0+4" is a chunk of sequence a; "a 4+1!" is one that samples.
  std::vector<std::string> Step(int64_t prompt_rows = PrefillThrottle::kUnlimited) {
    std::vector<std::string> plan;
    for (const Chunk& chunk : scheduler_.Schedule(now_, prompt_rows)) {
      std::ostringstream text;
      text << chunk.sequence->request->id << ' ' << chunk.start << '+' << chunk.count
           << (chunk.samples ? "!" : "");
      plan.push_back(text.str());
      Compute(chunk);
    }
    return plan;
  }

  // Steps until `done`; every step must do something.
  template <typename Done>
  void StepUntil(Done done) {
    while (!done()) ASSERT_FALSE(Step().empty()) << "stuck";
  }
  void Drain() {
    StepUntil([&] { return scheduler_.empty(); });
  }

  // Passes a chunk's simulated results to the scheduler.
  void Compute(const Chunk& chunk) {
    Sequence& sequence = *chunk.sequence;
    scheduler_.Advance(chunk);
    if (!chunk.samples) return;
    if (sequence.request->max_new_tokens > 0) {
      sequence.tokens.push_back(static_cast<int32_t>(sequence.tokens.size()));
    }
    if (sequence.generated() == sequence.request->max_new_tokens ||
        std::ssize(sequence.tokens) == limits_.max_positions) {
      finished_.push_back(sequence.request->id);
      scheduler_.Remove(sequence);
    }
  }

  const Sequence& Find(const std::string& id) { return *scheduler_.Find(id).at(0); }
  void Remove(const std::string& id) { scheduler_.Remove(Find(id)); }

  SchedulerLimits limits_;
  BlockPool pool_;
  Scheduler scheduler_;
  std::vector<std::string> finished_;
  EngineClock::time_point now_;
  uint64_t submitted_ = 0;
};

std::vector<std::string> Ids(const std::vector<const Sequence*>& sequences) {
  std::vector<std::string> ids;
  for (const Sequence* sequence : sequences) ids.push_back(sequence->request->id);
  return ids;
}

// --- Submit ---------------------------------------------------------------------------------

TEST(SchedulerSubmitTest, ThePromptAndOneTokenMustFitTheContext) {
  Harness h({.max_positions = 8}, 100, 4);
  EXPECT_EQ(h.Submit("fits", 7, 1), SubmitStatus::kAccepted);
  EXPECT_EQ(h.Submit("long", 8, 1), SubmitStatus::kPromptTooLong);
  EXPECT_EQ(h.Submit("scored", 8, 0), SubmitStatus::kAccepted);
  EXPECT_EQ(h.Submit("too long to score", 9, 0), SubmitStatus::kPromptTooLong);
}

TEST(SchedulerSubmitTest, ThePositionsAtTheEndMustFitThePool) {
  Harness h({.max_positions = 1000}, 3, 4);
  // The last token has no row: 12 positions for 13 tokens.
  EXPECT_EQ(h.Submit("fits", 5, 8), SubmitStatus::kAccepted);
  EXPECT_EQ(h.Submit("never", 5, 9), SubmitStatus::kNeverFits);
  EXPECT_EQ(h.Submit("scored", 12, 0), SubmitStatus::kAccepted);
  EXPECT_EQ(h.Submit("never scored", 13, 0), SubmitStatus::kNeverFits);
}

TEST(SchedulerSubmitTest, TheContextBoundsWhatARequestCanNeed) {
  Harness h({.max_positions = 13}, 3, 4);
  EXPECT_EQ(h.Submit("endless", 5, std::numeric_limits<int64_t>::max()), SubmitStatus::kAccepted);
  h.Drain();
  EXPECT_EQ(h.pool_.peak_allocated(), 3);
}

TEST(SchedulerSubmitTest, AFullQueueRefusesUntilOneIsAdmitted) {
  Harness h({.max_waiting = 2, .max_positions = 8}, 100, 4);
  EXPECT_EQ(h.Submit("a", 4, 2), SubmitStatus::kAccepted);
  EXPECT_EQ(h.Submit("b", 4, 2), SubmitStatus::kAccepted);
  EXPECT_EQ(h.Submit("c", 4, 2), SubmitStatus::kQueueFull);
  h.Step();
  EXPECT_EQ(h.Submit("c", 4, 2), SubmitStatus::kAccepted);
}

TEST(SchedulerSubmitTest, ARequestThatCanNeverRunIsRefusedFirst) {
  Harness h({.max_waiting = 0, .max_positions = 8}, 1, 4);
  EXPECT_EQ(h.Submit("a", 9, 1), SubmitStatus::kPromptTooLong);
  EXPECT_EQ(h.Submit("b", 5, 1), SubmitStatus::kNeverFits);
  EXPECT_EQ(h.Submit("c", 4, 1), SubmitStatus::kQueueFull);
  EXPECT_TRUE(h.scheduler_.empty());
}

TEST(SchedulerSubmitTest, PredictionsCountAsTokensOfTheQueue) {
  Harness h({.max_waiting_tokens = 10, .max_positions = 100}, 100, 4);
  Request request = MakeRequest("a", 4, 2);
  request.prediction.assign(7, 1);
  EXPECT_EQ(h.Submit(request), SubmitStatus::kAccepted);
  request.id = "b";
  EXPECT_EQ(h.Submit(request), SubmitStatus::kQueueFull);
  request.prediction.clear();
  EXPECT_EQ(h.Submit(request), SubmitStatus::kQueueFull);
}

TEST(SchedulerSubmitTest, TheQueueIsBoundedInPromptTokensToo) {
  Harness h({.max_waiting_tokens = 10, .max_positions = 100}, 100, 4);
  EXPECT_EQ(h.Submit("a", 50, 2),
            SubmitStatus::kAccepted);  // regardless of its length, if none waits
  h.Step();
  EXPECT_EQ(h.Submit("b", 6, 2), SubmitStatus::kAccepted);
  EXPECT_EQ(h.Submit("c", 5, 2), SubmitStatus::kQueueFull);
  EXPECT_EQ(h.Submit("c", 4, 2), SubmitStatus::kAccepted);
}

// --- Schedule -------------------------------------------------------------------------------

TEST(SchedulerTest, WithoutRequestsThereIsNothingToDo) {
  Harness h({.max_positions = 8}, 1, 4);
  EXPECT_THAT(h.Step(), IsEmpty());
  EXPECT_TRUE(h.scheduler_.empty());
}

TEST(SchedulerTest, SplitsPromptsAndMixesThemWithDecoding) {
  Harness h({.max_batch_tokens = 4, .max_positions = 100}, 100, 4);
  h.Submit("a", 2, 9);
  h.Submit("b", 7, 2);
  EXPECT_THAT(h.Step(), ElementsAre("a 0+2!", "b 0+2"));
  EXPECT_EQ(h.Find("a").state(), SequenceState::kDecode);
  EXPECT_EQ(h.Find("b").state(), SequenceState::kPrefill);
  EXPECT_THAT(h.Step(), ElementsAre("a 2+1!", "b 2+3"));
  EXPECT_THAT(h.Step(), ElementsAre("a 3+1!", "b 5+2!"));
  EXPECT_THAT(h.Step(), ElementsAre("a 4+1!", "b 7+1!"));
  EXPECT_THAT(h.finished_, ElementsAre("b"));
}

TEST(SchedulerTest, AScoredPromptEndsWithItsLastChunk) {
  Harness h({.max_batch_tokens = 4, .max_positions = 6}, 100, 4);
  h.Submit("a", 6, 0);
  EXPECT_THAT(h.Step(), ElementsAre("a 0+4"));
  EXPECT_THAT(h.Step(), ElementsAre("a 4+2!"));
  EXPECT_TRUE(h.scheduler_.empty());
}

TEST(SchedulerTest, ALongPromptNeverHoldsUpDecoding) {
  Harness h({.max_batch_tokens = 4, .max_positions = 200}, 200, 4);
  for (const char* id : {"a", "b", "c"}) h.Submit(id, 1, 150);
  h.Submit("long", 100, 1);
  for (int step = 0; step < 50; ++step) {
    const std::vector<std::string> plan = h.Step();
    ASSERT_EQ(plan.size(), 4u);
    for (const char* id : {"a", "b", "c"}) {
      ASSERT_EQ(std::ssize(h.Find(id).tokens), step + 2);
    }
  }
}

TEST(SchedulerTest, JoinsInOrderOfArrivalAndNeverPastOneThatDoesNotFit) {
  Harness h({.max_positions = 100}, 4, 4);
  h.Submit("a", 8, 5);
  h.Submit("large", 12, 2);
  h.Submit("small", 1, 2);
  EXPECT_THAT(h.Step(), ElementsAre("a 0+8!"));
  EXPECT_EQ(h.scheduler_.running(), 1);
  EXPECT_EQ(h.scheduler_.waiting(), 2);
  EXPECT_THAT(Ids(h.scheduler_.Sequences()), ElementsAre("a", "large", "small"));
}

TEST(SchedulerTest, RunsAtMostMaxRunning) {
  Harness h({.max_running = 2, .max_positions = 100}, 100, 4);
  for (const char* id : {"a", "b", "c"}) h.Submit(id, 1, 2);
  EXPECT_THAT(h.Step(), ElementsAre("a 0+1!", "b 0+1!"));
  EXPECT_THAT(h.Step(), ElementsAre("a 1+1!", "b 1+1!"));
  EXPECT_THAT(h.Step(), ElementsAre("c 0+1!"));
}

TEST(SchedulerTest, ReservesBlocksForJustTheStep) {
  Harness h({.max_batch_tokens = 5, .max_running = 5, .max_positions = 100}, 100, 4);
  h.Submit("a", 11, 3);
  h.Step();
  EXPECT_EQ(h.pool_.allocated(), 2);  // 5 positions
  h.Step();
  EXPECT_EQ(h.pool_.allocated(), 3);  // 10
  h.Step();
  EXPECT_EQ(h.pool_.allocated(), 3);  // 11
  h.Step();
  EXPECT_EQ(h.pool_.allocated(), 3);  // 12
  h.Step();
  EXPECT_EQ(h.pool_.peak_allocated(), 4);  // 13
  EXPECT_EQ(h.pool_.allocated(), 0);
}

TEST(SchedulerTest, BlocksOfAPromptUnderWayAreKeptForIt) {
  Harness h({.max_batch_tokens = 4, .max_running = 4, .max_positions = 100}, 12, 2);
  h.Submit("a", 2, 7);
  h.Step();
  h.Submit("long", 16, 1);
  h.Submit("late", 6, 1);
  EXPECT_THAT(h.Step(), ElementsAre("a 2+1!", "long 0+3"));
  EXPECT_EQ(h.pool_.available(), 8);  // 6 of them reserved for "long"
  EXPECT_THAT(h.Step(), ElementsAre("a 3+1!", "long 3+3"));
  EXPECT_EQ(h.scheduler_.running(), 2);
  h.Drain();
  EXPECT_EQ(h.scheduler_.preemptions(), 0);
}

TEST(SchedulerTest, APromptExpandsWhileItIsBeyondTheBoundAndNothingOfItIsKept) {
  struct Kept : PromptScratch {};
  Harness h({.max_batch_tokens = 8, .max_positions = 64, .expand_from = 8}, 100, 4);
  h.Submit("a", 30, 4);
  EXPECT_FALSE(h.scheduler_.expanding());
  h.Step();  // up to the limit
  EXPECT_TRUE(h.scheduler_.expanding());
  h.scheduler_.Find("a")[0]->scratch = std::make_unique<Kept>();
  EXPECT_FALSE(h.scheduler_.expanding());
  h.scheduler_.Find("a")[0]->scratch.reset();
  h.StepUntil([&] { return h.Find("a").generated() > 0; });
  EXPECT_FALSE(h.scheduler_.expanding());
}

TEST(SchedulerTest, StateOfAPromptIsReleasedOnceItIsComputedOrPreempted) {
  struct Kept : PromptScratch {};
  Harness h({.max_batch_tokens = 2, .max_positions = 64}, 8, 4);
  h.Submit("a", 12, 15);
  h.Step();
  Sequence& a = *h.scheduler_.Find("a")[0];
  a.scratch = std::make_unique<Kept>();
  h.Step();
  EXPECT_NE(a.scratch, nullptr);
  h.StepUntil([&] { return a.generated() > 0; });
  EXPECT_EQ(a.scratch, nullptr);

  h.Submit("b", 16, 15);
  h.Step();
  Sequence& b = *h.scheduler_.Find("b")[0];
  b.scratch = std::make_unique<Kept>();
  h.StepUntil([&] { return b.preemptions > 0; });
  EXPECT_EQ(b.generated(), 0);
  EXPECT_EQ(b.scratch, nullptr);
}

TEST(SchedulerTest, PreemptsTheYoungestAndRecomputesItFromTheStart) {
  Harness h({.max_positions = 100}, 4, 2);
  for (const char* id : {"a", "b", "c"}) h.Submit(id, 1, 4);
  EXPECT_THAT(h.Step(), ElementsAre("a 0+1!", "b 0+1!", "c 0+1!"));
  EXPECT_THAT(h.Step(), ElementsAre("a 1+1!", "b 1+1!", "c 1+1!"));
  // Each needs a second block and one is free: c is preempted, and b gets its block.
  EXPECT_THAT(h.Step(), ElementsAre("a 2+1!", "b 2+1!"));
  EXPECT_EQ(h.scheduler_.preemptions(), 1);
  const Sequence& c = h.Find("c");
  EXPECT_EQ(c.state(), SequenceState::kWaiting);
  EXPECT_EQ(c.preemptions, 1);
  EXPECT_EQ(c.computed, 0);
  EXPECT_EQ(c.generated(), 2);
  EXPECT_EQ(c.blocks.size(), 0);
  EXPECT_EQ(c.blocks.peak_size(), 1);
  EXPECT_THAT(h.Step(), ElementsAre("a 3+1!", "b 3+1!"));
  EXPECT_THAT(h.Step(), ElementsAre("c 0+3!"));
  EXPECT_THAT(h.Step(), ElementsAre("c 3+1!"));
  EXPECT_THAT(h.finished_, ElementsAre("a", "b", "c"));
}

TEST(SchedulerTest, ThePreemptedComeBackInOrderBeforeThoseThatNeverRan) {
  Harness h({.max_running = 3, .max_positions = 100}, 5, 2);
  for (const char* id : {"a", "b", "c", "new"}) h.Submit(id, 2, 7);
  h.Step();
  EXPECT_EQ(h.scheduler_.running(), 3);
  h.StepUntil([&] { return h.scheduler_.running() == 1; });
  EXPECT_EQ(h.scheduler_.preemptions(), 2);
  EXPECT_THAT(Ids(h.scheduler_.Sequences()), ElementsAre("a", "b", "c", "new"));
  h.Drain();
  EXPECT_THAT(h.finished_, ElementsAre("a", "b", "c", "new"));
}

TEST(SchedulerTest, AdmitsNoSequenceInAStepThatPreempted) {
  Harness h({.max_positions = 100}, 4, 2);
  h.Submit("a", 3, 4);
  h.Submit("b", 4, 3);
  EXPECT_THAT(h.Step(), ElementsAre("a 0+3!", "b 0+4!"));
  h.Submit("small", 1, 1);
  EXPECT_THAT(h.Step(),
              ElementsAre("a 3+1!"));  // b finds no block, and is preempted: it releases two
  EXPECT_EQ(h.Find("b").state(), SequenceState::kWaiting);
  EXPECT_EQ(h.pool_.available(), 2);
}

TEST(SchedulerTest, AWaitingSequenceWithoutRoomForAllItsTokensDoesNotStart) {
  // Otherwise it would be computed in part, preempted and admitted again, forever.
  Harness h({.max_batch_tokens = 4, .max_positions = 100}, 6, 2);
  h.Submit("a", 4, 5);
  h.Submit("long", 10, 2);
  h.StepUntil([&] {
    EXPECT_EQ(h.Find("long").computed, 0);
    return !h.finished_.empty();
  });
  h.Drain();
  EXPECT_EQ(h.scheduler_.preemptions(), 0);
}

// --- Remove ---------------------------------------------------------------------------------

TEST(SchedulerTest, RemovesRunningAndWaitingSequencesWithTheirBlocks) {
  Harness h({.max_running = 2, .max_positions = 100}, 100, 4);
  for (const char* id : {"a", "b", "c", "d"}) h.Submit(id, 5, 5);
  h.Step();
  EXPECT_EQ(h.pool_.allocated(), 4);
  h.Remove("c");  // the head of the queue
  h.Remove("a");
  EXPECT_EQ(h.pool_.allocated(), 2);
  EXPECT_THAT(h.scheduler_.Find("a"), IsEmpty());
  EXPECT_THAT(h.scheduler_.Find("unknown"), IsEmpty());
  EXPECT_EQ(h.Find("d").request->id, "d");
  EXPECT_EQ(h.scheduler_.running(), 1);
  EXPECT_EQ(h.scheduler_.waiting(), 1);
  EXPECT_THAT(h.Step(), ElementsAre("b 5+1!", "d 0+5!"));
  h.Remove("d");
  h.Remove("b");
  EXPECT_TRUE(h.scheduler_.empty());
  EXPECT_EQ(h.pool_.allocated(), 0);
  EXPECT_EQ(h.Submit("a", 5, 5), SubmitStatus::kAccepted);  // the id is free again
}

TEST(SchedulerTest, WaitsForBlocksOfARemovedSequenceThatLivesOn) {
  Harness h({.max_positions = 100, .prefix_cache = false}, 2, 2);
  h.Submit("a", 2, 2);
  h.Submit("b", 2, 2);
  h.Step();
  {
    const std::unique_ptr<Sequence> a = h.scheduler_.Remove(h.Find("a"));
    EXPECT_THAT(h.Step(), IsEmpty());
  }
  EXPECT_THAT(h.Step(), ElementsAre("b 0+3!"));
  EXPECT_TRUE(h.scheduler_.empty());
}

// --- Windows --------------------------------------------------------------------------------

TEST(SchedulerWindowTest, ASequenceHoldsTheBlocksOfItsWindowAndNoMore) {
  for (const LayerGroups& groups : {LayerGroups{.full = 0, .windowed = 1, .window = 8},
                                    {.full = 1, .windowed = 2, .window = 8}}) {
    Harness h({.max_batch_tokens = 8, .max_positions = 1000, .prefix_cache = false}, 100, 4,
              groups);
    ASSERT_EQ(h.Submit("a", 100, 60), SubmitStatus::kAccepted);
    while (!h.scheduler_.empty()) {
      ASSERT_FALSE(h.Step().empty());
      if (h.scheduler_.empty()) break;
      const Sequence& a = h.Find("a");
      const int64_t full = groups.full * ((a.computed + 3) / 4);
      // The next position attends itself and 7 before it. They are in at most 3 blocks, of which
      // the last may not be there yet.
      ASSERT_LE(a.blocks.size(), full + groups.windowed * 3) << a.computed;
      ASSERT_EQ(h.pool_.allocated(), a.blocks.size());
    }
    EXPECT_EQ(h.pool_.free(), 100);
    // A chunk of 8 in addition to the window: 15 positions, in at most 5 blocks.
    EXPECT_LE(h.pool_.peak_allocated(), groups.full * 40 + groups.windowed * 5);
  }
}

TEST(SchedulerWindowTest, AdmissionCountsWhatAWindowHolds) {
  // One sequence holds at most 5 blocks.
  Harness h({.max_batch_tokens = 8, .max_positions = 10000, .prefix_cache = false}, 10, 4,
            {.full = 0, .windowed = 1, .window = 8});
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_EQ(h.Submit(id, 4000, 4), SubmitStatus::kAccepted);
  }
  h.Step();
  EXPECT_EQ(h.scheduler_.running(), 2) << "the third waits for five blocks";
  h.Drain();
  EXPECT_EQ(h.scheduler_.preemptions(), 0);
  EXPECT_THAT(h.finished_, SizeIs(3));
  Harness small({.max_batch_tokens = 8, .max_positions = 10000}, 4, 4,
                {.full = 0, .windowed = 1, .window = 8});
  EXPECT_EQ(small.Submit("a", 17, 1), SubmitStatus::kNeverFits);
  EXPECT_EQ(small.Submit("b", 16, 1), SubmitStatus::kAccepted);
}

TEST(SchedulerWindowTest, APrefixNeedsItsWindow) {
  const LayerGroups groups{.full = 1, .windowed = 1, .window = 8};
  const auto request = [](const char* id, int64_t shared) {
    Request r = MakeRequest(id, 48, 1);
    std::fill(r.prompt.begin(), r.prompt.end(), int32_t{r.prompt.front()});
    for (int64_t i = 0; i < shared; ++i) r.prompt[i] = static_cast<int32_t>(1000 + i);
    return r;
  };
  Harness h({.max_batch_tokens = 64, .max_positions = 1000}, 40, 4, groups);
  h.Submit(request("a", 40));
  h.Drain();
  // 40 positions are 10 blocks of the full group; of the windowed one, the last 2 are attended.
  h.Submit(request("b", 40));
  h.Step();
  EXPECT_THAT(h.finished_, SizeIs(2));
  EXPECT_EQ(h.pool_.allocated(), 0);

  // Another evicts the windowed blocks, which were given back first, and then no prefix is found.
  Harness again({.max_batch_tokens = 64, .max_positions = 1000}, 30, 4, groups);
  const auto cached = [&](const char* id, int64_t shared) {
    again.Submit(request(id, shared));
    again.scheduler_.Schedule(again.now_, PrefillThrottle::kUnlimited);
    const int64_t tokens = again.Find(id).cached_prompt_tokens;
    again.Remove(id);
    return tokens;
  };
  again.Submit(request("a", 40));
  again.Drain();
  EXPECT_EQ(cached("b", 40), 40);
  EXPECT_EQ(cached("c", 22), 20) << "its window is in the cache, too";
  EXPECT_EQ(cached("d", 3), 0);
  again.Submit(request("e", 0));
  again.Drain();
  EXPECT_EQ(cached("f", 40), 0);
}

TEST(SchedulerWindowTest, WithoutFullLayersAPrefixNeedsItsLastWindowAlone) {
  const auto request = [](const char* id, int64_t shared) {
    Request r = MakeRequest(id, 48, 1);
    std::fill(r.prompt.begin(), r.prompt.end(), int32_t{r.prompt.front()});
    for (int64_t i = 0; i < shared; ++i) r.prompt[i] = static_cast<int32_t>(1000 + i);
    return r;
  };
  // Eight of the prompt's twelve blocks.
  Harness h({.max_batch_tokens = 8, .max_positions = 1000}, 8, 4,
            {.full = 0, .windowed = 1, .window = 8});
  const auto cached = [&](const char* id, int64_t shared) {
    h.Submit(request(id, shared));
    h.scheduler_.Schedule(h.now_, PrefillThrottle::kUnlimited);
    const int64_t tokens = h.Find(id).cached_prompt_tokens;
    EXPECT_LE(h.Find(id).blocks.size(), 2 + 2) << "the window, and a chunk";
    h.Remove(id);
    return tokens;
  };
  h.Submit(request("a", 40));
  h.Drain();
  EXPECT_EQ(cached("b", 40), 40);
  // The blocks before this prefix's end are evicted.
  EXPECT_EQ(cached("c", 9), 0);
  h.Submit(request("e", 0));
  h.Drain();
  EXPECT_EQ(cached("f", 40), 0);
}

// --- Everything at once -----------------------------------------------------------------------

struct Scenario {
  int64_t blocks, block_positions;
  SchedulerLimits limits;
};

// Submits, cancels and steps at random, and checks every plan against the header's contract.
class RandomRun {
 public:
  RandomRun(const Scenario& scenario, uint32_t seed)
      : scenario_(scenario),
        random_(seed),
        h_(scenario.limits, scenario.blocks, scenario.block_positions) {}

  // The plans and the final state, to compare runs.
  std::string Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      const uint32_t dice = random_() % 10;
      if (dice < 3) {
        Submit();
      } else if (dice < 4) {
        Cancel();
      } else {
        CheckedStep();
      }
    }
    // Each step computes a row of the oldest sequence, and a preempted one restarts at most once
    // per older one, so this bound is generous.
    for (int i = 0; !h_.scheduler_.empty() && !testing::Test::HasFailure(); ++i) {
      EXPECT_LT(i, 100000) << "livelock";
      CheckedStep();
    }
    EXPECT_EQ(h_.pool_.allocated(), 0);
    EXPECT_EQ(h_.pool_.available(), scenario_.blocks);
    EXPECT_TRUE(live_.empty());
    return trace_.str();
  }

  int64_t preemptions() const { return h_.scheduler_.preemptions(); }

 private:
  int64_t Below(int64_t bound) { return static_cast<int64_t>(random_() % bound); }

  // A sequence's tokens do not depend on the schedule: token i of any sequence is i.
  void Submit() {
    const std::string id = std::to_string(arrivals_);
    const int64_t prompt = 1 + Below(scenario_.limits.max_positions + 2);
    const int64_t max_new_tokens = Below(8) == 0 ? 0 : 1 + Below(scenario_.limits.max_positions);
    int64_t waiting = 0;  // sequences never admitted
    for (const Sequence* s : h_.scheduler_.Sequences()) {
      waiting += s->stage == Sequence::Stage::kQueued;
    }
    const SubmitStatus status = h_.Submit(id, prompt, max_new_tokens);
    trace_ << "submit " << id << ' ' << static_cast<int>(status) << '\n';

    const int64_t tokens = std::min(prompt + max_new_tokens, scenario_.limits.max_positions);
    const int64_t rows = max_new_tokens > 0 ? tokens - 1 : prompt;
    const int64_t blocks = (rows + scenario_.block_positions - 1) / scenario_.block_positions;
    SubmitStatus expected = SubmitStatus::kAccepted;
    if (prompt + std::min<int64_t>(max_new_tokens, 1) > scenario_.limits.max_positions) {
      expected = SubmitStatus::kPromptTooLong;
    } else if (blocks > scenario_.blocks) {
      expected = SubmitStatus::kNeverFits;
    } else if (waiting >= scenario_.limits.max_waiting) {
      expected = SubmitStatus::kQueueFull;
    }
    ASSERT_EQ(status, expected);
    if (status == SubmitStatus::kAccepted) live_[id] = arrivals_++;
  }

  void Cancel() {
    if (live_.empty()) return;
    const auto it = std::next(live_.begin(), Below(std::ssize(live_)));
    trace_ << "cancel " << it->first << '\n';
    h_.Remove(it->first);
    ASSERT_THAT(h_.scheduler_.Find(it->first), IsEmpty());
    live_.erase(it);
    CheckState();
  }

  void CheckedStep() {
    const std::set<std::string> running_before = Running();
    const int64_t preemptions_before = h_.scheduler_.preemptions();
    const std::vector<Chunk> plan = h_.scheduler_.Schedule(h_.now_, PrefillThrottle::kUnlimited);
    CheckState();
    const std::set<std::string> running = Running();
    const bool preempted = h_.scheduler_.preemptions() > preemptions_before;

    std::set<std::string> planned;
    int64_t rows = 0;
    for (const Chunk& chunk : plan) {
      const Sequence& s = *chunk.sequence;
      trace_ << s.request->id << ' ' << chunk.start << '+' << chunk.count << ' ' << chunk.samples
             << ' ' << testing::PrintToString(s.blocks.blocks()) << '\n';
      ASSERT_TRUE(planned.insert(s.request->id).second) << "planned twice";
      ASSERT_EQ(chunk.start, s.computed);
      ASSERT_GT(chunk.count, 0);
      const int64_t end = chunk.start + chunk.count;
      ASSERT_LE(end, std::ssize(s.tokens));
      ASSERT_EQ(chunk.samples, end == std::ssize(s.tokens));
      ASSERT_EQ(s.blocks.size(), (end + scenario_.block_positions - 1) / scenario_.block_positions);
      rows += chunk.count;
    }
    ASSERT_LE(rows, scenario_.limits.max_batch_tokens);
    ASSERT_LE(h_.scheduler_.running(), scenario_.limits.max_running);

    // The oldest always advances. A running sequence is skipped only if the budget is used up.
    const std::vector<const Sequence*> sequences = h_.scheduler_.Sequences();
    if (!sequences.empty()) {
      ASSERT_TRUE(planned.contains(sequences.front()->request->id));
    }
    for (const std::string& id : running) {
      ASSERT_TRUE(planned.contains(id) || rows == scenario_.limits.max_batch_tokens);
    }

    // Only the youngest are preempted, and no sequence is admitted in such a step.
    for (const std::string& id : running_before) {
      if (running.contains(id)) continue;
      ASSERT_TRUE(preempted);
      for (const std::string& other : running) ASSERT_LT(live_.at(other), live_.at(id));
    }
    if (preempted) {
      for (const std::string& id : running) ASSERT_TRUE(running_before.contains(id));
    }

    for (const Chunk& chunk : plan) {
      const std::string id = chunk.sequence->request->id;
      const size_t finished_before = h_.finished_.size();
      h_.Compute(chunk);
      if (h_.finished_.size() == finished_before) continue;
      trace_ << "finish " << id << '\n';
      ASSERT_EQ(live_.erase(id), 1u) << "ended twice";
    }
  }

  std::set<std::string> Running() const {
    std::set<std::string> ids;
    for (const Sequence* s : h_.scheduler_.Sequences()) {
      if (s->running) ids.insert(s->request->id);
    }
    return ids;
  }

  // Invariants between any two calls.
  void CheckState() const {
    const std::vector<const Sequence*> sequences = h_.scheduler_.Sequences();
    ASSERT_EQ(sequences.size(), live_.size());
    std::vector<int32_t> held;
    int64_t running = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& s = *sequences[i];
      held.insert(held.end(), s.blocks.blocks().begin(), s.blocks.blocks().end());
      running += s.running;
      ASSERT_LE(s.computed, s.blocks.size() * scenario_.block_positions);
      if (!s.running) {
        ASSERT_EQ(s.blocks.size(), 0);
        ASSERT_EQ(s.computed, 0);
      }
      // Tokens survive preemption.
      for (int64_t t = s.prompt_length(); t < std::ssize(s.tokens); ++t) {
        ASSERT_EQ(s.tokens[t], static_cast<int32_t>(t));
      }
      if (i == 0) continue;
      ASSERT_LT(live_.at(sequences[i - 1]->request->id), live_.at(s.request->id));
      ASSERT_TRUE(sequences[i - 1]->running || !s.running) << "overtaken by a younger one";
    }
    std::sort(held.begin(), held.end());
    ASSERT_EQ(std::adjacent_find(held.begin(), held.end()), held.end()) << "held twice";
    ASSERT_EQ(h_.pool_.allocated(), std::ssize(held));
    ASSERT_EQ(h_.scheduler_.running(), running);
    ASSERT_EQ(h_.scheduler_.waiting(), std::ssize(sequences) - running);
  }

  Scenario scenario_;
  std::mt19937 random_;
  Harness h_;
  std::map<std::string, int64_t> live_;  // order of arrival by id
  int64_t arrivals_ = 0;
  std::ostringstream trace_;
};

TEST(SchedulerRandomTest, KeepsItsPromises) {
  const std::vector<Scenario> scenarios = {
      // Ample resources; then few blocks, budget, running sequences and queue entries.
      {1000,
       4,
       {.max_batch_tokens = 64, .max_running = 16, .max_waiting = 50, .max_positions = 40}},
      {12, 4, {.max_batch_tokens = 64, .max_running = 16, .max_waiting = 50, .max_positions = 40}},
      {10, 4, {.max_batch_tokens = 6, .max_running = 6, .max_waiting = 8, .max_positions = 40}},
      {20, 1, {.max_batch_tokens = 16, .max_running = 8, .max_waiting = 4, .max_positions = 24}},
      {5, 16, {.max_batch_tokens = 7, .max_running = 3, .max_waiting = 3, .max_positions = 96}},
      {30, 3, {.max_batch_tokens = 1, .max_running = 1, .max_waiting = 5, .max_positions = 16}},
      {1, 8, {.max_batch_tokens = 4, .max_running = 4, .max_waiting = 5, .max_positions = 16}},
  };
  int64_t preemptions = 0;
  for (size_t i = 0; i < scenarios.size(); ++i) {
    for (uint32_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE("scenario " + std::to_string(i) + " seed " + std::to_string(seed));
      RandomRun run(scenarios[i], seed);
      const std::string trace = run.Run(4000);
      preemptions += run.preemptions();
      if (HasFailure()) return;
      // The same calls give the same plans and blocks.
      EXPECT_EQ(RandomRun(scenarios[i], seed).Run(4000), trace);
    }
  }
  EXPECT_GT(preemptions, 1000);
}

}  // namespace
}  // namespace triptych::serving::scheduler_test
