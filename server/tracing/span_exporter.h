// Export of spans to an OpenTelemetry collector, in the background.
#ifndef TRIPTYCH_SERVER_TRACING_SPAN_EXPORTER_H_
#define TRIPTYCH_SERVER_TRACING_SPAN_EXPORTER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "server/core/stats/request_summary.h"
#include "server/tracing/spans.h"
#include "server/tracing/tracing_options.h"

namespace triptych::server {

// Sends the spans of finished requests in batches: every second, or at kBatch requests. Without an
// answer of status 2xx within kTimeout, a batch is lost; redirects are not followed. More than
// kMaxWaiting requests do not wait: the later ones are lost. A line of the log tells losses, at
// most once in a minute. Thread-safe.
class SpanExporter {
 public:
  static constexpr size_t kBatch = 512;
  static constexpr size_t kMaxWaiting = 4096;
  static constexpr std::chrono::seconds kTimeout{3};

  explicit SpanExporter(TracingOptions options);
  // Sends what waits, at most a batch, within two seconds after the batch that is being sent. A
  // search for the collector's address may take longer.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Takes a request that has just ended. Does not block on the network.
  void Add(const RequestSummary& summary) TRIPTYCH_EXCLUDES(mutex_);

 private:
  void Run() TRIPTYCH_EXCLUDES(mutex_);
  // Sends a batch; returns what went wrong, or "".
  std::string Send(const std::vector<TracedRequest>& batch, std::chrono::seconds timeout) const;
  void LogLosses(int64_t lost, const std::string& why);

  const TracingOptions options_;
  Mutex mutex_;
  CondVar changed_;
  TraceIds ids_ TRIPTYCH_GUARDED_BY(mutex_);
  std::vector<TracedRequest> waiting_ TRIPTYCH_GUARDED_BY(mutex_);
  int64_t overflow_ TRIPTYCH_GUARDED_BY(mutex_) = 0;  // requests lost for lack of room
  bool stopping_ TRIPTYCH_GUARDED_BY(mutex_) = false;
  // Used by the thread only.
  int64_t unreported_ = 0;  // requests lost since the last line of the log
  std::string why_;         // the latest reason
  std::chrono::steady_clock::time_point next_report_{};
  std::thread thread_;  // last: uses the members above
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_TRACING_SPAN_EXPORTER_H_
