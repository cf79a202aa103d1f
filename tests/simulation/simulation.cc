#include "tests/simulation/simulation.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/serving/engine_round_robin.h"
#include "engine/text/tokenizer.h"
#include "tests/simulation/checks.h"
#include "tests/simulation/cold_run.h"

namespace triptych::simulation {
namespace {

using Time = serving::EngineClock::time_point;
using std::chrono::nanoseconds;

// More than any workload takes after its last event.
constexpr int64_t kTurnsToDrain = 50'000;

constexpr const char* kInjected = "told to fail";

class SimulatedTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> Encode(std::span<const TextPart>) const override { return {}; }
  std::string Decode(int32_t token) const override { return TextOf(token); }
  std::string_view kind() const override { return "test"; }
  int32_t vocab_size() const override { return kVocabSize; }
  std::optional<int32_t> begin_token() const override { return 0; }
  std::span<const int32_t> end_tokens() const override {
    static constexpr int32_t kEnds[] = {kEndToken};
    return kEnds;
  }
};

bool Same(const serving::TokenLogprob& a, const serving::TokenLogprob& b) {
  return a.token == b.token && a.logprob == b.logprob;
}

bool Same(const serving::TokenLogprobs& a, const serving::TokenLogprobs& b) {
  return Same(a.chosen, b.chosen) &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(),
                    [](const serving::TokenLogprob& x, const serving::TokenLogprob& y) {
                      return Same(x, y);
                    });
}

class World;

// A fake model whose steps take virtual time, fail when they are told to, and are looked at.
class SimulatedModel final : public ModelBackend {
 public:
  SimulatedModel(World& world, int engine, const FakeModel::Shape& shape)
      : world_(world), engine_(engine), model_(shape) {}

  std::span<const float> Step(const StepInput& step) override;
  std::unique_ptr<PromptScratch> MakePromptScratch(int64_t prompt) override {
    return model_.MakePromptScratch(prompt);
  }
  const BackendInfo& info() const override { return model_.info(); }
  const FakeModel& fake() const { return model_; }

 private:
  World& world_;
  const int engine_;
  FakeModel model_;
  std::vector<float> logits_;
};

// A request from its submission to its end, and what it must get meanwhile.
class Asked final : public serving::RequestSink {
 public:
  Asked(World& world, int engine, const serving::Request& request, const FakeModel::Shape& shape);

  void OnRejected(serving::SubmitStatus status) override;
  void OnScheduled() override;
  void OnPromptLogprobs(std::vector<serving::TokenLogprobs> logprobs) override;
  void OnDelta(serving::Delta delta) override;
  void OnFinish(serving::Completion completion) override;

  // A step computes rows of one of its sequences.
  void Computes(const serving::Sequence& sequence, const StepInput::Sequence& rows);
  // Posts a cancellation, if it is to be cancelled at so many tokens.
  void CancelAt(int64_t count);
  bool ended() const { return rejected || left == 0; }

  World& world;
  const int engine;
  const serving::Request request;
  const FakeModel::Shape shape;
  struct Choice {
    std::unique_ptr<ColdRun> run;
    std::optional<serving::FinishReason> reason;
    bool computes = false;  // a step has computed rows of it
    int64_t computed = 0;   // rows of the prompt
  };
  std::vector<Choice> choices;
  int64_t left;  // choices
  std::optional<serving::FinishReason> last_reason;
  std::optional<serving::SubmitStatus> rejected;
  std::optional<serving::SubmitStatus> expected;  // what its submission must have come to
  bool scheduled = false;
  bool cancelled = false;  // by one that was run
  int64_t prompt_scored = 0;
  int64_t tokens = 0;              // of all choices
  std::vector<int64_t> cancel_at;  // once it has so many tokens

  // In the queue, as it must be.
  bool queued = false;
  Time counts_from;        // the arrival, or, if that was earlier, when somebody was served last
  bool was_first = false;  // of its client's, after the latest turn
  Time first_since;
  std::map<std::string, int> overtaken;  // by whom, after its patience
};

struct Slot {
  EngineShape shape;
  SimulatedModel* model = nullptr;  // the engine's
  std::optional<serving::Engine> engine;
  std::optional<EngineChecks> checks;
  std::optional<EngineShape> next;  // takes its place once it is idle
  bool stopping = false;
  bool touched = true;  // since the last check
  std::vector<Asked*> asked;
  Time served = Time::min();  // when one of its queue was, last
  nanoseconds used{0};        // of time, by all engines that were here
  // Of the next step.
  std::optional<Event::Failure> failure;
  nanoseconds slow{0};
  // Of the latest turn.
  bool stepped = false;
  std::set<std::pair<std::string, int32_t>> to_fail;  // requests' ids and choices
  std::string error;                                  // what they must be told, in part
};

class World {
 public:
  World(const Workload& workload, Effort& effort, std::ostream* trace)
      : workload_(workload), effort_(effort), trace_(trace), slots_(workload.engines.size()) {
    std::vector<serving::Engine*> engines;
    for (size_t i = 0; i < slots_.size(); ++i) {
      Trace("engine " + std::to_string(i) + ": " + Describe(workload.engines[i]));
      Start(static_cast<int>(i), workload.engines[i]);
      engines.push_back(&*slots_[i].engine);
    }
    turns_.emplace(
        engines, [this] { awake_ = true; }, [this] { return now_; });
  }

  std::optional<Violation> Run() {
    bool worked = false;
    size_t next = 0;
    int64_t last = 0;
    const std::vector<Event>& events = workload_.events;
    for (int64_t round = 0; !violation_; ++round) {
      for (; next < events.size() && events[next].round <= round; ++next) {
        last = round;
        if (events[next].in_step && !Idle()) {
          in_step_.push_back(&events[next]);
        } else {
          Happen(events[next]);
        }
      }
      PassDeadlines();
      if (!worked && !awake_) {
        if (posted_ != ran_ || !Idle()) {
          Fail("no wake-up is lost", "it sleeps while there is work");
          break;
        }
        if (next == events.size()) break;
        round = std::max(round, events[next].round - 1);
        now_ += workload_.step_time;
        continue;
      }
      awake_ = false;
      worked = Turn();
      if (round > last + kTurnsToDrain) Fail("everything ends", "it goes on and on");
    }
    if (!violation_) CheckEnd();
    return violation_;
  }

  void Fail(const char* invariant, const std::string& what) {
    if (violation_) return;
    violation_ = Violation{invariant, what};
    Trace(std::string("VIOLATED: ") + invariant + ": " + what);
  }
  bool failed() const { return violation_.has_value(); }
  void Trace(const std::string& line) {
    if (trace_ != nullptr) *trace_ << Seconds(now_) << "  " << line << '\n';
  }
  bool traces() const { return trace_ != nullptr; }

  Time now() const { return now_; }
  Effort& effort() { return effort_; }

  void PostCancel(const Asked& asked) {
    Post(asked.engine, [this, number = asked.request.number] { Cancel(number); });
  }

  // Before a step is computed; after that, it fails if the result says so.
  std::optional<Event::Failure> BeginStep(int engine, const StepInput& step) {
    Slot& slot = slots_[engine];
    slot.stepped = true;
    ++effort_.steps;
    if (traces()) {
      std::string line = "engine " + std::to_string(engine) + " computes";
      for (const auto& part : step.sequences) {
        const serving::Sequence* sequence = Find(slot, part);
        line += ' ' + (sequence == nullptr ? "?" : sequence->request->id) + '.' +
                std::to_string(sequence == nullptr ? 0 : sequence->choice) + '[' +
                std::to_string(part.start) + '+' + std::to_string(part.count) + ']';
      }
      Trace(line);
    }
    slot.checks->CheckStep(step, slot.shape.options.max_batch_tokens,
                           slot.shape.options.max_running, Reporter(engine));
    if (failed()) throw std::logic_error("a check failed");
    for (const auto& part : step.sequences) {
      const serving::Sequence* sequence = Find(slot, part);
      static_cast<Asked&>(*sequence->sink).Computes(*sequence, part);
    }
    now_ += workload_.step_time + workload_.row_time * std::ssize(step.ids) +
            std::exchange(slot.slow, nanoseconds(0));
    PassDeadlines();
    HappenInStep();

    const std::optional<Event::Failure> failure = std::exchange(slot.failure, std::nullopt);
    if (!failure) return failure;
    slot.error = kInjected;
    if (*failure == Event::Failure::kOutOfMemory) slot.error = std::bad_alloc().what();
    for (const auto& part : step.sequences) ToFail(slot, *Find(slot, part));
    return failure;
  }

  // Its last logits are not finite: that fails only the sequence that they are of, if it uses them.
  void FailOnlyLast(int engine, const StepInput& step) {
    Slot& slot = slots_[engine];
    slot.to_fail.clear();
    slot.error = "no finite";
    if (step.logit_rows.empty()) return;
    int64_t token = 0;
    for (const auto& part : step.sequences) {
      const int64_t position = part.start + step.logit_rows.back() - token;
      token += part.count;
      if (step.logit_rows.back() >= token) continue;
      const serving::Sequence& sequence = *Find(slot, part);
      if (position + 1 < sequence.length()) {
        if (position >= sequence.prompt_scored) ToFail(slot, sequence);
      } else if (sequence.request->max_new_tokens > 0) {
        // The prompt is computed: nobody waits for it.
        slot.to_fail.emplace(sequence.request->id, sequence.choice);
      }
      return;
    }
  }

  const Slot& slot(int engine) const { return slots_[engine]; }

 private:
  static double Seconds(Time time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
  }

  Report Reporter(int engine) {
    return [this, engine](const char* invariant, const std::string& what) {
      Fail(invariant, "engine " + std::to_string(engine) + ": " + what);
    };
  }

  static const serving::Sequence* Find(const Slot& slot, const StepInput::Sequence& part) {
    for (const serving::Sequence* sequence : slot.engine->scheduler().Sequences()) {
      if (sequence->running && sequence->blocks.blocks().data() == part.blocks) return sequence;
    }
    return nullptr;
  }

  // With a sequence that fails, those fail that wait for the prompt that it computes.
  static void ToFail(Slot& slot, const serving::Sequence& sequence) {
    for (const serving::Sequence* other : slot.engine->scheduler().Find(sequence.request->id)) {
      if (other == &sequence || other->stage == serving::Sequence::Stage::kHeldBack) {
        slot.to_fail.emplace(other->request->id, other->choice);
      }
    }
  }

  void Start(int engine, const EngineShape& shape) {
    Slot& slot = slots_[engine];
    slot.checks.reset();
    slot.shape = shape;
    slot.asked.clear();
    slot.served = Time::min();
    slot.stopping = false;
    auto model = std::make_unique<SimulatedModel>(*this, engine, shape.model);
    slot.model = model.get();
    slot.engine.emplace(std::move(model), tokenizer_, shape.options, [this] { return now_; });
    slot.checks.emplace(*slot.engine, slot.model->fake());
  }

  bool Idle() const {
    return std::all_of(slots_.begin(), slots_.end(),
                       [](const Slot& slot) { return slot.engine->idle(); });
  }

  void Post(int engine, std::function<void()> task) {
    ++posted_;
    turns_->Post([this, engine, task = std::move(task)] {
      ++ran_;
      slots_[engine].touched = true;
      task();
    });
  }

  void HappenInStep() {
    for (const Event* event : std::exchange(in_step_, {})) Happen(*event);
  }

  void Happen(const Event& event) {
    if (traces()) Trace(Describe(event));
    Slot& slot = slots_[event.engine];
    switch (event.kind) {
      case Event::Kind::kSubmit:
        Post(event.engine, [this, &event, arrived = now_ - event.time] { Submit(event, arrived); });
        break;
      case Event::Kind::kCancel:
        Post(event.engine, [this, number = event.about] { Cancel(number); });
        break;
      case Event::Kind::kCancelAtToken:
        cancel_at_[event.about].push_back(event.count);
        break;
      case Event::Kind::kDeadline:
        deadlines_.emplace(now_ + event.time, &event);
        break;
      case Event::Kind::kFailStep:
        slot.failure = event.failure;
        break;
      case Event::Kind::kSlowStep:
        slot.slow = event.time;
        break;
      case Event::Kind::kClockJump:
        now_ += event.time;
        break;
      case Event::Kind::kSwap:
        Post(event.engine, [this, &event] {
          Slot& stopped = slots_[event.engine];
          stopped.engine->StopAccepting();
          stopped.stopping = true;
          stopped.next = event.shape;
        });
        break;
      case Event::Kind::kCancelAll:
        Post(event.engine, [this, engine = event.engine] {
          for (Asked* asked : slots_[engine].asked) asked->cancelled = true;
          slots_[engine].engine->CancelAll();
        });
        break;
    }
  }

  void PassDeadlines() {
    while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
      const Event& event = *deadlines_.begin()->second;
      deadlines_.erase(deadlines_.begin());
      Post(event.engine, [this, number = event.about] { Cancel(number); });
    }
  }

  void Submit(const Event& event, Time arrived) {
    Slot& slot = slots_[event.engine];
    serving::Request request = event.request;
    request.arrived = arrived;
    ++effort_.requests;
    auto asked = std::make_shared<Asked>(*this, event.engine, request, slot.shape.model);
    if (const auto cancels = cancel_at_.find(event.about); cancels != cancel_at_.end()) {
      asked->cancel_at = cancels->second;
    }
    asked->expected = Expected(slot, request);
    asked_[event.about] = asked;
    slot.asked.push_back(asked.get());
    slot.engine->Submit(std::move(request), asked);
    if (*asked->expected != asked->rejected.value_or(serving::SubmitStatus::kAccepted)) {
      Fail("requests are refused where the limits say so",
           "request " + event.request.id + " got status " +
               std::to_string(
                   static_cast<int>(asked->rejected.value_or(serving::SubmitStatus::kAccepted))) +
               ", not " + std::to_string(static_cast<int>(*asked->expected)));
    }
    asked->queued = !asked->rejected;
    asked->counts_from = std::max(arrived, slot.served);
  }

  static serving::SubmitStatus Expected(const Slot& slot, const serving::Request& request) {
    const FakeModel::Shape& model = slot.shape.model;
    const serving::EngineOptions& options = slot.shape.options;
    const auto prompt = std::ssize(request.prompt);
    const int64_t most =
        std::min(prompt + request.max_new_tokens, std::max(prompt, model.max_positions));
    if (slot.stopping) return serving::SubmitStatus::kStopping;
    if (prompt > model.max_positions || (request.max_new_tokens > 0 && most == prompt)) {
      return serving::SubmitStatus::kPromptTooLong;
    }
    if (std::max(prompt, most - 1) > model.blocks * model.block_positions) {
      return serving::SubmitStatus::kNeverFits;
    }
    int64_t waiting = 0, tokens = 0;
    for (const Asked* asked : slot.asked) {
      if (!asked->queued || asked->ended()) continue;
      ++waiting;
      tokens += std::ssize(asked->request.prompt);
    }
    const bool full = waiting >= options.max_waiting ||
                      (waiting > 0 && tokens + prompt > options.max_waiting_tokens);
    return full ? serving::SubmitStatus::kQueueFull : serving::SubmitStatus::kAccepted;
  }

  void Cancel(uint64_t number) {
    const auto found = asked_.find(number);
    if (found == asked_.end()) return;
    Asked& asked = *found->second;
    asked.cancelled = true;
    slots_[asked.engine].engine->Cancel(asked.request.id);
    if (!asked.ended()) Fail("a cancelled request has ended", "request " + asked.request.id);
  }

  bool Turn() {
    ++effort_.turns;
    const Time start = now_;
    for (Slot& slot : slots_) {
      slot.touched = slot.touched || !slot.engine->idle();
      slot.stepped = false;
      slot.to_fail.clear();
    }
    std::vector<bool> busy;
    for (const Slot& slot : slots_) busy.push_back(!slot.engine->idle());
    const bool worked = turns_->Turn();
    CheckShares(busy, start);
    HappenInStep();
    for (size_t i = 0; i < slots_.size() && !failed(); ++i) {
      Slot& slot = slots_[i];
      if (!std::exchange(slot.touched, false)) continue;
      slot.checks->Check(Reporter(static_cast<int>(i)));
      CheckRequests(slot);
      CheckTurns(slot, start);
      if (slot.next && slot.engine->idle()) {
        CheckEnd(slot);
        const EngineShape shape = *std::exchange(slot.next, std::nullopt);
        Trace("engine " + std::to_string(i) + " is now: " + Describe(shape));
        Start(static_cast<int>(i), shape);
      }
    }
    return worked;
  }

  // Whether each request is where it must be, and the counters add up.
  void CheckRequests(const Slot& slot) {
    serving::RequestCounts expected;
    int64_t live = 0;
    for (const Asked* asked : slot.asked) {
      const bool accepted = *asked->expected == serving::SubmitStatus::kAccepted;
      if (accepted) ++expected.accepted;
      if (asked->rejected) ++expected.refused;
      live += asked->rejected ? 0 : asked->left;
      if (asked->rejected) continue;
      for (const Asked::Choice& choice : asked->choices) {
        if (!choice.reason) continue;
        expected.prompt_tokens += std::ssize(asked->request.prompt);
        expected.generated_tokens += choice.run->generated();
      }
      if (!asked->ended()) continue;
      switch (*asked->last_reason) {
        case serving::FinishReason::kStop:
        case serving::FinishReason::kLength:
          ++expected.finished;
          break;
        case serving::FinishReason::kCancelled:
          ++expected.cancelled;
          break;
        case serving::FinishReason::kFailed:
          ++expected.failed;
          break;
      }
    }
    const serving::KvCacheStats stats = slot.engine->Stats();
    const serving::RequestCounts& counts = stats.requests;
    const auto equal = [this](const char* what, int64_t found, int64_t right) {
      if (found == right) return;
      Fail("counters add up",
           std::string(what) + " is " + std::to_string(found) + ", not " + std::to_string(right));
    };
    equal("accepted", counts.accepted, expected.accepted);
    equal("refused", counts.refused, expected.refused);
    equal("finished", counts.finished, expected.finished);
    equal("cancelled", counts.cancelled, expected.cancelled);
    equal("failed", counts.failed, expected.failed);
    equal("prompt_tokens", counts.prompt_tokens, expected.prompt_tokens);
    equal("generated_tokens", counts.generated_tokens, expected.generated_tokens);
    if (live == 0) equal("sampled_tokens", counts.sampled_tokens, counts.generated_tokens);
    equal("running + waiting", stats.running + stats.waiting, live);
    if (counts.cached_prompt_tokens > counts.prompt_tokens) {
      Fail("counters add up", "more prompt tokens were found than there were");
    }
    for (const auto& [id, choice] : slot.to_fail) {
      const Asked& asked = *asked_.at(std::stoull(id));
      if (asked.choices[choice].reason == serving::FinishReason::kFailed) continue;
      Fail("a step that fails fails what it computes", "request " + id + " goes on");
    }
  }

  // TurnQueue's bound: once a request is its client's first, and its patience is over, it is
  // overtaken by one request of each other client at most. And none waits longer than the queue's
  // timeout, which is looked at before each step.
  void CheckTurns(Slot& slot, Time start) {
    std::map<std::string, int> served;  // of each client, in this turn
    for (Asked* asked : slot.asked) {
      if (!asked->queued) continue;
      asked->queued = false;
      if (asked->ended() && !asked->scheduled) continue;
      if (!asked->scheduled) {
        const std::vector<serving::Sequence*> live =
            slot.engine->scheduler().Find(asked->request.id);
        asked->queued = !live.empty() && live.front()->stage == serving::Sequence::Stage::kQueued;
      }
      if (!asked->queued) ++served[asked->request.client];
    }
    if (!served.empty()) slot.served = start;
    std::map<std::string, Asked*> first;  // of each client's
    for (Asked* asked : slot.asked) {
      if (!asked->queued) continue;
      const auto key = [](const Asked& one) {
        return one.counts_from + serving::Patience(one.request.priority);
      };
      Asked*& least = first[asked->request.client];
      if (least == nullptr || key(*asked) < key(*least)) least = asked;
    }
    for (Asked* asked : slot.asked) {
      if (!asked->queued) continue;
      const std::string& client = asked->request.client;
      const bool is_first = first[client] == asked;
      if (!is_first || !asked->was_first || served.contains(client)) {
        asked->first_since = start;
        asked->overtaken.clear();
      }
      asked->was_first = is_first;
      const nanoseconds timeout = slot.shape.options.queue_timeout;
      if (slot.stepped && timeout.count() > 0 && asked->request.arrived < start - timeout) {
        Fail("nobody waits longer than the queue's timeout", "request " + asked->request.id);
      }
      if (!is_first || start <= asked->first_since + serving::Patience(asked->request.priority)) {
        continue;
      }
      for (const auto& [other, count] : served) {
        if ((asked->overtaken[other] += count) <= 1) continue;
        Fail("nobody starves", "request " + asked->request.id + " was overtaken by " +
                                   std::to_string(asked->overtaken[other]) +
                                   " requests of client " + other);
      }
    }
  }

  // While two engines have work, the times that they use stay together by about a step: by two,
  // because they need not start together.
  void CheckShares(const std::vector<bool>& busy, Time start) {
    for (Slot& slot : slots_) {
      if (slot.stepped) slot.used += now_ - start;
    }
    longest_step_ = std::max(longest_step_, now_ - start);
    for (size_t i = 0; i < slots_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const nanoseconds ahead = slots_[i].used - slots_[j].used;
        nanoseconds& before = ahead_[{i, j}];
        if (!busy[i] || !busy[j] || slots_[i].engine->idle() || slots_[j].engine->idle()) {
          before = ahead;
        } else if (std::chrono::abs(ahead - before) > 2 * longest_step_) {
          Fail("engines share time", "engines " + std::to_string(i) + " and " + std::to_string(j));
        }
      }
    }
  }

  void CheckEnd() {
    for (Slot& slot : slots_) CheckEnd(slot);
  }

  void CheckEnd(const Slot& slot) {
    for (const Asked* asked : slot.asked) {
      if (!asked->ended()) Fail("every request ends", "request " + asked->request.id + " did not");
    }
    if (slot.engine->pool().allocated() != 0) {
      Fail("no block is held at the end", std::to_string(slot.engine->pool().allocated()) + " are");
    }
    const serving::KvCacheStats stats = slot.engine->Stats();
    effort_.preemptions += stats.preemptions;
    effort_.evictions += stats.evicted_blocks;
    effort_.cached_prompt_tokens += stats.requests.cached_prompt_tokens;
    effort_.cancelled += stats.requests.cancelled;
    effort_.failed += stats.requests.failed;
    effort_.refused += stats.requests.refused;
    effort_.tokens += stats.requests.generated_tokens;
  }

  const Workload& workload_;
  Effort& effort_;
  std::ostream* const trace_;
  const std::shared_ptr<const Tokenizer> tokenizer_ = std::make_shared<SimulatedTokenizer>();
  Time now_{std::chrono::hours(1)};
  std::optional<Violation> violation_;
  std::map<uint64_t, std::shared_ptr<Asked>> asked_;  // by number
  std::map<uint64_t, std::vector<int64_t>> cancel_at_;
  std::multimap<Time, const Event*> deadlines_;
  std::vector<const Event*> in_step_;  // happen while the next step is computed
  std::vector<Slot> slots_;
  std::optional<serving::EngineRoundRobin> turns_;
  bool awake_ = false;
  int64_t posted_ = 0, ran_ = 0;
  nanoseconds longest_step_{0};
  // By how much time one engine was ahead of another when they last began to work together.
  std::map<std::pair<size_t, size_t>, nanoseconds> ahead_;
};

Asked::Asked(World& world_in, int engine_in, const serving::Request& request_in,
             const FakeModel::Shape& shape_in)
    : world(world_in),
      engine(engine_in),
      request(request_in),
      shape(shape_in),
      choices(request.choices),
      left(request.choices) {
  for (int32_t choice = 0; choice < request.choices; ++choice) {
    choices[choice].run = std::make_unique<ColdRun>(shape, request, choice);
  }
}

void Asked::Computes(const serving::Sequence& sequence, const StepInput::Sequence& rows) {
  Choice& choice = choices[sequence.choice];
  if (!scheduled) world.Fail("who is computed was told so before", "request " + request.id);
  if (!choice.computes && sequence.cached_prompt_tokens != rows.start) {
    world.Fail("found prompt tokens are those that are not computed",
               "request " + request.id + " begins at " + std::to_string(rows.start) + ", found " +
                   std::to_string(sequence.cached_prompt_tokens));
  }
  choice.computes = true;
  choice.computed += std::clamp<int64_t>(sequence.prompt_length() - rows.start, 0, rows.count);
}

void Asked::OnRejected(serving::SubmitStatus status) {
  if (world.traces()) world.Trace("request " + request.id + " is refused");
  if (ended() || scheduled) world.Fail("every request ends once", "request " + request.id);
  rejected = status;
  if (!queued) return;
  const nanoseconds timeout = world.slot(engine).shape.options.queue_timeout;
  if (status != serving::SubmitStatus::kQueueTimeout || timeout.count() == 0 ||
      world.now() - request.arrived <= timeout) {
    world.Fail("requests are refused where the limits say so", "request " + request.id);
  }
}

void Asked::OnScheduled() {
  if (world.traces()) world.Trace("request " + request.id + " is scheduled");
  if (scheduled || ended()) world.Fail("every request is scheduled once", "request " + request.id);
  scheduled = true;
  CancelAt(0);
}

void Asked::CancelAt(int64_t count) {
  if (std::find(cancel_at.begin(), cancel_at.end(), count) != cancel_at.end()) {
    world.PostCancel(*this);
  }
}

void Asked::OnPromptLogprobs(std::vector<serving::TokenLogprobs> logprobs) {
  const char* const invariant = "prompts are scored as in a cold run";
  if (!request.prompt_logprobs || tokens > 0 || ended()) world.Fail(invariant, "unasked");
  for (const serving::TokenLogprobs& found : logprobs) {
    if (++prompt_scored >= std::ssize(request.prompt)) return world.Fail(invariant, "too many");
    const auto before = std::span(request.prompt).first(prompt_scored);
    const serving::TokenLogprobs right =
        serving::Logprobs(ColdLogits(before, shape, std::ssize(request.prompt)),
                          request.prompt[prompt_scored], *request.prompt_logprobs);
    if (!Same(found, right)) {
      world.Fail(invariant,
                 "request " + request.id + ", position " + std::to_string(prompt_scored));
    }
  }
}

void Asked::OnDelta(serving::Delta delta) {
  const std::string name = "request " + request.id + " choice " + std::to_string(delta.choice);
  if (world.traces()) world.Trace(name + " gets " + std::to_string(delta.token));
  if (delta.choice < 0 || delta.choice >= request.choices) {
    return world.Fail("deltas are of the request's choices", name);
  }
  const Choice& choice = choices[delta.choice];
  if (rejected || choice.reason || choice.run->ended()) {
    return world.Fail("nothing comes after the end", name);
  }
  const serving::Delta right = choice.run->Next();
  if (delta.token != right.token || delta.text != right.text ||
      delta.logprobs.has_value() != right.logprobs.has_value() ||
      (delta.logprobs && !Same(*delta.logprobs, *right.logprobs))) {
    world.Fail("outputs are those of a cold run", name + " got token " +
                                                      std::to_string(delta.token) + " as number " +
                                                      std::to_string(choice.run->generated()) +
                                                      ", not " + std::to_string(right.token));
  }
  CancelAt(++tokens);
}

void Asked::OnFinish(serving::Completion completion) {
  const std::string name = "request " + request.id + " choice " + std::to_string(completion.choice);
  if (world.traces()) {
    world.Trace(name + " ends: " + std::to_string(static_cast<int>(completion.reason)));
  }
  if (completion.choice < 0 || completion.choice >= request.choices) {
    return world.Fail("ends are of the request's choices", name);
  }
  Choice& choice = choices[completion.choice];
  if (rejected || choice.reason) return world.Fail("every request ends once", name);
  choice.reason = last_reason = completion.reason;
  --left;

  const serving::RequestUsage& usage = completion.usage;
  const auto prompt = std::ssize(request.prompt);
  const Slot& slot = world.slot(engine);
  switch (completion.reason) {
    case serving::FinishReason::kStop:
    case serving::FinishReason::kLength:
      if (choice.run->ended() != completion.reason || completion.stop != choice.run->stop()) {
        world.Fail("requests end as in a cold run", name);
      }
      if (request.prompt_logprobs && prompt_scored != prompt - 1) {
        world.Fail("prompts are scored as in a cold run", name + " is not scored");
      }
      if (usage.preemptions == 0 && usage.cached_prompt_tokens + choice.computed != prompt) {
        world.Fail("found prompt tokens are those that are not computed", name);
      }
      break;
    case serving::FinishReason::kCancelled:
      if (!cancelled) world.Fail("only what is cancelled ends so", name);
      break;
    case serving::FinishReason::kFailed:
      if (!slot.to_fail.contains({request.id, completion.choice}) ||
          completion.error.find(slot.error) == std::string::npos) {
        world.Fail("a step that fails fails only what it computes", name + ": " + completion.error);
      }
      break;
  }
  const KvCacheUsage& cache = usage.kv_cache;
  const int64_t row_bytes = cache.bytes_per_position;
  const int64_t block_bytes = slot.shape.model.block_positions * row_bytes;
  if (usage.prompt_tokens != prompt || usage.generated_tokens != choice.run->generated() ||
      usage.cached_prompt_tokens < 0 || usage.cached_prompt_tokens >= prompt ||
      completion.seed != serving::ChoiceSeed(request.seed, completion.choice) ||
      cache.used_bytes != cache.positions * row_bytes ||
      cache.allocated_bytes != cache.shared_bytes + cache.own_bytes ||
      cache.allocated_bytes % block_bytes != 0 || cache.used_bytes > cache.allocated_bytes ||
      cache.allocated_bytes > cache.peak_allocated_bytes || usage.queue_time.count() < 0 ||
      usage.prefill_time.count() < 0 || usage.decode_time.count() < 0) {
    world.Fail("an end reports what was used", name);
  }
}

std::span<const float> SimulatedModel::Step(const StepInput& step) {
  const std::optional<Event::Failure> failure = world_.BeginStep(engine_, step);
  if (!failure) return model_.Step(step);
  switch (*failure) {
    case Event::Failure::kBeforeRows:
      throw std::runtime_error(kInjected);
    case Event::Failure::kOutOfMemory:
      throw std::bad_alloc();
    case Event::Failure::kAfterRows:
      model_.Step(step);
      throw std::runtime_error(kInjected);
    case Event::Failure::kNotFinite:
      break;
  }
  const std::span<const float> logits = model_.Step(step);
  logits_.assign(logits.begin(), logits.end());
  const int64_t last = logits.empty() ? 0 : info().vocab_size;
  std::fill_n(logits_.end() - last, last, std::numeric_limits<float>::quiet_NaN());
  world_.FailOnlyLast(engine_, step);
  return logits_;
}

}  // namespace

std::optional<Violation> Simulate(const Workload& workload, Effort& effort, std::ostream* trace) {
  World world(workload, effort, trace);
  return world.Run();
}

}  // namespace triptych::simulation
