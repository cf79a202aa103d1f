// Load generator of `triptych bench`.
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

// Arrival times of one stream's messages, in seconds of one clock.
class StreamTimes {
 public:
  // `scheduled`: the planned time of the request. A delay by the load generator or the connection
  // counts as latency.
  explicit StreamTimes(double scheduled) : scheduled_(scheduled) {}

  // Records a message with `tokens` tokens, which may be 0.
  void OnMessage(double now, int32_t tokens);

  int64_t tokens() const { return tokens_; }
  // Adds the latencies of a request that was complete at `end`.
  void AddTo(double end, SampleSet& time_to_first_token, SampleSet& inter_token,
             SampleSet& message_gap, SampleSet& end_to_end) const;

 private:
  struct Gap {
    float seconds;   // since the previous message with tokens
    int32_t tokens;  // in this message
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

// Results of a load. Each started request counts in exactly one of completed, cancelled, expired,
// failed and interrupted. Latencies (in seconds) and bytes are those of completed requests.
struct LoadResults {
  double seconds = 0;  // from the start to the end of the last request
  int64_t started = 0;
  int64_t completed = 0;
  int64_t cancelled = 0;    // as planned
  int64_t expired = 0;      // at its planned deadline
  int64_t failed = 0;       // the sum of `errors`
  int64_t truncated = 0;    // failed ones that had delivered some of the output
  int64_t interrupted = 0;  // by Interrupt()
  int64_t shortened = 0;    // started ones shortened to fit the context
  std::map<grpc::StatusCode, LoadErrors> errors;

  int64_t prompt_tokens = 0;     // of requests with a first token
  int64_t generated_tokens = 0;  // received, by all requests
  int64_t cached_prompt_tokens = 0;
  int64_t preemptions = 0;

  // From the scheduled time to the first message with tokens.
  SampleSet time_to_first_token;
  // The time between two messages with tokens, divided by the number of tokens in the second, once
  // for each of them. Tokens in the same message as the first token do not count.
  SampleSet inter_token;
  // The same, undivided, once for each message: shows stalls.
  SampleSet message_gap;
  SampleSet end_to_end;
  SampleSet start_delay;  // from the scheduled time to the call, of all started requests

  SampleSet used_bytes;
  SampleSet peak_allocated_bytes;
  SampleSet own_bytes;
  SampleSet shared_bytes;

  // Tokens of completed requests by index, if `keep_outputs`.
  std::map<int64_t, std::vector<int32_t>> outputs;
};

// Pace and end of a load. It ends when `requests` or `duration` is reached, and waits for the
// requests in flight.
struct LoadPace {
  // Open loop: arrivals per second, independent of earlier requests. Absent: closed loop, in which
  // each of `concurrency` clients sends its next request when the previous one ends, or 0.1 s after
  // one that failed.
  std::optional<double> rate;
  int32_t concurrency = 1;
  std::optional<int64_t> requests;
  std::optional<double> duration;  // seconds
  double stall = 60;               // seconds without reads of a client that stalls
};

// Results so far.
struct LoadProgress {
  double seconds = 0;
  int64_t completed = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t live = 0;
  int64_t generated_tokens = 0;
};

// Sends a load through gRPC's callback API, without a thread per stream.
class LoadGenerator {
 public:
  // Request i goes to client i modulo the number of clients. `workload` and `clients` must outlive
  // this.
  LoadGenerator(const Workload& workload, std::vector<Client*> clients, const LoadPace& pace,
                bool keep_outputs = false);
  ~LoadGenerator();
  LoadGenerator(const LoadGenerator&) = delete;
  LoadGenerator& operator=(const LoadGenerator&) = delete;

  // Sends the load and waits for its end. Calls `on_progress` about every second on this thread;
  // its duration delays requests. Call only once.
  LoadResults Run(const std::function<void(const LoadProgress&)>& on_progress);

  // Starts no more requests, and cancels those in flight. Callable from any thread, before or
  // during Run.
  void Interrupt();

 private:
  using Clock = std::chrono::steady_clock;

  class Stream;
  enum class Action { kStart, kCancel, kReadOn };
  struct Event {
    double time;  // seconds from the start
    Action action = Action::kStart;
    int64_t index = 0;  // of the request, unless kStart

    bool operator>(const Event& other) const { return time > other.time; }
  };

  double Now() const;
  void PlanStart(double time) TRIPTYCH_REQUIRES(mutex_);
  bool Ended() const TRIPTYCH_REQUIRES(mutex_);
  // Waits until `time`, an event is due or an interrupt. False at the end of the load.
  bool WaitUntil(double time) TRIPTYCH_EXCLUDES(mutex_);
  std::vector<Event> TakeDueEvents() TRIPTYCH_EXCLUDES(mutex_);
  void Start(double scheduled) TRIPTYCH_EXCLUDES(mutex_);
  std::shared_ptr<Stream> Find(int64_t index) TRIPTYCH_EXCLUDES(mutex_);
  // False if the load was interrupted: the stream must not wait.
  bool PlanReadOn(int64_t index) TRIPTYCH_EXCLUDES(mutex_);
  void CancelAll() TRIPTYCH_EXCLUDES(mutex_);
  void Finish(Stream& stream, const grpc::Status& status) TRIPTYCH_EXCLUDES(mutex_);
  LoadProgress Progress() TRIPTYCH_EXCLUDES(mutex_);

  const Workload& workload_;
  const std::vector<Client*> clients_;
  const LoadPace pace_;
  const bool keep_outputs_;
  Clock::time_point start_;
  Arrivals arrivals_;  // only on Run's thread
  std::atomic<int64_t> generated_tokens_ = 0;

  Mutex mutex_;
  CondVar changed_;
  bool interrupted_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_
      TRIPTYCH_GUARDED_BY(mutex_);
  int64_t planned_starts_ TRIPTYCH_GUARDED_BY(mutex_) = 0;  // number of kStart in events_
  std::unordered_map<int64_t, std::shared_ptr<Stream>> live_ TRIPTYCH_GUARDED_BY(mutex_);
  LoadResults results_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_LOAD_GENERATOR_H_
