// Spans of a finished request, by OpenTelemetry's data model.
#ifndef TRIPTYCH_SERVER_TRACING_SPANS_H_
#define TRIPTYCH_SERVER_TRACING_SPANS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>

#include "server/core/stats/request_summary.h"
#include "server/tracing/tracing_options.h"

namespace triptych::server {

// A finished request that is part of a trace.
struct TracedRequest {
  RequestSummary summary;
  std::chrono::system_clock::time_point end;
  std::string trace_id;  // 32 hexadecimal digits
  std::string span_id;   // 16 hexadecimal digits: of the request's own span
  std::string parent;    // likewise; empty if the trace begins here
};

// Draws ids and chooses the requests that have spans. Not thread-safe.
class TraceIds {
 public:
  TraceIds(const TraceSampler& sampler, uint64_t seed) : sampler_(sampler), random_(seed) {}
  // The request's place in a trace: below its traceparent, or in a new one. Absent if it is not
  // sampled. A new trace is sampled by the low 56 bits of its id, as W3C Trace Context proposes.
  std::optional<TracedRequest> Trace(const RequestSummary& summary,
                                     std::chrono::system_clock::time_point end);

 private:
  std::string Id(int digits);

  const TraceSampler sampler_;
  std::mt19937_64 random_;
};

// An ExportTraceServiceRequest of OTLP, in JSON (https://opentelemetry.io/docs/specs/otlp). A
// request has a span of kind SERVER from its arrival to its end. Its children are "queue",
// "prefill" and "decode", one after the other; each ends at the latest time of all choices.
// Attributes follow OpenTelemetry's conventions for generative AI. In addition, kv.bytes.used,
// kv.bytes.reserved and kv.bytes.as_mha are RequestUsage's bytes: used, peak allocated, and used if
// every layer were MHA. No attribute holds a prompt or an output.
std::string ExportRequest(std::span<const TracedRequest> requests, const std::string& service_name,
                          const std::string& version);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_TRACING_SPANS_H_
