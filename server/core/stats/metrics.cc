#include "server/core/stats/metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

namespace triptych::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct Number {
  const char* name;
  const char* help;
  double (*value)(const ModelMetrics&);
};

constexpr double Double(int64_t value) { return static_cast<double>(value); }

double Running(const ModelMetrics& model) { return Double(model.stats.running); }
double Waiting(const ModelMetrics& model) { return Double(model.stats.waiting); }
double Utilization(const ModelMetrics& model) {
  const serving::KvCacheStats& stats = model.stats;
  const int64_t held = stats.total_blocks - stats.free_blocks - stats.evictable_blocks;
  return Double(held) / Double(stats.total_blocks);
}

constexpr Number kGauges[] = {
    {"triptych_requests_running", "Running sequences; a request has one for each choice.", Running},
    {"triptych_requests_waiting", "Queued sequences.", Waiting},
    {"triptych_kv_cache_utilization_ratio",
     "Share of the cache's blocks that are allocated to live sequences, from 0 to 1.", Utilization},
    // The names that endpoint pickers ask for by default (pkg/epp/framework/plugins/datalayer/
    // extractor/metrics/factories.go of https://github.com/llm-d/llm-d-router).
    {"vllm:num_requests_running", "As triptych_requests_running, for endpoint pickers.", Running},
    {"vllm:num_requests_waiting", "As triptych_requests_waiting, for endpoint pickers.", Waiting},
    {"vllm:kv_cache_usage_perc",
     "As triptych_kv_cache_utilization_ratio, from 0 to 1, for endpoint pickers.", Utilization},
    {"triptych_kv_cache_pool_bytes", "Bytes of the pool: allocated, evictable and free.",
     [](const ModelMetrics& model) { return Double(model.stats.pool_bytes); }},
    {"triptych_device_weight_bytes", "Bytes of the weights on a GPU; 0 on the CPU.",
     [](const ModelMetrics& model) {
       const auto& memory = model.model->info.device_memory;
       return memory ? Double(memory->weight_bytes) : 0;
     }},
    {"triptych_device_workspace_bytes", "Bytes of workspace on a GPU; 0 on the CPU.",
     [](const ModelMetrics& model) {
       const auto& memory = model.model->info.device_memory;
       return memory ? Double(memory->workspace_bytes) : 0;
     }},
    {"triptych_kv_cache_used_bytes",
     "Bytes of positions that live sequences have written; shared ones count once.",
     [](const ModelMetrics& model) { return Double(model.stats.used_bytes); }},
    {"triptych_kv_cache_allocated_bytes",
     "Bytes of blocks of live sequences; shared ones count once.",
     [](const ModelMetrics& model) { return Double(model.stats.allocated_bytes); }},
    {"triptych_kv_cache_shared_bytes", "Bytes of blocks that several live sequences share.",
     [](const ModelMetrics& model) { return Double(model.stats.shared_bytes); }},
    {"triptych_kv_cache_evictable_bytes",
     "Bytes of blocks of no live sequence, kept for prefix hits and evicted when room is needed.",
     [](const ModelMetrics& model) { return Double(model.stats.evictable_bytes); }},
    {"triptych_kv_cache_free_bytes", "Bytes of free blocks.",
     [](const ModelMetrics& model) { return Double(model.stats.free_bytes); }},
    {"triptych_kv_cache_available_bytes", "Bytes that can still be allocated: evictable and free.",
     [](const ModelMetrics& model) {
       return Double(model.stats.evictable_bytes + model.stats.free_bytes);
     }},
    {"triptych_kv_cache_peak_allocated_bytes", "Peak of the allocated bytes.",
     [](const ModelMetrics& model) { return Double(model.stats.peak_allocated_bytes); }},
    {"triptych_kv_cache_saved_bytes",
     "Bytes that the used positions would take in addition if every layer were MHA.",
     [](const ModelMetrics& model) {
       return Double(model.stats.mha_used_bytes - model.stats.used_bytes);
     }},
    {"triptych_kv_cache_position_bytes", "Bytes of one position.",
     [](const ModelMetrics& model) { return Double(model.stats.bytes_per_position); }},
};

constexpr Number kCounters[] = {
    {"triptych_prompt_tokens_total", "Prompt tokens of sequences that have ended.",
     [](const ModelMetrics& model) { return Double(model.stats.requests.prompt_tokens); }},
    {"triptych_cached_prompt_tokens_total",
     "Prompt tokens of ended sequences that came from the prefix cache.",
     [](const ModelMetrics& model) { return Double(model.stats.requests.cached_prompt_tokens); }},
    {"triptych_generation_tokens_total", "Generated tokens, including those of running sequences.",
     [](const ModelMetrics& model) { return Double(model.stats.requests.sampled_tokens); }},
    {"triptych_prefix_cache_queries_total",
     "Prompt tokens looked up in the prefix cache when first scheduled.",
     [](const ModelMetrics& model) { return Double(model.metrics->prefix_queries.value()); }},
    {"triptych_prefix_cache_hits_total", "Prefix hits: looked-up tokens that were found.",
     [](const ModelMetrics& model) { return Double(model.metrics->prefix_hits.value()); }},
    {"triptych_prefix_cache_evicted_blocks_total", "Evicted blocks of the prefix cache.",
     [](const ModelMetrics& model) { return Double(model.stats.evicted_blocks); }},
    {"triptych_draft_tokens_total", "Drafted tokens that steps verified.",
     [](const ModelMetrics& model) { return Double(model.metrics->drafted_tokens.value()); }},
    {"triptych_accepted_draft_tokens_total",
     "Verified drafted tokens that equalled the generated ones.",
     [](const ModelMetrics& model) { return Double(model.metrics->accepted_tokens.value()); }},
    {"triptych_saved_decode_steps_total",
     "Decode steps that sequences saved: tokens of a step after its sequence's first.",
     [](const ModelMetrics& model) { return Double(model.metrics->saved_steps.value()); }},
    {"triptych_preemptions_total", "Preempted sequences, whose blocks were released to others.",
     [](const ModelMetrics& model) { return Double(model.stats.preemptions); }},
};

constexpr struct {
  const char* name;
  const char* help;
  serving::Histogram serving::EngineMetrics::*histogram;
} kHistograms[] = {
    {"triptych_request_queue_time_seconds",
     "Time from a sequence's arrival until it is first scheduled.",
     &serving::EngineMetrics::queue_time},
    {"triptych_time_to_first_token_seconds", "Time from a sequence's arrival to its first token.",
     &serving::EngineMetrics::time_to_first_token},
    {"triptych_inter_token_latency_seconds", "Time between two tokens of a sequence.",
     &serving::EngineMetrics::inter_token_time},
    {"triptych_e2e_request_latency_seconds", "Time from a sequence's arrival to its end.",
     &serving::EngineMetrics::end_to_end_time},
    {"triptych_request_kv_cache_bytes", "Used bytes of a sequence at its end.",
     &serving::EngineMetrics::cache_bytes},
    {"triptych_step_seconds", "Duration of a step.", &serving::EngineMetrics::step_time},
    {"triptych_step_batch_size", "Sequences per step.", &serving::EngineMetrics::step_sequences},
    {"triptych_step_tokens", "Tokens per step, of prefill, decode and drafts.",
     &serving::EngineMetrics::step_tokens},
};

// Only of models with experts.
constexpr struct {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const ExpertLoad&);
} kExpertNumbers[] = {
    {"triptych_expert_tokens_total",
     "Tokens of routed experts; a token counts once for each expert that it chose in each layer.",
     MetricType::Counter, [](const ExpertLoad& load) { return Double(load.tokens); }},
    {"triptych_expert_load_max_ratio",
     "Tokens of the busiest expert, divided by the mean of its layer's experts.", MetricType::Gauge,
     [](const ExpertLoad& load) { return load.most; }},
    {"triptych_expert_load_min_ratio",
     "Tokens of the least busy expert, divided by the mean of its layer's experts.",
     MetricType::Gauge, [](const ExpertLoad& load) { return load.least; }},
    {"triptych_experts_untouched", "Experts of all layers that no token has chosen.",
     MetricType::Gauge, [](const ExpertLoad& load) { return Double(load.untouched); }},
};

ClientMetric SeriesOf(const ModelMetrics& model) {
  ClientMetric series;
  series.label = {{"model", model.model->name},
                  {"attention", std::string(Name(model.model->config.attention))}};
  return series;
}

// A family with one series per model; `fill` sets its value.
template <typename Fill>
MetricFamily FamilyOf(const char* name, const char* help, MetricType type,
                      std::span<const ModelMetrics> models, Fill fill) {
  MetricFamily family{.name = name, .help = help, .type = type, .metric = {}};
  for (const ModelMetrics& model : models) {
    fill(model, family.metric.emplace_back(SeriesOf(model)));
  }
  return family;
}

ClientMetric::Histogram ToProto(const serving::Histogram& histogram) {
  ClientMetric::Histogram out;
  out.sample_sum = histogram.sum();
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    out.sample_count += static_cast<uint64_t>(histogram.count(i));
    const bool last = i == histogram.bounds().size();
    out.bucket.push_back(
        {.cumulative_count = out.sample_count,
         .upper_bound = last ? std::numeric_limits<double>::infinity() : histogram.bounds()[i]});
  }
  return out;
}

MetricFamily RequestsFamily(std::span<const ModelMetrics> models) {
  MetricFamily family{.name = "triptych_requests_total",
                      .help = "Requests that reached a model, by outcome.",
                      .type = MetricType::Counter,
                      .metric = {}};
  for (const ModelMetrics& model : models) {
    for (size_t i = 0; i < kOutcomes.size(); ++i) {
      ClientMetric& series = family.metric.emplace_back(SeriesOf(model));
      series.label.push_back({"outcome", std::string(Name(kOutcomes[i]))});
      series.counter.value = Double(model.requests[i]);
    }
  }
  return family;
}

// The families of models with experts; none if there is no such model.
void AddExpertFamilies(std::span<const ModelMetrics> models, std::vector<MetricFamily>& families) {
  std::vector<ModelMetrics> with_experts;
  std::copy_if(models.begin(), models.end(), std::back_inserter(with_experts),
               [](const ModelMetrics& model) { return model.expert_load.has_value(); });
  if (with_experts.empty()) return;
  for (const auto& number : kExpertNumbers) {
    families.push_back(FamilyOf(number.name, number.help, number.type, with_experts,
                                [&](const ModelMetrics& model, ClientMetric& series) {
                                  const double value = number.value(*model.expert_load);
                                  (number.type == MetricType::Counter ? series.counter.value
                                                                      : series.gauge.value) = value;
                                }));
  }
}

}  // namespace

std::string MetricsText(std::span<const ModelMetrics> models) {
  std::vector<MetricFamily> families = {RequestsFamily(models)};
  for (const Number& counter : kCounters) {
    families.push_back(FamilyOf(counter.name, counter.help, MetricType::Counter, models,
                                [&](const ModelMetrics& model, ClientMetric& series) {
                                  series.counter.value = counter.value(model);
                                }));
  }
  for (const Number& gauge : kGauges) {
    families.push_back(FamilyOf(gauge.name, gauge.help, MetricType::Gauge, models,
                                [&](const ModelMetrics& model, ClientMetric& series) {
                                  series.gauge.value = gauge.value(model);
                                }));
  }
  AddExpertFamilies(models, families);
  // Endpoint pickers define the names of the labels.
  for (const auto& [name, help] :
       {std::pair("triptych_kv_cache_info", "Positions per block, and number of blocks."),
        std::pair("vllm:cache_config_info", "As triptych_kv_cache_info, for endpoint pickers.")}) {
    families.push_back(FamilyOf(
        name, help, MetricType::Gauge, models, [](const ModelMetrics& model, ClientMetric& series) {
          const serving::KvCacheStats& stats = model.stats;
          series.label.push_back({"block_size", std::to_string(stats.block_positions)});
          series.label.push_back({"num_gpu_blocks", std::to_string(stats.total_blocks)});
          series.gauge.value = 1;
        }));
  }
  for (const auto& one : kHistograms) {
    families.push_back(FamilyOf(one.name, one.help, MetricType::Histogram, models,
                                [&](const ModelMetrics& model, ClientMetric& series) {
                                  series.histogram = ToProto(model.metrics->*one.histogram);
                                }));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return std::move(text).str();
}

}  // namespace triptych::server
