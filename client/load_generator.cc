#include "client/load_generator.h"

#include <algorithm>
#include <utility>

namespace triptych::client {
namespace {

constexpr double kPauseAfterFailure = 0.1;  // seconds
constexpr double kProgressInterval = 1;     // seconds

}  // namespace

void StreamTimes::OnMessage(double now, int32_t tokens) {
  if (tokens == 0) return;
  if (tokens_ == 0) {
    first_ = now;
  } else {
    gaps_.push_back({static_cast<float>(now - last_), tokens});
  }
  last_ = now;
  tokens_ += tokens;
}

void StreamTimes::AddTo(double end, SampleSet& time_to_first_token, SampleSet& inter_token,
                        SampleSet& message_gap, SampleSet& end_to_end) const {
  if (tokens_ > 0) time_to_first_token.Add(first_ - scheduled_);
  for (const Gap& gap : gaps_) {
    inter_token.Add(gap.seconds / gap.tokens, gap.tokens);
    message_gap.Add(gap.seconds);
  }
  end_to_end.Add(end - scheduled_);
}

// One request in flight. gRPC calls its reactions one at a time.
class LoadGenerator::Stream : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Stream(LoadGenerator& generator, int64_t index, double scheduled, PlannedRequest planned)
      : generator_(generator), index_(index), planned_(std::move(planned)), times_(scheduled) {}

  void Start(Client& client) {
    if (planned_.deadline) {
      context_.set_deadline(std::chrono::system_clock::now() + *planned_.deadline);
    }
    client.Generate(&context_, &planned_.request, this);
    StartRead(&response_);
    StartCall();
  }
  // Callable from any thread after Start. `as_planned`: by the load's plan.
  void Cancel(bool as_planned) {
    if (as_planned) cancelled_as_planned_ = true;
    context_.TryCancel();
    ReadOn();
  }
  // Ends a stall: reads again. Callable from any thread.
  void ReadOn() {
    if (!stalled_.exchange(false)) return;
    StartRead(&response_);
    RemoveHold();
  }
  bool cancelled_as_planned() const { return cancelled_as_planned_; }

  int64_t index() const { return index_; }
  const PlannedRequest& planned() const { return planned_; }
  // Only when no more messages arrive.
  const StreamTimes& times() const { return times_; }
  const std::optional<v1::Completion>& completion() const { return completion_; }
  std::vector<int32_t>& output() { return output_; }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const int32_t tokens = response_.token_ids_size();
    times_.OnMessage(generator_.Now(), tokens);
    generator_.generated_tokens_ += tokens;
    if (generator_.keep_outputs_) {
      output_.insert(output_.end(), response_.token_ids().begin(), response_.token_ids().end());
    }
    if (response_.has_completion()) {
      completion_ = std::move(*response_.mutable_completion());
    } else if (planned_.cancel && planned_.cancel->tokens > 0 &&
               times_.tokens() >= planned_.cancel->tokens) {
      Cancel(/*as_planned=*/true);
    }
    if (planned_.stalls && !std::exchange(has_stalled_, true)) {
      AddHold();  // without a read in progress, only a hold delays OnDone
      stalled_ = true;
      if (!generator_.PlanReadOn(index_)) ReadOn();
    } else {
      StartRead(&response_);
    }
  }

  void OnDone(const grpc::Status& status) override { generator_.Finish(*this, status); }

 private:
  LoadGenerator& generator_;
  const int64_t index_;
  const PlannedRequest planned_;
  StreamTimes times_;
  std::optional<v1::Completion> completion_;
  std::vector<int32_t> output_;
  bool has_stalled_ = false;
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  std::atomic<bool> cancelled_as_planned_ = false;
  std::atomic<bool> stalled_ = false;
};

LoadGenerator::LoadGenerator(const Workload& workload, std::vector<Client*> clients,
                             const LoadPace& pace, bool keep_outputs)
    : workload_(workload),
      clients_(std::move(clients)),
      pace_(pace),
      keep_outputs_(keep_outputs),
      arrivals_(pace.rate.value_or(1), workload.options().seed) {}

LoadGenerator::~LoadGenerator() = default;

double LoadGenerator::Now() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

LoadResults LoadGenerator::Run(const std::function<void(const LoadProgress&)>& on_progress) {
  start_ = Clock::now();
  {
    const MutexLock lock(mutex_);
    const int32_t first = pace_.rate ? 1 : pace_.concurrency;
    for (int32_t i = 0; i < first; ++i) PlanStart(pace_.rate ? arrivals_.Next() : 0);
  }
  double next_progress = kProgressInterval;
  while (WaitUntil(next_progress)) {
    for (const Event& event : TakeDueEvents()) {
      if (event.action == Action::kStart) {
        Start(event.time);
      } else if (const auto stream = Find(event.index)) {
        if (event.action == Action::kCancel) {
          stream->Cancel(/*as_planned=*/true);  // may call OnDone on this thread
        } else {
          stream->ReadOn();
        }
      }
    }
    if (Now() >= next_progress) {
      on_progress(Progress());
      next_progress = Now() + kProgressInterval;
    }
  }
  const MutexLock lock(mutex_);
  results_.seconds = Now();
  results_.generated_tokens = generated_tokens_;
  return std::move(results_);
}

void LoadGenerator::Interrupt() {
  const MutexLock lock(mutex_);
  interrupted_ = true;
  changed_.NotifyAll();
}

void LoadGenerator::PlanStart(double time) {
  if (pace_.requests && results_.started + planned_starts_ >= *pace_.requests) return;
  if (pace_.duration && time >= *pace_.duration) return;
  ++planned_starts_;
  events_.push({.time = time});
  changed_.NotifyAll();
}

bool LoadGenerator::Ended() const {
  return live_.empty() && (interrupted_ || planned_starts_ == 0);
}

bool LoadGenerator::WaitUntil(double time) {
  bool interrupted = false;
  {
    const MutexLock lock(mutex_);
    while (!Ended()) {
      const double next = events_.empty() ? time : std::min(time, events_.top().time);
      if (interrupted_ || next <= Now()) break;
      const auto wait =
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(next));
      changed_.WaitUntil(mutex_, start_ + wait);
    }
    if (Ended()) return false;
    interrupted = interrupted_;
  }
  if (interrupted) CancelAll();
  return true;
}

std::vector<LoadGenerator::Event> LoadGenerator::TakeDueEvents() {
  const MutexLock lock(mutex_);
  std::vector<Event> due;
  for (const double now = Now(); !events_.empty() && events_.top().time <= now; events_.pop()) {
    due.push_back(events_.top());
  }
  return due;
}

void LoadGenerator::Start(double scheduled) {
  int64_t index = 0;
  {
    const MutexLock lock(mutex_);
    --planned_starts_;
    if (interrupted_) return;
    index = results_.started++;
    if (pace_.rate) PlanStart(arrivals_.Next());
  }
  const auto stream = std::make_shared<Stream>(*this, index, scheduled, workload_.Make(index));
  {
    const MutexLock lock(mutex_);
    live_[index] = stream;
    const double now = Now();
    results_.start_delay.Add(now - scheduled);
    if (stream->planned().shortened) ++results_.shortened;
    if (stream->planned().cancel && stream->planned().cancel->tokens == 0) {
      const double expected = results_.time_to_first_token.mean();
      events_.push(
          {now + stream->planned().cancel->before_first_token * expected, Action::kCancel, index});
    }
  }
  stream->Start(*clients_[static_cast<size_t>(index) % clients_.size()]);
}

std::shared_ptr<LoadGenerator::Stream> LoadGenerator::Find(int64_t index) {
  const MutexLock lock(mutex_);
  const auto found = live_.find(index);
  return found != live_.end() ? found->second : nullptr;
}

bool LoadGenerator::PlanReadOn(int64_t index) {
  const MutexLock lock(mutex_);
  if (interrupted_) return false;
  events_.push({Now() + pace_.stall, Action::kReadOn, index});
  changed_.NotifyAll();
  return true;
}

void LoadGenerator::CancelAll() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const MutexLock lock(mutex_);
    for (const auto& [index, stream] : live_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->Cancel(/*as_planned=*/false);
  streams.clear();
  const MutexLock lock(mutex_);
  while (!Ended()) changed_.Wait(mutex_);
}

void LoadGenerator::Finish(Stream& stream, const grpc::Status& status) {
  std::shared_ptr<Stream> last;  // deletes the stream outside of the lock
  const MutexLock lock(mutex_);
  const double now = Now();
  const bool complete = status.ok() && stream.completion();
  const bool cancelled = status.error_code() == grpc::StatusCode::CANCELLED;
  bool failed = false;
  if (complete) {
    ++results_.completed;
    stream.times().AddTo(now, results_.time_to_first_token, results_.inter_token,
                         results_.message_gap, results_.end_to_end);
    const v1::Usage& usage = stream.completion()->usage();
    const v1::KvCacheUsage& cache = usage.kv_cache();
    results_.cached_prompt_tokens += usage.cached_prompt_tokens();
    results_.preemptions += usage.preemptions();
    results_.used_bytes.Add(static_cast<double>(cache.used_bytes()));
    results_.peak_allocated_bytes.Add(static_cast<double>(cache.peak_allocated_bytes()));
    results_.own_bytes.Add(static_cast<double>(cache.own_bytes()));
    results_.shared_bytes.Add(static_cast<double>(cache.shared_bytes()));
    if (keep_outputs_) results_.outputs.emplace(stream.index(), std::move(stream.output()));
  } else if (cancelled && stream.cancelled_as_planned()) {
    ++results_.cancelled;
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
             stream.planned().deadline) {
    ++results_.expired;
  } else if (cancelled && interrupted_) {
    ++results_.interrupted;
  } else {
    failed = true;
    ++results_.failed;
    if (stream.times().tokens() > 0) ++results_.truncated;
    const grpc::Status error =
        status.ok() ? grpc::Status(grpc::StatusCode::UNKNOWN,
                                   "the server ended the stream without a completion")
                    : status;
    LoadErrors& errors = results_.errors[error.error_code()];
    if (errors.count++ == 0) errors.first = error;
  }
  if (stream.times().tokens() > 0) {
    results_.prompt_tokens += stream.planned().request.tokens().ids_size();
  }
  if (!pace_.rate) PlanStart(failed ? now + kPauseAfterFailure : now);
  const auto found = live_.find(stream.index());
  last = std::move(found->second);
  live_.erase(found);
  changed_.NotifyAll();
}

LoadProgress LoadGenerator::Progress() {
  const MutexLock lock(mutex_);
  return {.seconds = Now(),
          .completed = results_.completed,
          .cancelled = results_.cancelled + results_.expired,
          .failed = results_.failed,
          .live = static_cast<int64_t>(live_.size()),
          .generated_tokens = generated_tokens_};
}

}  // namespace triptych::client
