#include "server/core/stats/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/server/core/model_info.h"

namespace triptych::server::metrics_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class MetricsTest : public testing::Test {
 protected:
  ModelMetrics Metrics() {
    model_.config.attention = AttentionKind::kMla;
    ModelMetrics metrics{.model = &model_, .stats = {}, .metrics = &metrics_};
    metrics.stats.total_blocks = 10;
    return metrics;
  }

  ModelInfo model_ = SmallModelInfo();
  serving::EngineMetrics metrics_;
};

TEST_F(MetricsTest, SaysWhatEachModelHolds) {
  ModelMetrics metrics = Metrics();
  metrics.stats.free_blocks = 5;
  metrics.stats.evictable_blocks = 3;
  metrics.stats.evictable_bytes = 300;
  metrics.stats.free_bytes = int64_t{1} << 50;
  metrics.stats.block_positions = 16;
  metrics.stats.used_bytes = 100;
  metrics.stats.mha_used_bytes = 800;
  metrics.stats.requests.sampled_tokens = 7;
  metrics.requests[static_cast<size_t>(Outcome::kLength)] = 4;
  ModelInfo other = SmallModelInfo();
  other.name = "a \"name\"\\\n";
  ModelMetrics others = Metrics();
  others.model = &other;
  const std::string text = MetricsText(std::vector{metrics, others});
  const std::string labels = R"({model="small",attention="mla")";
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("\ntriptych_kv_cache_utilization_ratio" + labels + "} 0.2\n"),
            HasSubstr("\ntriptych_kv_cache_available_bytes" + labels + "} 1125899906842924\n"),
            HasSubstr("\ntriptych_kv_cache_saved_bytes" + labels + "} 700\n"),
            HasSubstr("\ntriptych_generation_tokens_total" + labels + "} 7\n"),
            HasSubstr("\ntriptych_requests_total" + labels +
                      R"(,outcome="length"} 4)"
                      "\n"),
            HasSubstr("\ntriptych_requests_total" + labels +
                      R"(,outcome="failed"} 0)"
                      "\n"),
            HasSubstr("\ntriptych_kv_cache_info" + labels +
                      R"(,block_size="16",num_gpu_blocks="10"} 1)"
                      "\n"),
            HasSubstr("\n"
                      R"(triptych_requests_running{model="a \"name\"\\\n",attention="mha"} 0)")));
}

TEST_F(MetricsTest, SaysHowTokensSpreadOverExpertsOfModelsThatHaveThem) {
  ModelMetrics metrics = Metrics();
  EXPECT_THAT(MetricsText(std::vector{metrics}), Not(HasSubstr("triptych_expert")));
  ModelInfo other = SmallModelInfo();
  other.name = "dense";
  ModelMetrics dense = Metrics();
  dense.model = &other;
  metrics.expert_load = {.tokens = 12, .least = 0.25, .most = 3.5, .untouched = 2};
  const std::string text = MetricsText(std::vector{metrics, dense});
  const std::string labels = R"({model="small",attention="mla"})";
  EXPECT_THAT(text, AllOf(HasSubstr("\ntriptych_expert_tokens_total" + labels + " 12\n"),
                          HasSubstr("\ntriptych_expert_load_min_ratio" + labels + " 0.25\n"),
                          HasSubstr("\ntriptych_expert_load_max_ratio" + labels + " 3.5\n"),
                          HasSubstr("\ntriptych_experts_untouched" + labels + " 2\n"),
                          Not(HasSubstr("triptych_expert_tokens_total{model=\"dense\""))));
}

TEST_F(MetricsTest, SaysWhatAGpuHolds) {
  const std::string labels = R"({model="small",attention="mla"})";
  EXPECT_THAT(MetricsText(std::vector{Metrics()}),
              AllOf(HasSubstr("\ntriptych_device_weight_bytes" + labels + " 0\n"),
                    HasSubstr("\ntriptych_device_workspace_bytes" + labels + " 0\n")));
  model_.info.device_memory = {
      .device = "cuda:0", .kernels = "", .weight_bytes = 700, .workspace_bytes = 30};
  EXPECT_THAT(MetricsText(std::vector{Metrics()}),
              AllOf(HasSubstr("\ntriptych_device_weight_bytes" + labels + " 700\n"),
                    HasSubstr("\ntriptych_device_workspace_bytes" + labels + " 30\n")));
}

// An endpoint picker's rules: extractor.go, spec.go and loraspec.go in pkg/epp/framework/plugins/
// datalayer/extractor/metrics of https://github.com/llm-d/llm-d-router. A family is found by its
// name, and its first series counts, as none has a timestamp. Numbers of the cache are labels.
class Picker {
 public:
  explicit Picker(const std::string& scrape) : scrape_(scrape) {}

  // The value of a gauge.
  std::optional<double> Value(const std::string& name) const {
    const auto line = First(name);
    if (!line) return std::nullopt;
    return std::stod(line->substr(line->rfind(' ')));
  }
  // The whole number in a label of a gauge.
  std::optional<int> Label(const std::string& name, const std::string& label) const {
    const auto line = First(name);
    std::smatch found;
    if (!line || !std::regex_search(*line, found, std::regex("[{,]" + label + "=\"([0-9]+)\"")))
      return std::nullopt;
    return std::stoi(found[1]);
  }

 private:
  std::optional<std::string> First(const std::string& name) const {
    const std::string type = "# TYPE " + name + " gauge\n";
    const size_t at = scrape_.find(type);
    if (at == scrape_.npos) return std::nullopt;
    const size_t begin = at + type.size(), end = scrape_.find('\n', begin);
    const std::string line = scrape_.substr(begin, end - begin);
    return line.starts_with(name + "{") ? std::optional(line) : std::nullopt;
  }

  const std::string& scrape_;
};

TEST_F(MetricsTest, AnEndpointPickerFindsWhatItAsksForByDefault) {
  ModelMetrics metrics = Metrics();
  metrics.stats.free_blocks = 5;
  metrics.stats.evictable_blocks = 3;
  metrics.stats.block_positions = 16;
  metrics.stats.running = 4;
  metrics.stats.waiting = 7;
  const std::string scrape = MetricsText(std::vector{metrics});
  const Picker picker(scrape);
  EXPECT_EQ(picker.Value("vllm:num_requests_waiting"), 7);
  EXPECT_EQ(picker.Value("vllm:num_requests_running"), 4);
  EXPECT_EQ(picker.Value("vllm:kv_cache_usage_perc"), 0.2);
  EXPECT_EQ(picker.Label("vllm:cache_config_info", "block_size"), 16);
  EXPECT_EQ(picker.Label("vllm:cache_config_info", "num_gpu_blocks"), 10);
  EXPECT_EQ(picker.Value("vllm:lora_requests_info"), std::nullopt) << "none: there are no adapters";
}

TEST_F(MetricsTest, HistogramsAddUp) {
  for (const double seconds : {0.00005, 0.003, 0.004, 1000.0}) {
    metrics_.inter_token_time.Add(seconds);
  }
  const std::string text = MetricsText(std::vector{Metrics()});
  const std::string name = "\ntriptych_inter_token_latency_seconds";
  const std::string labels = R"({model="small",attention="mla")";
  EXPECT_THAT(text, AllOf(HasSubstr(name + "_bucket" + labels +
                                    R"(,le="0.0001"} 1)"
                                    "\n"),
                          HasSubstr(name + "_bucket" + labels +
                                    R"(,le="0.0025"} 1)"
                                    "\n"),
                          HasSubstr(name + "_bucket" + labels +
                                    R"(,le="0.005"} 3)"
                                    "\n"),
                          HasSubstr(name + "_bucket" + labels +
                                    R"(,le="300"} 3)"
                                    "\n"),
                          HasSubstr(name + "_bucket" + labels +
                                    R"(,le="+Inf"} 4)"
                                    "\n"),
                          HasSubstr(name + "_count" + labels + "} 4\n"),
                          HasSubstr(name + "_sum" + labels + "} 1000.00705\n")));
}

// The exposed metrics equal server/README.md's table: names, types and labels.
TEST_F(MetricsTest, AreThoseOfTheTable) {
  std::set<std::string> exposed;
  ModelMetrics metrics = Metrics();
  metrics.expert_load.emplace();
  std::istringstream text(MetricsText(std::vector{metrics}));
  std::string name;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string hash, about, metric, type;
    words >> hash >> about >> metric >> type;
    if (about == "HELP" && line.ends_with('.')) name = metric;
    if (about == "TYPE") {
      EXPECT_EQ(metric, name) << "there is help of each, a sentence";
      exposed.insert(metric + " " + type);
    }
  }
  std::set<std::string> listed;
  std::ifstream readme(TRIPTYCH_SERVER_README);
  for (std::string line; std::getline(readme, line);) {
    if (!line.starts_with("| `triptych_") && !line.starts_with("| `vllm:")) continue;
    std::istringstream words(line);  // | `NAME` | TYPE |
    std::string bar, metric, type;
    words >> bar >> metric >> bar >> type;
    listed.insert(metric.substr(1, metric.size() - 2) + " " + type);
  }
  EXPECT_EQ(exposed, listed);
}

TEST_F(MetricsTest, WithoutModelsThereAreNoSeries) {
  EXPECT_THAT(MetricsText({}), Not(HasSubstr("{")));
}

}  // namespace
}  // namespace triptych::server::metrics_test
