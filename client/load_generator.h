#ifndef TRIPTYCH_CLIENT_LOAD_GENERATOR_H_
#define TRIPTYCH_CLIENT_LOAD_GENERATOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "client/client.h"
#include "client/sample_set.h"
#include "client/workload.h"
#include "engine/base/mutex.h"

namespace triptych::client {

// The messages of one stream, as they arrive. Times in seconds, of one clock.
class StreamTimes {
 public:
  // `scheduled` is when the request was to be sent, whenever it was: what it waited for the load
  // generator or for its connection is time that it took.
  explicit StreamTimes(double scheduled) : scheduled_(scheduled) {}

  // A message of so many tokens, 0 included.
  void OnMessage(double now, int32_t tokens);

  int64_t tokens() const { return tokens_; }
  // Adds what was measured of a request that was complete at `end`.
  void AddTo(double end, SampleSet& time_to_first_token, SampleSet& inter_token,
             SampleSet& message_gap, SampleSet& end_to_end) const;

 private:
  struct Gap {
    float seconds;   // Since the last message with tokens.
    int32_t tokens;  // In this one.
  };

  const double scheduled_;
  double first_ = 0;
  double last_ = 0;
  int64_t tokens_ = 0;
  std::vector<Gap> gaps_;
};

struct LoadErrors {
  int64_t count = 0;
  grpc::Status first;
};

// What came of a load. Every request that was started is in exactly one of completed, cancelled,
// expired, failed and interrupted. Latencies, in seconds, and bytes are those of completed
// requests.
struct LoadResults {
  double seconds = 0;  // From the start to the end of the last request.
  int64_t started = 0;
  int64_t completed = 0;
  int64_t cancelled = 0;    // As planned.
  int64_t expired = 0;      // At the deadline that was planned.
  int64_t failed = 0;       // The sum of `errors`.
  int64_t truncated = 0;    // Of those failed, after some of the output had come.
  int64_t interrupted = 0;  // By Interrupt().
  int64_t shortened = 0;    // Of those started, to the context.
  std::map<grpc::StatusCode, LoadErrors> errors;

  int64_t prompt_tokens = 0;     // Of requests that came to a first token.
  int64_t generated_tokens = 0;  // Received, by whatever request.
  int64_t cached_prompt_tokens = 0;
  int64_t preemptions = 0;

  // From the scheduled time to the first message with tokens.
  SampleSet time_to_first_token;
  // The time between two messages with tokens, divided by the tokens of the second, once for each
  // of these. The tokens that come with the first token count as none.
  SampleSet inter_token;
  // The same, undivided, once for each message: stalls are here.
  SampleSet message_gap;
  SampleSet end_to_end;
  SampleSet start_delay;  // From the scheduled time to the call, of all that were started.

  SampleSet used_bytes;
  SampleSet peak_allocated_bytes;
  SampleSet own_bytes;
  SampleSet shared_bytes;

  // Of completed requests, by index, if they are to be kept.
  std::map<int64_t, std::vector<int32_t>> outputs;
};

// How a load is sent: the first of requests and duration that is reached ends it, and the requests
// under way are waited for.
struct LoadPace {
  // Open loop: so many requests in a second arrive, whatever becomes of those before. Absent:
  // closed loop, in which each of `concurrency` clients sends its next request when the one before
  // has ended, or a tenth of a second after one that failed.
  std::optional<double> rate;
  int32_t concurrency = 1;
  std::optional<int64_t> requests;
  std::optional<double> duration;  // seconds
  double stall = 60;               // Seconds for which a client that stalls takes nothing.
};

// The figures so far.
struct LoadProgress {
  double seconds = 0;
  int64_t completed = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t live = 0;
  int64_t generated_tokens = 0;
};

// Sends a load over gRPC's callbacks, without a thread for each stream.
class LoadGenerator {
 public:
  // Request i goes to client i modulo their number. `workload` and `clients` outlive it.
  LoadGenerator(const Workload& workload, std::vector<Client*> clients, const LoadPace& pace,
                bool keep_outputs = false);
  ~LoadGenerator();
  LoadGenerator(const LoadGenerator&) = delete;
  LoadGenerator& operator=(const LoadGenerator&) = delete;

  // Sends the load and waits for its end. Calls `on_progress` about every second, on this thread;
  // what it takes delays what is to be started. To be called once.
  LoadResults Run(const std::function<void(const LoadProgress&)>& on_progress);

  // Starts nothing more and cancels what is under way. From any thread, before or during Run.
  void Interrupt();

 private:
  using Clock = std::chrono::steady_clock;

  class Stream;
  enum class Action { kStart, kCancel, kReadOn };
  struct Event {
    double time;  // seconds from the start
    Action action = Action::kStart;
    int64_t index = 0;  // of the request, unless it is to be started

    bool operator>(const Event& other) const { return time > other.time; }
  };

  double Now() const;
  void PlanStart(double time) TRIPTYCH_REQUIRES(mutex_);
  bool Ended() const TRIPTYCH_REQUIRES(mutex_);
  // Waits for events that are due, or an interrupt, or the end: then false.
  bool WaitUntil(double time) TRIPTYCH_EXCLUDES(mutex_);
  std::vector<Event> TakeDueEvents() TRIPTYCH_EXCLUDES(mutex_);
  void Start(double scheduled) TRIPTYCH_EXCLUDES(mutex_);
  std::shared_ptr<Stream> Find(int64_t index) TRIPTYCH_EXCLUDES(mutex_);
  // False if it is not to wait, since the load was interrupted.
  bool PlanReadOn(int64_t index) TRIPTYCH_EXCLUDES(mutex_);
  void CancelAll() TRIPTYCH_EXCLUDES(mutex_);
  void Finish(Stream& stream, const grpc::Status& status) TRIPTYCH_EXCLUDES(mutex_);
  LoadProgress Progress() TRIPTYCH_EXCLUDES(mutex_);

  const Workload& workload_;
  const std::vector<Client*> clients_;
  const LoadPace pace_;
  const bool keep_outputs_;
  Clock::time_point start_;
  Arrivals arrivals_;  // Run's thread only.
  std::atomic<int64_t> generated_tokens_ = 0;

  Mutex mutex_;
  CondVar changed_;
  bool interrupted_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_
      TRIPTYCH_GUARDED_BY(mutex_);
  int64_t planned_starts_ TRIPTYCH_GUARDED_BY(mutex_) = 0;  // of events_
  std::unordered_map<int64_t, std::shared_ptr<Stream>> live_ TRIPTYCH_GUARDED_BY(mutex_);
  LoadResults results_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_LOAD_GENERATOR_H_
