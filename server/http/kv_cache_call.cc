#include "server/http/kv_cache_call.h"

#include <chrono>
#include <cstdint>
#include <iterator>
#include <vector>

#include "engine/base/version.h"
#include "engine/serving/block_map.h"
#include "server/core/error.h"
#include "server/core/requests/validation.h"
#include "server/http/completion_answer.h"
#include "server/http/error_response.h"

namespace triptych::server {
namespace {

const char* Name(serving::SequenceState state) {
  switch (state) {
    case serving::SequenceState::kWaiting:
      return "waiting";
    case serving::SequenceState::kPrefill:
      return "prefill";
    case serving::SequenceState::kDecode:
      return "decode";
  }
  return "";
}

// Memory of a sequence with its strings, until it is serialized.
constexpr int64_t kSequenceBytes = 2 * sizeof(LiveSequence);

double Seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

JsonOutput ToJson(const serving::RequestCounts& counts) {
  return {{"accepted", counts.accepted},
          {"refused", counts.refused},
          {"finished", counts.finished},
          {"cancelled", counts.cancelled},
          {"failed", counts.failed},
          {"prompt_tokens", counts.prompt_tokens},
          {"cached_prompt_tokens", counts.cached_prompt_tokens},
          {"generated_tokens", counts.generated_tokens},
          {"sampled_tokens", counts.sampled_tokens},
          {"first_tokens", counts.first_tokens},
          {"first_token_time", Seconds(counts.first_token_time)}};
}

JsonOutput ToJson(const std::string& model, const serving::BlockMap& map,
                  const std::vector<serving::SequenceStats>& holders) {
  JsonOutput json = {{"cell_blocks", map.cell_blocks}};
  for (const char* name : {"holders", "cells", "holder", "allocated", "shared", "evictable"}) {
    json[name] = JsonOutput::array();
  }
  for (const serving::SequenceStats& holder : holders) {
    json["holders"].push_back(ToJson(LiveSequence{.model = model, .stats = holder}));
  }
  for (const auto& [cells, cell] : map.runs) {
    json["cells"].push_back(cells);
    json["holder"].push_back(cell.holder);
    json["allocated"].push_back(cell.allocated);
    json["shared"].push_back(cell.shared);
    json["evictable"].push_back(cell.evictable);
  }
  return json;
}

JsonOutput ToJson(const ModelStats& model) {
  const serving::KvCacheStats& stats = model.kv_cache;
  JsonOutput json = {{"model", model.model},
                     {"pool_bytes", stats.pool_bytes},
                     {"used_bytes", stats.used_bytes},
                     {"allocated_bytes", stats.allocated_bytes},
                     {"free_bytes", stats.free_bytes},
                     {"peak_allocated_bytes", stats.peak_allocated_bytes},
                     {"bytes_per_position", stats.bytes_per_position},
                     {"block_positions", stats.block_positions},
                     {"block_bytes", stats.block_bytes},
                     {"total_blocks", stats.total_blocks},
                     {"free_blocks", stats.free_blocks},
                     {"positions", stats.positions},
                     {"mha_used_bytes", stats.mha_used_bytes},
                     {"running_sequences", stats.running},
                     {"waiting_sequences", stats.waiting},
                     {"preemptions", stats.preemptions},
                     {"shared_bytes", stats.shared_bytes},
                     {"evictable_bytes", stats.evictable_bytes},
                     {"evictable_blocks", stats.evictable_blocks},
                     {"evicted_blocks", stats.evicted_blocks},
                     {"requests", ToJson(stats.requests)},
                     {"uptime", Seconds(stats.uptime)}};
  if (model.block_map) {
    json["block_map"] = ToJson(model.model, *model.block_map, *model.holders);
  }
  return json;
}

}  // namespace

JsonOutput ToJson(const RegistryStats& stats) {
  JsonOutput models = JsonOutput::array();
  for (const ModelStats& model : stats.models) models.push_back(ToJson(model));
  return {{"models", std::move(models)},
          {"total_pool_bytes", stats.pool_bytes},
          {"total_used_bytes", stats.used_bytes},
          {"total_allocated_bytes", stats.allocated_bytes},
          {"total_evictable_bytes", stats.evictable_bytes},
          {"total_free_bytes", stats.free_bytes},
          {"server_version", std::string(Version())}};
}

JsonOutput ToJson(const LiveSequence& sequence) {
  const serving::SequenceStats& stats = sequence.stats;
  return {{"request_id", stats.id},
          {"model", sequence.model},
          {"state", Name(stats.state)},
          {"prompt_tokens", stats.prompt_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"kv_cache", KvCacheUsageJson(stats.kv_cache)},
          {"preemptions", stats.preemptions},
          {"choice", stats.choice},
          {"cached_prompt_tokens", stats.cached_prompt_tokens},
          {"client", stats.client},
          {"order", stats.order}};
}

template <typename Answer>
auto KvCacheCall::Then(void (KvCacheCall::*then)(const Answer&)) {
  return [mailbox = mailbox_, call = weak_from_this(), then](Answer answer) {
    mailbox->Post([call, then, answer = std::move(answer)] {
      if (const auto self = call.lock()) {
        self->exchange_->Guard([&] { (self.get()->*then)(answer); });
      }
    });
  };
}

int64_t KvCacheCall::MostBytes() const {
  int64_t sequences = 0;
  if (params_.block_map) {
    const int64_t models = params_.sequences.model.empty() ? std::ssize(core_.models.models()) : 1;
    sequences += models * static_cast<int64_t>(serving::BlockMap::kMaxHolders);
  }
  const Result<size_t> page_size = ValidatePageSize(params_.sequences.page_size);
  if (caller_.May(Scope::kInference) && page_size.ok()) {
    sequences += static_cast<int64_t>(page_size.value());
  }
  return sequences * kSequenceBytes;
}

void KvCacheCall::Start(Exchange& exchange) {
  exchange_ = &exchange;
  if (!kept_.Hold(MostBytes())) return Respond(ErrorResponse(MemoryPressure()));
  core_.stats.Collect({.model = params_.sequences.model, .block_map = params_.block_map}, caller_,
                      Then(&KvCacheCall::OnStats));
}

void KvCacheCall::OnStats(const Result<RegistryStats>& stats) {
  if (!stats.ok()) return Respond(ErrorResponse(stats.error()));
  if (!caller_.May(Scope::kInference)) return Respond({.body = ToText(ToJson(stats.value()))});
  stats_ = stats.value();
  core_.stats.ListSequences(params_.sequences, caller_, Then(&KvCacheCall::OnSequences));
}

void KvCacheCall::OnSequences(const Result<SequencePage>& page) {
  if (!page.ok()) return Respond(ErrorResponse(page.error()));
  JsonOutput answer = ToJson(stats_);
  JsonOutput& sequences = answer["sequences"] = JsonOutput::array();
  for (const LiveSequence& sequence : page.value().sequences) {
    sequences.push_back(ToJson(sequence));
  }
  answer["next_page_token"] = page.value().next_page_token;
  Respond({.body = ToText(answer)});
}

void KvCacheCall::Respond(HttpResponse response) {
  stats_ = {};
  kept_.Hold(0);  // the connection accounts for the response
  exchange_->Respond(std::move(response));
}

}  // namespace triptych::server
