#include "server/tracing/spans.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/base/quoted.h"

namespace triptych::server {
namespace {

using Json = nlohmann::ordered_json;
using TimePoint = std::chrono::system_clock::time_point;

// Numbers in the protocol's enumerations.
constexpr int kInternal = 1, kServer = 2, kError = 2;

Json Attribute(const char* key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
// 64-bit integers are strings in the JSON of Protocol Buffers.
Json Attribute(const char* key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

std::string Nanoseconds(TimePoint time) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

std::string Hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// The id of a request's `index`-th child span: distinct within the trace, as ids are random.
std::string ChildId(const std::string& parent, uint64_t index) {
  return Hex(std::stoull(parent, nullptr, 16) ^ (0x9e3779b97f4a7c15u * (index + 1)));
}

Json Span(const TracedRequest& request, const std::string& id, const std::string& parent,
          const std::string& name, int kind, TimePoint start, TimePoint end) {
  Json span = {{"traceId", request.trace_id}, {"spanId", id}};
  if (!parent.empty()) span["parentSpanId"] = parent;
  span["name"] = name;
  span["kind"] = kind;
  span["startTimeUnixNano"] = Nanoseconds(start);
  span["endTimeUnixNano"] = Nanoseconds(std::max(start, end));
  return span;
}

bool IsError(Outcome outcome) {
  switch (outcome) {
    case Outcome::kStop:
    case Outcome::kLength:
    case Outcome::kScored:
    case Outcome::kCancelled:  // by the client
      return false;
    case Outcome::kSlowReader:
    case Outcome::kFailed:
    case Outcome::kRefused:
    case Outcome::kInvalid:
      return true;
  }
  return false;
}

void AddSpans(const TracedRequest& request, Json& spans) {
  const RequestSummary& summary = request.summary;
  const serving::RequestUsage& usage = summary.usage;
  const auto at = [&](std::chrono::nanoseconds after_arrival) {
    return request.end -
           std::chrono::duration_cast<TimePoint::duration>(usage.total_time - after_arrival);
  };
  const TimePoint arrival = at({});
  const std::string operation = summary.scores ? "score" : "text_completion";
  Json span = Span(request, request.span_id, request.parent, operation + ' ' + summary.model,
                   kServer, arrival, request.end);
  Json attributes = {Attribute("gen_ai.operation.name", operation),
                     Attribute("gen_ai.request.model", summary.model),
                     Attribute("gen_ai.response.id", summary.id),
                     Attribute("enduser.id", Printable(summary.client)),
                     Attribute("triptych.outcome", std::string(Name(summary.outcome)))};
  if (!summary.refused) {
    attributes.insert(
        attributes.end(),
        {Attribute("gen_ai.usage.input_tokens", usage.prompt_tokens),
         Attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_prompt_tokens),
         Attribute("gen_ai.usage.output_tokens", usage.generated_tokens),
         Attribute("triptych.preemptions", usage.preemptions),
         Attribute("kv.bytes.used", usage.kv_cache.used_bytes),
         Attribute("kv.bytes.reserved", usage.kv_cache.peak_allocated_bytes),
         Attribute("kv.bytes.as_mha", usage.kv_cache.mha_used_bytes)});
  }
  if (IsError(summary.outcome)) {
    attributes.push_back(Attribute("error.type", summary.end));
    span["status"] = {{"code", kError}, {"message", summary.end}};
  }
  span["attributes"] = std::move(attributes);
  spans.push_back(std::move(span));
  if (summary.refused) return;

  uint64_t index = 0;
  const auto add = [&](const char* name, std::chrono::nanoseconds from,
                       std::chrono::nanoseconds to) {
    spans.push_back(Span(request, ChildId(request.span_id, index++), request.span_id, name,
                         kInternal, at(from), at(std::min(to, usage.total_time))));
  };
  const auto queued = std::min(usage.queue_time, usage.total_time);
  add("queue", {}, queued);
  if (usage.prefill_time.count() == 0) return;
  const auto first = std::clamp(usage.first_token_time.value_or(queued + usage.prefill_time),
                                queued, usage.total_time);
  add("prefill", queued, first);
  if (usage.generated_tokens > 1) add("decode", first, first + usage.decode_time);
}

}  // namespace

std::string TraceIds::Id(int digits) {
  std::string id;
  while (static_cast<int>(id.size()) < digits) {
    const uint64_t number = random_();
    if (number != 0) id += Hex(number);
  }
  return id;
}

std::optional<TracedRequest> TraceIds::Trace(const RequestSummary& summary, TimePoint end) {
  TracedRequest traced{.summary = {}, .end = end, .trace_id = {}, .span_id = {}, .parent = {}};
  const std::string_view parent = summary.traceparent;  // VERSION-TRACEID-PARENTID-FLAGS
  bool sampled = false;
  if (!parent.empty()) {
    traced.trace_id = parent.substr(3, 32);
    traced.parent = parent.substr(36, 16);
    const int flags = std::stoi(std::string(parent.substr(53, 2)), nullptr, 16);
    sampled = flags % 2 == 1;
  } else {
    traced.trace_id = Id(32);
  }
  if (parent.empty() || !sampler_.follows_parent) {
    const uint64_t low = std::stoull(traced.trace_id.substr(18), nullptr, 16);
    sampled = static_cast<double>(low) < sampler_.ratio * 0x1p56;
  }
  if (!sampled) return std::nullopt;
  traced.span_id = Id(16);
  traced.summary = summary;
  return traced;
}

std::string ExportRequest(std::span<const TracedRequest> requests, const std::string& service_name,
                          const std::string& version) {
  Json spans = Json::array();
  for (const TracedRequest& request : requests) AddSpans(request, spans);
  const Json resource = {
      {"attributes",
       {Attribute("service.name", service_name), Attribute("service.version", version)}}};
  const Json scope = {{"name", "triptych"}, {"version", version}};
  const Json scope_spans = Json::array({{{"scope", scope}, {"spans", std::move(spans)}}});
  const Json all = {
      {"resourceSpans", Json::array({{{"resource", resource}, {"scopeSpans", scope_spans}}})}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace triptych::server
