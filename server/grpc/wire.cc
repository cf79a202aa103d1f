#include "server/grpc/wire.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/request_limits.h"
#include "engine/base/version.h"
#include "engine/model/cached_layers.h"
#include "engine/text/text_stream.h"

namespace triptych::server {
namespace {

google::protobuf::Duration ToProto(std::chrono::nanoseconds duration) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(duration.count());
}

v1::SequenceState ToProto(serving::SequenceState state) {
  switch (state) {
    case serving::SequenceState::kWaiting:
      return v1::SEQUENCE_STATE_WAITING;
    case serving::SequenceState::kPrefill:
      return v1::SEQUENCE_STATE_PREFILL;
    case serving::SequenceState::kDecode:
      return v1::SEQUENCE_STATE_DECODE;
  }
  return v1::SEQUENCE_STATE_UNSPECIFIED;
}

v1::AttentionKind ToProto(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kMha:
      return v1::ATTENTION_KIND_MHA;
    case AttentionKind::kGqa:
      return v1::ATTENTION_KIND_GQA;
    case AttentionKind::kMla:
      return v1::ATTENTION_KIND_MLA;
  }
  return v1::ATTENTION_KIND_UNSPECIFIED;
}

v1::TokenLogprob ToProto(const serving::TokenLogprob& logprob) {
  v1::TokenLogprob message;
  message.set_token_id(logprob.token);
  message.set_logprob(logprob.logprob);
  return message;
}

v1::KvCacheUsage ToProto(const KvCacheUsage& usage) {
  v1::KvCacheUsage message;
  message.set_positions(usage.positions);
  message.set_bytes_per_position(usage.bytes_per_position);
  message.set_used_bytes(usage.used_bytes);
  message.set_allocated_bytes(usage.allocated_bytes);
  message.set_peak_allocated_bytes(usage.peak_allocated_bytes);
  message.set_mha_used_bytes(usage.mha_used_bytes);
  message.set_shared_bytes(usage.shared_bytes);
  message.set_own_bytes(usage.own_bytes);
  return message;
}

v1::Usage ToProto(const serving::RequestUsage& usage) {
  v1::Usage message;
  message.set_prompt_tokens(static_cast<int32_t>(usage.prompt_tokens));
  message.set_generated_tokens(static_cast<int32_t>(usage.generated_tokens));
  *message.mutable_queue_time() = ToProto(usage.queue_time);
  *message.mutable_prefill_time() = ToProto(usage.prefill_time);
  *message.mutable_decode_time() = ToProto(usage.decode_time);
  message.set_preemptions(static_cast<int32_t>(usage.preemptions));
  *message.mutable_kv_cache() = ToProto(usage.kv_cache);
  message.set_cached_prompt_tokens(static_cast<int32_t>(usage.cached_prompt_tokens));
  message.set_draft_tokens(static_cast<int32_t>(usage.drafted_tokens));
  message.set_accepted_draft_tokens(static_cast<int32_t>(usage.accepted_tokens));
  return message;
}

v1::TokenLogprobs ToProto(const serving::TokenLogprobs& logprobs) {
  v1::TokenLogprobs message;
  *message.mutable_chosen() = ToProto(logprobs.chosen);
  for (const serving::TokenLogprob& top : logprobs.top) *message.add_top() = ToProto(top);
  return message;
}

v1::RequestCounts ToProto(const serving::RequestCounts& counts) {
  v1::RequestCounts message;
  message.set_accepted(counts.accepted);
  message.set_refused(counts.refused);
  message.set_finished(counts.finished);
  message.set_cancelled(counts.cancelled);
  message.set_failed(counts.failed);
  message.set_prompt_tokens(counts.prompt_tokens);
  message.set_cached_prompt_tokens(counts.cached_prompt_tokens);
  message.set_generated_tokens(counts.generated_tokens);
  message.set_sampled_tokens(counts.sampled_tokens);
  message.set_first_tokens(counts.first_tokens);
  *message.mutable_first_token_time() = ToProto(counts.first_token_time);
  return message;
}

v1::Sequence ToProto(const std::string& model, const serving::SequenceStats& sequence) {
  v1::Sequence message;
  message.set_request_id(sequence.id);
  message.set_model(model);
  message.set_state(ToProto(sequence.state));
  message.set_prompt_tokens(static_cast<int32_t>(sequence.prompt_tokens));
  message.set_generated_tokens(static_cast<int32_t>(sequence.generated_tokens));
  *message.mutable_kv_cache() = ToProto(sequence.kv_cache);
  message.set_preemptions(static_cast<int32_t>(sequence.preemptions));
  message.set_choice(sequence.choice);
  message.set_cached_prompt_tokens(static_cast<int32_t>(sequence.cached_prompt_tokens));
  message.set_client(sequence.client);
  message.set_order(static_cast<int64_t>(sequence.order));
  return message;
}

v1::BlockMap ToProto(const std::string& model, const serving::BlockMap& map,
                     const std::vector<serving::SequenceStats>& holders) {
  v1::BlockMap message;
  message.set_cell_blocks(map.cell_blocks);
  for (const serving::SequenceStats& holder : holders)
    *message.add_holders() = ToProto(model, holder);
  for (const auto& [cells, cell] : map.runs) {
    message.add_cells(cells);
    message.add_holder(cell.holder);
    message.add_allocated(cell.allocated);
    message.add_shared(cell.shared);
    message.add_evictable(cell.evictable);
  }
  return message;
}

v1::KvCacheStats ToProto(const ModelStats& model) {
  const serving::KvCacheStats& stats = model.kv_cache;
  v1::KvCacheStats message;
  message.set_model(model.model);
  message.set_pool_bytes(stats.pool_bytes);
  message.set_used_bytes(stats.used_bytes);
  message.set_allocated_bytes(stats.allocated_bytes);
  message.set_free_bytes(stats.free_bytes);
  message.set_peak_allocated_bytes(stats.peak_allocated_bytes);
  message.set_bytes_per_position(stats.bytes_per_position);
  message.set_block_positions(static_cast<int32_t>(stats.block_positions));
  message.set_block_bytes(stats.block_bytes);
  message.set_total_blocks(stats.total_blocks);
  message.set_free_blocks(stats.free_blocks);
  message.set_positions(stats.positions);
  message.set_mha_used_bytes(stats.mha_used_bytes);
  message.set_running_sequences(static_cast<int32_t>(stats.running));
  message.set_waiting_sequences(static_cast<int32_t>(stats.waiting));
  message.set_preemptions(stats.preemptions);
  message.set_shared_bytes(stats.shared_bytes);
  message.set_evictable_bytes(stats.evictable_bytes);
  message.set_evictable_blocks(stats.evictable_blocks);
  message.set_evicted_blocks(stats.evicted_blocks);
  *message.mutable_requests() = ToProto(stats.requests);
  *message.mutable_uptime() = ToProto(stats.uptime);
  if (model.block_map) {
    *message.mutable_block_map() = ToProto(model.model, *model.block_map, *model.holders);
  }
  return message;
}

v1::Completion ToProto(const serving::Completion& completion) {
  v1::Completion message;
  message.set_finish_reason(completion.reason == serving::FinishReason::kStop
                                ? v1::FINISH_REASON_STOP
                                : v1::FINISH_REASON_LENGTH);
  *message.mutable_usage() = ToProto(completion.usage);
  message.set_seed(completion.seed);
  message.set_stop(completion.stop.value_or(""));
  return message;
}

std::span<const int32_t> View(const google::protobuf::RepeatedField<int32_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

v1::Tokenizer ToProto(const Tokenizer& tokenizer, bool special_tokens) {
  v1::Tokenizer message;
  message.set_kind(std::string(tokenizer.kind()));
  message.set_vocab_size(tokenizer.vocab_size());
  if (const auto begin = tokenizer.begin_token()) message.set_begin_token_id(*begin);
  const std::span<const int32_t> ends = tokenizer.end_tokens();
  message.mutable_end_token_ids()->Add(ends.begin(), ends.end());
  if (!special_tokens) return message;
  for (const SpecialToken& special : tokenizer.special_tokens()) {
    v1::SpecialToken& one = *message.add_special_tokens();
    one.set_id(special.token);
    one.set_text(ToValidUtf8(special.text));  // a tokenizer file's text may be invalid
  }
  return message;
}

v1::GenerationDefaults ToProto(const serving::RequestDefaults& defaults) {
  v1::GenerationDefaults message;
  v1::SamplingParams& sampling = *message.mutable_sampling();
  sampling.set_temperature(defaults.sampling.temperature);
  sampling.set_top_k(defaults.sampling.top_k);
  sampling.set_top_p(defaults.sampling.top_p);
  sampling.set_min_p(defaults.sampling.min_p);
  sampling.set_repetition_penalty(defaults.sampling.repetition_penalty);
  if (defaults.max_new_tokens) {
    message.set_max_new_tokens(static_cast<int32_t>(*defaults.max_new_tokens));
  }
  return message;
}

// End of the copied part of a list with at most `most` allowed entries: one more shows an excess.
template <typename List>
auto EndOfCopy(const List& list, size_t most) {
  return std::next(list.begin(),
                   static_cast<std::ptrdiff_t>(std::min<size_t>(list.size(), most + 1)));
}

// The prompt of a GenerateRequest or a ScoreInput, from `text` or `tokens`.
template <typename Message>
Prompt ReadPrompt(const Message& message) {
  Prompt prompt;
  if (message.has_text()) prompt.input = std::string_view(message.text());
  if (message.has_tokens()) prompt.input = View(message.tokens().ids());
  prompt.options.parse_special_tokens = message.parse_special_tokens();
  if (message.has_begin_token()) prompt.options.begin_token = message.begin_token();
  return prompt;
}

std::optional<OutputForm> ReadForm(const v1::GenerateRequest& message) {
  using Kind = OutputForm::Kind;
  const auto form = [](Kind kind, std::string_view text, const char* field) {
    return OutputForm{.kind = kind, .text = text, .choices = {}, .field = field};
  };
  switch (message.form_case()) {
    case v1::GenerateRequest::kJsonSchema:
      return form(Kind::kJsonSchema, message.json_schema(), "json_schema");
    case v1::GenerateRequest::kJsonObject:
      if (!message.json_object()) return std::nullopt;
      return form(Kind::kJsonObject, {}, "json_object");
    case v1::GenerateRequest::kRegex:
      return form(Kind::kRegex, message.regex(), "regex");
    case v1::GenerateRequest::kChoice: {
      OutputForm choice = form(Kind::kChoice, {}, "choice.texts");
      const auto& texts = message.choice().texts();
      choice.choices.assign(texts.begin(), EndOfCopy(texts, limits::kOutputChoices.high));
      return choice;
    }
    case v1::GenerateRequest::kGrammar:
      return form(Kind::kGrammar, message.grammar(), "grammar");
    case v1::GenerateRequest::FORM_NOT_SET:
      break;
  }
  return std::nullopt;
}

SamplingFields FromProto(const v1::SamplingParams& message) {
  SamplingFields fields;
  if (message.has_temperature()) fields.temperature = message.temperature();
  if (message.has_top_k()) fields.top_k = message.top_k();
  if (message.has_top_p()) fields.top_p = message.top_p();
  if (message.has_min_p()) fields.min_p = message.min_p();
  if (message.has_repetition_penalty()) fields.repetition_penalty = message.repetition_penalty();
  fields.presence_penalty = message.presence_penalty();
  fields.frequency_penalty = message.frequency_penalty();
  fields.logit_bias.assign(message.logit_bias().begin(),
                           EndOfCopy(message.logit_bias(), limits::kMaxLogitBiases));
  if (message.has_seed()) fields.seed = message.seed();
  fields.allowed_token_ids = View(message.allowed_token_ids());
  return fields;
}

}  // namespace

GenerateParams FromProto(const v1::GenerateRequest& message) {
  GenerateParams params;
  params.model = message.model();
  params.prompt = ReadPrompt(message);
  if (message.has_max_new_tokens()) params.max_new_tokens = message.max_new_tokens();
  params.sampling = FromProto(message.sampling());
  params.stop.assign(message.stop().begin(), EndOfCopy(message.stop(), limits::kMaxStops));
  if (message.has_logprobs()) params.logprobs = message.logprobs();
  params.ignore_eos = message.ignore_eos();
  if (message.has_n()) params.n = message.n();
  params.stop_token_ids = View(message.stop_token_ids());
  params.min_new_tokens = message.min_new_tokens();
  params.include_stop = message.include_stop();
  params.show_special = message.show_special_tokens();
  params.echo = message.echo();
  if (message.has_prompt_logprobs()) params.prompt_logprobs = message.prompt_logprobs();
  params.priority = message.priority();
  params.bypass_prefix_cache = message.bypass_prefix_cache();
  params.form = ReadForm(message);
  params.prediction = message.prediction();
  if (message.has_max_draft_tokens()) params.max_draft_tokens = message.max_draft_tokens();
  return params;
}

ScoreParams FromProto(const v1::ScoreRequest& message) {
  ScoreParams params;
  params.model = message.model();
  const auto end = EndOfCopy(message.inputs(), limits::kScoreInputs.high);
  std::transform(message.inputs().begin(), end, std::back_inserter(params.inputs),
                 [](const v1::ScoreInput& input) { return ReadPrompt(input); });
  params.priority = message.priority();
  return params;
}

ListModelsParams FromProto(const v1::ListModelsRequest& message) {
  return {.page_size = message.page_size(), .page_token = message.page_token()};
}

StatsParams FromProto(const v1::GetKvCacheStatsRequest& message) {
  return {.model = message.model(), .block_map = message.block_map()};
}

ListSequencesParams FromProto(const v1::ListSequencesRequest& message) {
  return {.model = message.model(),
          .page_size = message.page_size(),
          .page_token = message.page_token()};
}

WatchStatsParams FromProto(const v1::WatchKvCacheStatsRequest& message) {
  WatchStatsParams params;
  params.model = message.model();
  if (message.has_interval()) {
    params.interval = {.seconds = message.interval().seconds(),
                       .nanos = message.interval().nanos()};
  }
  return params;
}

DetokenizeParams FromProto(const v1::DetokenizeRequest& message) {
  return {.model = message.model(), .token_ids = View(message.token_ids())};
}

TokenizeParams FromProto(const v1::TokenizeRequest& message) {
  return {.model = message.model(),
          .text = message.text(),
          .options = {.parse_special_tokens = message.parse_special_tokens(),
                      .begin_token = message.begin_token()},
          .pieces = message.pieces()};
}

v1::GenerateResponse ToProto(const StreamChunk& chunk, const std::string& request_id) {
  v1::GenerateResponse message;
  message.set_choice(chunk.choice);
  message.set_text(chunk.text);
  message.mutable_token_ids()->Add(chunk.tokens.begin(), chunk.tokens.end());
  for (const serving::TokenLogprobs& logprobs : chunk.logprobs)
    *message.add_logprobs() = ToProto(logprobs);
  for (const serving::TokenLogprobs& logprobs : chunk.prompt_logprobs) {
    *message.add_prompt_logprobs() = ToProto(logprobs);
  }
  if (chunk.completion) {
    v1::Completion& completion = *message.mutable_completion();
    completion = ToProto(*chunk.completion);
    completion.set_request_id(request_id);
  }
  return message;
}

v1::ScoreResponse ToProto(const Scores& scores) {
  v1::ScoreResponse message;
  for (const InputScore& score : scores) {
    v1::ScoreResult& result = *message.add_results();
    result.set_log_likelihood(std::accumulate(score.logprobs.begin(), score.logprobs.end(), 0.0));
    result.set_scored_tokens(static_cast<int32_t>(score.logprobs.size()));
    result.mutable_token_logprobs()->Add(score.logprobs.begin(), score.logprobs.end());
    *result.mutable_usage() = ToProto(score.usage);
  }
  return message;
}

v1::TokenizeResponse ToProto(TokenizedText&& text) {
  v1::TokenizeResponse message;
  message.mutable_token_ids()->Add(text.tokens.begin(), text.tokens.end());
  message.set_pieces(std::move(text.pieces));
  message.mutable_offsets()->Add(text.offsets.begin(), text.offsets.end());
  return message;
}

v1::GetKvCacheStatsResponse ToProto(const RegistryStats& stats) {
  v1::GetKvCacheStatsResponse message;
  for (const ModelStats& model : stats.models) *message.add_models() = ToProto(model);
  message.set_total_pool_bytes(stats.pool_bytes);
  message.set_total_used_bytes(stats.used_bytes);
  message.set_total_allocated_bytes(stats.allocated_bytes);
  message.set_total_evictable_bytes(stats.evictable_bytes);
  message.set_total_free_bytes(stats.free_bytes);
  message.set_server_version(std::string(Version()));
  return message;
}

v1::ListSequencesResponse ToProto(const SequencePage& page) {
  v1::ListSequencesResponse message;
  for (const LiveSequence& sequence : page.sequences) {
    *message.add_sequences() = ToProto(sequence.model, sequence.stats);
  }
  message.set_next_page_token(page.next_page_token);
  return message;
}

v1::Model ToProto(const ModelInfo& model, bool special_tokens) {
  const ModelConfig& config = model.config;
  v1::Model message;
  message.set_name(model.name);
  message.set_attention(ToProto(config.attention));
  message.set_config_json(model.config_json);
  message.set_parameters(model.parameters);
  message.set_active_parameters(model.active_parameters);
  message.set_parameter_bytes(model.parameter_bytes);
  message.set_read_bytes_per_token(model.read_bytes_per_token);
  message.set_weight_dtype(std::string(Name(model.weight_formats.layers)));
  message.set_embedding_dtype(std::string(Name(model.weight_formats.embeddings)));
  if (config.experts.n_routed_experts > 0) {
    message.set_expert_dtype(std::string(Name(model.weight_formats.experts)));
  }
  message.set_kv_cache_dtype(std::string(Name(model.cache_format)));
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    message.add_row_elements(CacheRowElements(config, layer));
  }
  message.set_elements_per_position(ElementsPerPosition(config));
  message.set_bytes_per_position(model.info.geometry.BytesPerPosition());
  message.set_kv_cache_formula(CacheFormula(CachedLayersOf(config), model.cache_format));
  message.set_mha_bytes_per_position(model.info.geometry.mha_bytes_per_position);
  message.set_max_positions(static_cast<int32_t>(config.max_position_embeddings));
  message.set_pool_positions(model.info.pool_positions());
  for (const ReducedForm form : model.latent_forms) {
    message.add_latent_forms(std::string(Name(form)));
  }
  if (model.info.expand_from) message.set_expand_from(*model.info.expand_from);
  if (const auto& memory = model.info.device_memory) {
    v1::DeviceMemory& device = *message.mutable_device_memory();
    device.set_device(memory->device);
    device.set_weight_bytes(memory->weight_bytes);
    device.set_workspace_bytes(memory->workspace_bytes);
    device.set_cache_bytes(model.info.cache_bytes);
  }
  *message.mutable_tokenizer() = ToProto(*model.tokenizer, special_tokens);
  *message.mutable_generation_defaults() = ToProto(model.defaults);
  return message;
}

}  // namespace triptych::server
