#include "tests/simulation/workload.h"

#include <algorithm>
#include <limits>
#include <sstream>

namespace triptych::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr int kEngines = 3;  // at most

class Maker {
 public:
  Maker(uint64_t seed, AddRealModel add_real_model)
      : random_(seed), add_real_model_(add_real_model) {
    workload_.seed = seed;
  }

  Workload Make() {
    for (int64_t n = random_.Between(1, kEngines); n > 0; --n) {
      workload_.engines.push_back(Shape());
    }
    // With slow steps, requests run out of patience while they wait.
    workload_.step_time = random_.Among<nanoseconds>(
        {milliseconds(1), milliseconds(50), milliseconds(1000), milliseconds(4000)});
    workload_.row_time = workload_.step_time / random_.Among<int64_t>({3, 10, 100});
    for (int i = 0; i < 3; ++i) documents_.push_back(Tokens(random_.Between(10, 48)));
    clients_ = random_.Between(1, 4);
    rounds_ = random_.Between(1, 50);

    for (int64_t bursts = random_.Between(1, 7); bursts > 0; --bursts) {
      const int64_t round = random_.Between(0, rounds_);
      for (int64_t n = random_.Between(1, 10); n > 0; --n) {
        Submit(round + (random_.OneIn(3) ? random_.Between(0, 3) : 0));
      }
    }
    for (int64_t n = random_.Between(0, 6); n > 0; --n) Disturb();
    std::stable_sort(workload_.events.begin(), workload_.events.end(),
                     [](const Event& a, const Event& b) { return a.round < b.round; });
    return std::move(workload_);
  }

 private:
  EngineShape Shape() {
    EngineShape shape;
    ModelShape& model = shape.model;
    model.vocab_size = kVocabSize;
    model.block_positions = random_.Among<int64_t>({1, 2, 3, 4, 4, 5, 8, 16});
    model.max_positions = random_.Between(16, 64);
    const int64_t positions = random_.OneIn(4) ? random_.Between(200, 400)  // ample
                                               : random_.Between(12, 90);
    model.blocks = std::max<int64_t>(1, positions / model.block_positions);
    if (random_.OneIn(2)) model.expand_from = random_.Between(0, 20);
    if (random_.OneIn(2)) {
      model.full_layers = random_.Between(0, 3);
      model.windowed_layers = random_.Between(1, 4);
      model.window = random_.Between(1, 24);
      model.blocks *= FakeModel::GeometryOf(model).Groups().count();
      model.expand_from.reset();  // MLA has no windows
    }
    serving::EngineOptions& options = shape.options;
    options.max_batch_tokens =
        random_.OneIn(4) ? random_.Between(1, 8) : random_.Among<int64_t>({16, 32, 64, 512});
    options.max_running = random_.OneIn(3) ? random_.Between(1, 3) : random_.Between(4, 16);
    options.max_waiting = random_.OneIn(4) ? random_.Between(1, 5) : 1024;
    options.max_waiting_tokens = random_.OneIn(4) ? random_.Between(1, 100) : 1 << 20;
    if (random_.OneIn(4)) options.queue_timeout = milliseconds(random_.Between(1, 30'000));
    options.prefix_cache = !random_.OneIn(6);
    options.max_slowdown =
        random_.Among<double>({serving::PrefillThrottle::kDefaultMaxSlowdown, 1.01, 10,
                               std::numeric_limits<double>::infinity()});
    options.speculation = random_.Among<serving::Speculation>({serving::Speculation::kOff,
                                                               serving::Speculation::kWherePays,
                                                               serving::Speculation::kAlways});
    shape.wrong_drafts = static_cast<int>(random_.Among<int64_t>({0, 1, 3, 10}));
    shape.draft_model = shape.wrong_drafts == 10 && model.windowed_layers == 0;
    if (add_real_model_ != nullptr) add_real_model_(model, random_);
    return shape;
  }

  std::vector<int32_t> Tokens(int64_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random_.Between(0, kEndToken - 1));
    return tokens;
  }

  // The beginning of a document or an earlier request's text, followed by new tokens.
  std::vector<int32_t> Prompt(const ModelShape& model) {
    std::vector<int32_t> prompt;
    if (!asked_.empty() && random_.OneIn(3)) {
      const Event& earlier = workload_.events[random_.Among(asked_)];
      ColdRun run(workload_.engines[earlier.engine].model, earlier.request,
                  static_cast<int32_t>(random_.Between(0, earlier.request.choices - 1)));
      while (!run.ended()) run.Next();
      prompt = run.tokens();
    } else {
      prompt = random_.Among(documents_);
      prompt.resize(random_.Between(1, std::ssize(prompt)));
    }
    const std::vector<int32_t> more = Tokens(random_.OneIn(3) ? 0 : random_.Between(1, 6));
    prompt.insert(prompt.end(), more.begin(), more.end());
    // One in ten is not cut: if it is too long, it is rejected and nothing more happens to it.
    if (!random_.OneIn(10)) {
      prompt.resize(std::min<int64_t>(std::ssize(prompt), model.max_positions - 1));
    }
    return prompt;
  }

  void Submit(int64_t round) {
    Event event;
    event.kind = Event::Kind::kSubmit;
    event.round = round;
    event.in_step = random_.OneIn(4);
    event.engine = Engine();
    event.about = number_;
    // Tokenization can take time between arrival and submission.
    if (random_.OneIn(6)) event.time = workload_.step_time * random_.Between(1, 20);
    serving::Request& request = event.request;
    request.id = std::to_string(number_);
    request.number = number_;
    request.client = std::string(1, static_cast<char>('A' + random_.Between(0, clients_ - 1)));
    request.priority = random_.Among<serving::Priority>(
        {serving::Priority::kHigh, serving::Priority::kNormal, serving::Priority::kLow});
    request.prompt = Prompt(workload_.engines[event.engine].model);
    request.max_new_tokens = random_.OneIn(12) ? 0 : random_.Between(1, 24);
    if (random_.OneIn(20)) request.max_new_tokens = 1 << 20;
    if (random_.OneIn(4)) {
      request.choices = static_cast<int32_t>(random_.Between(2, 4));
    }
    number_ += request.choices;
    // A higher temperature makes the model's next token less likely.
    request.sampling.temperature = random_.Among<float>({0, 0, 1, 10});
    request.seed = random_();
    if (random_.OneIn(4)) request.stop_tokens = Tokens(2);
    if (random_.OneIn(8)) request.stop = {"ab", "c", "fgh"};
    request.include_stop = random_.OneIn(2);
    request.ignore_eos = random_.OneIn(2);
    if (random_.OneIn(4)) request.min_new_tokens = random_.Between(1, 8);
    if (random_.OneIn(6)) request.logprobs = static_cast<int32_t>(random_.Between(0, 2));
    // Log-probabilities show the bits of a real model.
    if (add_real_model_ != nullptr) request.logprobs = 2;
    if (random_.OneIn(8) || request.max_new_tokens == 0) {
      request.prompt_logprobs = static_cast<int32_t>(random_.Between(0, 2));
    }
    request.share_prefix = !random_.OneIn(8);
    if (random_.OneIn(8)) request.most_drafted = static_cast<int32_t>(random_.Between(0, 3));
    asked_.push_back(workload_.events.size());
    workload_.events.push_back(event);
    if (random_.OneIn(3)) Cancel(event);
  }

  void Cancel(const Event& submit) {
    Event event;
    event.round = submit.round;
    event.engine = submit.engine;
    event.about = submit.about;
    switch (random_.Between(0, 2)) {
      case 0:
        event.kind = Event::Kind::kCancel;
        event.round += random_.OneIn(4) ? 0 : random_.Between(0, 30);
        event.in_step = random_.OneIn(2);
        break;
      case 1:
        event.kind = Event::Kind::kCancelAtToken;
        event.count = random_.Between(0, 10);
        break;
      case 2:
        event.kind = Event::Kind::kDeadline;
        event.time = workload_.step_time * random_.Between(0, 40);
        break;
    }
    workload_.events.push_back(event);
  }

  void Disturb() {
    Event event;
    event.round = random_.Between(0, rounds_ + 20);
    event.engine = Engine();
    event.in_step = random_.OneIn(2);
    switch (random_.Between(0, 9)) {
      case 0:
      case 1:
      case 2:
      case 3:
        event.kind = Event::Kind::kFailStep;
        event.failure = random_.Among<Event::Failure>(
            {Event::Failure::kBeforeRows, Event::Failure::kAfterRows, Event::Failure::kOutOfMemory,
             Event::Failure::kNotFinite});
        break;
      case 4:
      case 5:
        event.kind = Event::Kind::kSlowStep;
        event.time = milliseconds(random_.Between(1, 20'000));
        break;
      case 6:
        event.kind = Event::Kind::kClockJump;
        event.time = milliseconds(random_.Between(1, 100'000));
        break;
      case 7:
      case 8:
        event.kind = Event::Kind::kSwap;
        event.shape = Shape();
        break;
      case 9:
        event.kind = Event::Kind::kCancelAll;
        break;
    }
    workload_.events.push_back(event);
  }

  int Engine() { return static_cast<int>(random_.Between(0, std::ssize(workload_.engines) - 1)); }

  Random random_;
  const AddRealModel add_real_model_;
  Workload workload_;
  std::vector<std::vector<int32_t>> documents_;
  int64_t clients_ = 1, rounds_ = 1;
  uint64_t number_ = 1;
  std::vector<size_t> asked_;  // indices of kSubmit events
};

const char* Name(serving::Priority priority) {
  switch (priority) {
    case serving::Priority::kHigh:
      return "high";
    case serving::Priority::kNormal:
      return "normal";
    case serving::Priority::kLow:
      return "low";
  }
  return "";
}

const char* Name(Event::Failure failure) {
  switch (failure) {
    case Event::Failure::kBeforeRows:
      return "before it writes rows";
    case Event::Failure::kAfterRows:
      return "after it has written rows";
    case Event::Failure::kOutOfMemory:
      return "for want of memory";
    case Event::Failure::kNotFinite:
      return "with logits that are not finite for one sequence";
  }
  return "";
}

double Seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

void Describe(const serving::Request& request, std::ostream& out) {
  out << "client " << request.client << ", " << Name(request.priority) << ", prompt";
  for (const int32_t token : request.prompt) out << ' ' << token;
  out << ", at most " << request.max_new_tokens << " new tokens";
  if (request.min_new_tokens > 0) out << ", at least " << request.min_new_tokens;
  if (request.choices > 1) out << ", " << request.choices << " choices";
  out << ", temperature " << request.sampling.temperature << ", seed " << request.seed;
  for (const int32_t token : request.stop_tokens) out << ", stop token " << token;
  for (const std::string& stop : request.stop) out << ", stop " << stop;
  if (request.include_stop) out << ", include stop";
  if (request.ignore_eos) out << ", ignore end";
  if (request.logprobs) out << ", logprobs " << *request.logprobs;
  if (request.prompt_logprobs) out << ", prompt logprobs " << *request.prompt_logprobs;
  if (!request.share_prefix) out << ", bypass prefix cache";
  if (request.most_drafted < serving::kMostDrafted) out << ", drafts " << request.most_drafted;
}

}  // namespace

uint64_t Random::operator()() {
  uint64_t x = state_ += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

Workload MakeWorkload(uint64_t seed, AddRealModel add_real_model) {
  return Maker(seed, add_real_model).Make();
}

std::string Describe(const EngineShape& shape) {
  std::ostringstream out;
  const ModelShape& model = shape.model;
  const serving::EngineOptions& options = shape.options;
  if (model.real) out << model.real_name << ", ";
  out << model.blocks << " blocks of " << model.block_positions << " positions, context "
      << model.max_positions << ", expands ";
  if (model.expand_from) {
    out << "from " << *model.expand_from;
  } else {
    out << "never";
  }
  if (model.windowed_layers > 0) {
    out << ", " << model.full_layers << " full layers and " << model.windowed_layers
        << " with a window of " << model.window;
  }
  out << ", prefix cache " << (options.prefix_cache ? "on" : "off") << ", batch "
      << options.max_batch_tokens << ", running " << options.max_running << ", waiting "
      << options.max_waiting << ", waiting tokens " << options.max_waiting_tokens
      << ", queue timeout " << options.queue_timeout.count() << " ms, slowdown "
      << options.max_slowdown;
  if (options.speculation != serving::Speculation::kOff) {
    out << ", drafts "
        << (options.speculation == serving::Speculation::kAlways ? "always" : "where it pays")
        << " with " << shape.wrong_drafts << " of ten tokens wrong"
        << (shape.draft_model ? ", and a draft model" : "");
  }
  return out.str();
}

std::string Describe(const Event& event) {
  std::ostringstream out;
  out << "round " << event.round << (event.in_step ? ", in the step: " : ": ");
  switch (event.kind) {
    case Event::Kind::kSubmit:
      out << "submit " << event.about << " to engine " << event.engine << ": ";
      Describe(event.request, out);
      if (event.time.count() > 0) out << ", arrived " << Seconds(event.time) << " s before";
      break;
    case Event::Kind::kCancel:
      out << "cancel " << event.about;
      break;
    case Event::Kind::kCancelAtToken:
      out << "cancel " << event.about << " once it has " << event.count << " tokens";
      break;
    case Event::Kind::kDeadline:
      out << "deadline of " << event.about << " is " << Seconds(event.time) << " s after now";
      break;
    case Event::Kind::kFailStep:
      out << "the next step of engine " << event.engine << " fails " << Name(event.failure);
      break;
    case Event::Kind::kSlowStep:
      out << "the next step of engine " << event.engine << " takes " << Seconds(event.time)
          << " s longer";
      break;
    case Event::Kind::kClockJump:
      out << "the clock jumps by " << Seconds(event.time) << " s";
      break;
    case Event::Kind::kSwap:
      out << "engine " << event.engine << " drains, then: " << Describe(event.shape);
      break;
    case Event::Kind::kCancelAll:
      out << "cancel all of engine " << event.engine;
      break;
  }
  return out.str();
}

}  // namespace triptych::simulation
