#include "server/core/request_summary.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>

#include "engine/base/quoted.h"

namespace triptych {

std::string RequestSummary::Text() const {
  const std::string head =
      fmt::format("request {} of {} on {}: {}", id, Printable(client), model, end);
  if (refused) return head;
  const auto ms = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  return fmt::format(
      "{}; tokens: prompt {}, cached {}, generated {}; ms: queue {:.1f}, prefill {:.1f}, decode "
      "{:.1f}; peak cache bytes {}",
      head, usage.prompt_tokens, usage.cached_prompt_tokens, usage.generated_tokens,
      ms(usage.queue_time), ms(usage.prefill_time), ms(usage.decode_time),
      usage.kv_cache.peak_reserved_bytes);
}

void AddUsage(const RequestUsage& usage, bool shares_prompt, RequestUsage& sum) {
  const bool first = sum.prompt_tokens == 0;
  if (first || !shares_prompt) {
    sum.prompt_tokens += usage.prompt_tokens;
    sum.cached_prompt_tokens += usage.cached_prompt_tokens;
  }
  sum.generated_tokens += usage.generated_tokens;
  sum.queue_time = std::max(sum.queue_time, usage.queue_time);
  sum.prefill_time = std::max(sum.prefill_time, usage.prefill_time);
  sum.decode_time = std::max(sum.decode_time, usage.decode_time);
  sum.preemptions += usage.preemptions;
  const KvCacheUsage& one = usage.kv_cache;
  KvCacheUsage& all = sum.kv_cache;
  all.bytes_per_position = one.bytes_per_position;
  all.positions += one.positions;
  all.used_bytes += one.used_bytes;
  all.reserved_bytes += one.reserved_bytes;
  all.peak_reserved_bytes += one.peak_reserved_bytes;
  all.mha_used_bytes += one.mha_used_bytes;
  all.shared_bytes += one.shared_bytes;
  all.own_bytes += one.own_bytes;
}

}  // namespace triptych
