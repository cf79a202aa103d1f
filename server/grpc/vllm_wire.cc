#include "server/grpc/vllm_wire.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/request_limits.h"
#include "server/core/stats/kv_event_streams.h"

namespace triptych::server {
namespace {

constexpr size_t kMaxRequestIdBytes = 256;

// Ids beyond int32 become negative ones, which no model has.
std::span<const int32_t> TokenIds(const google::protobuf::RepeatedField<uint32_t>& ids) {
  return {reinterpret_cast<const int32_t*>(ids.data()), static_cast<size_t>(ids.size())};
}

template <typename List>
auto EndOfList(const List& list, size_t most) {
  return std::next(list.begin(),
                   static_cast<std::ptrdiff_t>(std::min<size_t>(list.size(), most + 1)));
}

Error NotServed(std::string field, std::string_view what) {
  return InvalidArgument(std::move(field), fmt::format("is set; {} not served", what));
}

std::optional<OutputForm> FormOf(const vllm_wire::SamplingParams& message) {
  using Kind = OutputForm::Kind;
  const auto form = [](Kind kind, std::string_view text, const char* field) {
    return OutputForm{.kind = kind, .text = text, .choices = {}, .field = field};
  };
  switch (message.constraint_case()) {
    case vllm_wire::SamplingParams::kJsonSchema:
      return form(Kind::kJsonSchema, message.json_schema(), "sampling_params.json_schema");
    case vllm_wire::SamplingParams::kRegex:
      return form(Kind::kRegex, message.regex(), "sampling_params.regex");
    case vllm_wire::SamplingParams::kGrammar:
      return form(Kind::kGrammar, message.grammar(), "sampling_params.grammar");
    case vllm_wire::SamplingParams::kJsonObject:
      if (!message.json_object()) return std::nullopt;
      return form(Kind::kJsonObject, {}, "sampling_params.json_object");
    case vllm_wire::SamplingParams::kChoice: {
      OutputForm choice = form(Kind::kChoice, {}, "sampling_params.choice.choices");
      const auto& texts = message.choice().choices();
      choice.choices.assign(texts.begin(), EndOfList(texts, limits::kOutputChoices.high));
      return choice;
    }
    case vllm_wire::SamplingParams::kStructuralTag:
    case vllm_wire::SamplingParams::CONSTRAINT_NOT_SET:
      break;
  }
  return std::nullopt;
}

// Zero stands for a field's default.
std::optional<float> UnlessZero(float value, float otherwise) {
  return value == 0 ? otherwise : value;
}

SamplingFields SamplingOf(const vllm_wire::SamplingParams& message) {
  SamplingFields fields;
  fields.temperature = message.has_temperature() ? message.temperature() : 1;
  fields.top_p = UnlessZero(message.top_p(), 1);
  fields.top_k = static_cast<int32_t>(std::min<uint32_t>(message.top_k(), limits::kTopK.high));
  fields.min_p = message.min_p();
  fields.repetition_penalty = UnlessZero(message.repetition_penalty(), 1);
  fields.presence_penalty = message.presence_penalty();
  fields.frequency_penalty = message.frequency_penalty();
  fields.logit_bias.assign(message.logit_bias().begin(),
                           EndOfList(message.logit_bias(), limits::kMaxLogitBiases));
  if (message.has_seed()) fields.seed = static_cast<uint64_t>(int64_t{message.seed()});
  return fields;
}

void AddTop(const serving::TokenLogprobs& logprobs, vllm_wire::TopLogProbs& out) {
  for (const serving::TokenLogprob& top : logprobs.top) {
    out.add_values(top.logprob);
    out.add_token_ids(top.token);
  }
}

int64_t ToSigned(uint64_t name) { return static_cast<int64_t>(name); }

}  // namespace

std::optional<Error> CheckServed(const vllm_wire::GenerateRequest& message) {
  const vllm_wire::SamplingParams& sampling = message.sampling_params();
  if (message.request_id().size() > kMaxRequestIdBytes) {
    return InvalidArgument("request_id",
                           fmt::format("is {} bytes long; allowed: at most {}",
                                       message.request_id().size(), kMaxRequestIdBytes));
  }
  if (message.has_mm_inputs()) {
    return NotServed("mm_inputs", "images, audio and video are");
  }
  if (message.has_kv_transfer_params()) {
    return NotServed("kv_transfer_params", "transfer of cache blocks between workers is");
  }
  if (message.has_kv_transfer_params_json()) {
    return NotServed("kv_transfer_params_json", "transfer of cache blocks between workers is");
  }
  if (message.data_parallel_rank() != 0) {
    return InvalidArgument("data_parallel_rank",
                           fmt::format("is {}; allowed: 0", message.data_parallel_rank()));
  }
  if (sampling.constraint_case() == vllm_wire::SamplingParams::kStructuralTag) {
    return NotServed("sampling_params.structural_tag", "structural tags are");
  }
  if (sampling.has_truncate_prompt_tokens()) {
    return NotServed("sampling_params.truncate_prompt_tokens", "truncation of prompts is");
  }
  return std::nullopt;
}

GenerateParams FromProto(const vllm_wire::GenerateRequest& message, std::string model) {
  const vllm_wire::SamplingParams& sampling = message.sampling_params();
  GenerateParams params;
  params.model = std::move(model);
  if (message.has_text()) params.prompt.input = std::string_view(message.text());
  if (message.has_tokenized()) params.prompt.input = TokenIds(message.tokenized().input_ids());
  params.max_new_tokens =
      sampling.has_max_tokens() ? int64_t{sampling.max_tokens()} : int64_t{limits::kNewTokens.high};
  params.min_new_tokens = sampling.min_tokens();
  params.sampling = SamplingOf(sampling);
  params.stop.assign(sampling.stop().begin(), EndOfList(sampling.stop(), limits::kMaxStops));
  params.stop_token_ids = TokenIds(sampling.stop_token_ids());
  params.ignore_eos = sampling.ignore_eos();
  if (sampling.n() != 0) {
    params.n = static_cast<int32_t>(std::min<uint32_t>(sampling.n(), limits::kInt32Max));
  }
  if (sampling.has_logprobs()) params.logprobs = sampling.logprobs();
  if (sampling.has_prompt_logprobs()) params.prompt_logprobs = sampling.prompt_logprobs();
  params.form = FormOf(sampling);
  return params;
}

Error InVllmTerms(Error error) {
  constexpr std::string_view kTokens = "tokens", kIds = "tokens.ids", kSampling = "sampling.";
  std::string& field = error.field;
  if (field.empty() || field == "text" || field.starts_with("sampling_params.")) return error;
  if (field == "model") {
    field = kModelMetadata;
  } else if (field == "prompt") {
    field = "input";
  } else if (field.starts_with(kIds)) {
    field.replace(0, kIds.size(), "tokenized.input_ids");
  } else if (field == kTokens) {
    field = "tokenized";
  } else if (field.starts_with(kSampling)) {
    field.replace(0, kSampling.size(), "sampling_params.");
  } else if (field == "max_new_tokens") {
    field = "sampling_params.max_tokens";
  } else if (field == "min_new_tokens") {
    field = "sampling_params.min_tokens";
  } else {
    field.insert(0, "sampling_params.");
  }
  return error;
}

void AddLogprobs(const std::vector<serving::TokenLogprobs>& logprobs, bool top,
                 vllm_wire::OutputLogProbs& out) {
  for (const serving::TokenLogprobs& one : logprobs) {
    out.add_token_logprobs(one.chosen.logprob);
    out.add_token_ids(one.chosen.token);
    if (top) AddTop(one, *out.add_top_logprobs());
  }
}

void AddLogprobs(const std::vector<serving::TokenLogprobs>& logprobs, bool top,
                 vllm_wire::InputLogProbs& out) {
  for (const serving::TokenLogprobs& one : logprobs) {
    out.add_token_logprobs()->set_value(one.chosen.logprob);
    out.add_token_ids(one.chosen.token);
    if (top) AddTop(one, *out.add_top_logprobs());
  }
}

vllm_wire::GetModelInfoResponse ToVllm(const ModelInfo& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const serving::SamplingParams& sampling = model.defaults.sampling;
  vllm_wire::GetModelInfoResponse message;
  message.set_model_path(model.checkpoint.string());
  message.set_is_generation(true);
  message.set_max_context_length(static_cast<uint32_t>(model.config.max_position_embeddings));
  message.set_vocab_size(static_cast<uint32_t>(model.config.vocab_size));
  message.set_served_model_name(model.name);
  message.set_tokenizer_path(model.checkpoint.string());
  const std::span<const int32_t> ends = tokenizer.end_tokens();
  message.mutable_eos_token_ids()->Add(ends.begin(), ends.end());
  message.set_bos_token_id(tokenizer.begin_token().value_or(0));
  message.set_max_req_input_len(static_cast<int32_t>(model.config.max_position_embeddings));
  message.set_default_sampling_params_json(fmt::format(
      R"({{"temperature":{},"top_p":{},"top_k":{},"min_p":{},"repetition_penalty":{}}})",
      sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p,
      sampling.repetition_penalty));
  return message;
}

vllm_wire::SchedulerLoad ToVllm(const serving::KvCacheStats& stats, const ModelInfo& model) {
  const auto ratio = [](int64_t part, int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto count = [](int64_t value) {
    return static_cast<int32_t>(std::min<int64_t>(value, limits::kInt32Max));
  };
  vllm_wire::SchedulerLoad load;
  load.set_num_running_reqs(count(stats.running));
  load.set_num_waiting_reqs(count(stats.waiting));
  load.set_num_total_reqs(count(stats.running + stats.waiting));
  load.set_num_used_tokens(count(stats.positions));
  load.set_max_total_num_tokens(count(model.info.pool_positions()));
  load.set_token_usage(ratio(stats.allocated_bytes, stats.pool_bytes));
  load.set_cache_hit_rate(ratio(stats.requests.cached_prompt_tokens, stats.requests.prompt_tokens));
  return load;
}

smg_wire::KvEventBatch ToSmg(const KvEventBatch& batch, int64_t block_positions) {
  smg_wire::KvEventBatch message;
  message.set_sequence_number(batch.number);
  message.set_timestamp(UnixSeconds(batch));
  message.set_dp_rank(0);
  for (const KvEventRun& run : Runs(batch, block_positions)) {
    smg_wire::KvCacheEvent& event = *message.add_events();
    event.set_event_id(run.first_event);
    switch (run.events.front().kind) {
      case KvEvent::Kind::kStored: {
        smg_wire::KvBlocksStored& stored = *event.mutable_stored();
        if (const auto parent = run.events.front().parent) {
          stored.set_parent_block_hash(ToSigned(*parent));
        }
        auto tokens = run.tokens.begin();
        for (const KvEvent& one : run.events) {
          smg_wire::KvBlock& block = *stored.add_blocks();
          block.set_block_hash(ToSigned(one.block));
          block.set_block_size(static_cast<int32_t>(block_positions));
          block.mutable_token_ids()->Add(tokens, tokens + block_positions);
          tokens += block_positions;
        }
        break;
      }
      case KvEvent::Kind::kRemoved:
        for (const KvEvent& one : run.events) {
          event.mutable_removed()->add_block_hashes(ToSigned(one.block));
        }
        break;
      case KvEvent::Kind::kCleared:
        event.mutable_cleared();
        break;
    }
  }
  return message;
}

}  // namespace triptych::server
