#include "server/core/stats/request_summary.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "engine/base/quoted.h"

namespace triptych::server {
namespace {

using Members = nlohmann::ordered_json;

double Ms(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string Head(const RequestSummary& summary) {
  return fmt::format("request {} of {} on {}: {}", summary.id, Printable(summary.client),
                     summary.model, summary.end);
}

// True if a sequence has at least two tokens.
bool HasWaits(const serving::RequestUsage& usage) { return usage.longest_wait.count() > 0; }

}  // namespace

std::string RequestSummary::Text() const {
  std::string text = Head(*this);
  if (!refused) {
    text += fmt::format(
        "; tokens: prompt {}, cached {}, generated {}, drafted {}, accepted {}; ms: queue {:.1f}",
        usage.prompt_tokens, usage.cached_prompt_tokens, usage.generated_tokens,
        usage.drafted_tokens, usage.accepted_tokens, Ms(usage.queue_time));
    if (usage.first_token_time) {
      text += fmt::format(", first token {:.1f}", Ms(*usage.first_token_time));
    }
    if (HasWaits(usage)) {
      text += fmt::format(", between tokens {:.2f}, at most {:.2f}", Ms(usage.mean_wait),
                          Ms(usage.longest_wait));
    }
    text += fmt::format(", end {:.1f}; preemptions {}; cache bytes: used {}, peak {}",
                        Ms(usage.total_time), usage.preemptions, usage.kv_cache.used_bytes,
                        usage.kv_cache.peak_allocated_bytes);
  }
  if (!traceparent.empty()) text += "; traceparent " + traceparent;
  return text;
}

std::string RequestSummary::JsonMembers() const {
  Members json = {{"message", Head(*this)},      {"request_id", id},
                  {"client", Printable(client)}, {"model", model},
                  {"outcome", Name(outcome)},    {"end", end}};
  if (!refused) {
    json["prompt_tokens"] = usage.prompt_tokens;
    json["cached_prompt_tokens"] = usage.cached_prompt_tokens;
    json["generated_tokens"] = usage.generated_tokens;
    json["drafted_tokens"] = usage.drafted_tokens;
    json["accepted_draft_tokens"] = usage.accepted_tokens;
    json["queue_ms"] = Ms(usage.queue_time);
    if (usage.first_token_time) json["time_to_first_token_ms"] = Ms(*usage.first_token_time);
    if (HasWaits(usage)) {
      json["inter_token_mean_ms"] = Ms(usage.mean_wait);
      json["inter_token_max_ms"] = Ms(usage.longest_wait);
    }
    json["end_to_end_ms"] = Ms(usage.total_time);
    json["preemptions"] = usage.preemptions;
    json["kv_cache_used_bytes"] = usage.kv_cache.used_bytes;
    json["kv_cache_peak_allocated_bytes"] = usage.kv_cache.peak_allocated_bytes;
  }
  if (!traceparent.empty()) json["traceparent"] = traceparent;
  const std::string object = json.dump(-1, ' ', false, Members::error_handler_t::replace);
  return object.substr(1, object.size() - 2);
}

Outcome OutcomeOf(const Error& error, bool refused) {
  if (error.code == ErrorCode::kInvalidArgument) return Outcome::kInvalid;
  if (error.code == ErrorCode::kInternal) return Outcome::kFailed;
  if (error.code == ErrorCode::kCancelled) return Outcome::kCancelled;
  if (refused) return Outcome::kRefused;
  // Accepted, and neither failed nor cancelled by its client: a slow reader, or the server's end.
  return error.code == ErrorCode::kResourceExhausted ? Outcome::kSlowReader : Outcome::kCancelled;
}

void AddUsage(const serving::RequestUsage& usage, bool adds_prompt, serving::RequestUsage& sum) {
  if (adds_prompt) {
    sum.prompt_tokens += usage.prompt_tokens;
    sum.cached_prompt_tokens += usage.cached_prompt_tokens;
  }
  sum.generated_tokens += usage.generated_tokens;
  sum.drafted_tokens += usage.drafted_tokens;
  sum.accepted_tokens += usage.accepted_tokens;
  sum.queue_time = std::max(sum.queue_time, usage.queue_time);
  sum.prefill_time = std::max(sum.prefill_time, usage.prefill_time);
  sum.first_token_time = std::max(sum.first_token_time, usage.first_token_time);
  sum.decode_time = std::max(sum.decode_time, usage.decode_time);
  sum.mean_wait = std::max(sum.mean_wait, usage.mean_wait);
  sum.longest_wait = std::max(sum.longest_wait, usage.longest_wait);
  sum.total_time = std::max(sum.total_time, usage.total_time);
  sum.preemptions += usage.preemptions;
  const KvCacheUsage& one = usage.kv_cache;
  KvCacheUsage& all = sum.kv_cache;
  all.bytes_per_position = one.bytes_per_position;
  all.positions += one.positions;
  all.used_bytes += one.used_bytes;
  all.allocated_bytes += one.allocated_bytes;
  all.peak_allocated_bytes += one.peak_allocated_bytes;
  all.mha_used_bytes += one.mha_used_bytes;
  all.shared_bytes += one.shared_bytes;
  all.own_bytes += one.own_bytes;
}

}  // namespace triptych::server
