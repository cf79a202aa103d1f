#include "client/load_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "client/format.h"
#include "client/status_text.h"
#include "engine/base/quantities.h"
#include "engine/base/table.h"

namespace triptych::client {
namespace {

struct Quantile {
  const char* name;
  double p;
};
constexpr std::array<Quantile, 4> kQuantiles = {
    {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}}};

std::vector<Table::Column> QuantileColumns(const std::string& first) {
  std::vector<Table::Column> columns = {{first, Table::Align::kLeft}};
  for (const Quantile& quantile : kQuantiles) columns.push_back({quantile.name});
  columns.push_back({"max"});
  columns.push_back({"mean"});
  return columns;
}

// `format`: double to text.
template <typename Format>
void AddQuantileRow(Table& table, const std::string& name, const SampleSet& samples,
                    Format&& format) {
  std::vector<std::string> cells = {name};
  const auto add = [&](double value) {
    cells.push_back(samples.count() > 0 ? format(value) : "-");
  };
  for (const Quantile& quantile : kQuantiles) add(samples.Percentile(quantile.p));
  add(samples.max());
  add(samples.mean());
  table.AddRow(std::move(cells));
}

double Rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

std::string CountsText(const LoadResults& results) {
  std::string text = FormatCount(results.started) + " requests in " +
                     FormatSeconds(results.seconds) + ": " + FormatCount(results.completed) +
                     " completed, " + FormatCount(results.cancelled) + " cancelled as planned, " +
                     FormatCount(results.failed) + " failed";
  if (results.truncated > 0) {
    text += " (" + FormatCount(results.truncated) + " after some of the output)";
  }
  if (results.expired > 0) text += ", " + FormatCount(results.expired) + " ended by deadlines";
  if (results.interrupted > 0) text += ", " + FormatCount(results.interrupted) + " interrupted";
  return text + "\n";
}

nlohmann::ordered_json Quantiles(const SampleSet& samples) {
  nlohmann::ordered_json json = {{"count", samples.count()}};
  for (const Quantile& quantile : kQuantiles) json[quantile.name] = samples.Percentile(quantile.p);
  json["max"] = samples.max();
  json["mean"] = samples.mean();
  return json;
}

}  // namespace

std::string LoadText(const LoadResults& results, const LoadPace& pace, const std::string& address) {
  std::string text = CountsText(results);
  Table throughput({{"throughput", Table::Align::kLeft}, {"total"}, {"per second"}});
  for (const auto& [name, count] : {std::pair("requests completed", results.completed),
                                    {"prompt tokens", results.prompt_tokens},
                                    {"generated tokens", results.generated_tokens}}) {
    throughput.AddRow({name, FormatCount(count),
                       FormatDecimal(Rate(static_cast<double>(count), results.seconds), 1)});
  }
  text += "\n" + throughput.ToString();

  Table latency(QuantileColumns("latency"));
  AddQuantileRow(latency, "time to first token", results.time_to_first_token, FormatSeconds);
  AddQuantileRow(latency, "inter-token", results.inter_token, FormatSeconds);
  AddQuantileRow(latency, "between messages", results.message_gap, FormatSeconds);
  AddQuantileRow(latency, "end to end", results.end_to_end, FormatSeconds);
  if (pace.rate) AddQuantileRow(latency, "sent late by", results.start_delay, FormatSeconds);
  text += "\n" + latency.ToString();

  const auto bytes = [](double value) { return FormatBytes(std::llround(value)); };
  Table cache(QuantileColumns("cache per request"));
  AddQuantileRow(cache, "used", results.used_bytes, bytes);
  AddQuantileRow(cache, "peak allocated", results.peak_allocated_bytes, bytes);
  AddQuantileRow(cache, "own at its end", results.own_bytes, bytes);
  AddQuantileRow(cache, "shared at its end", results.shared_bytes, bytes);
  text += "\n" + cache.ToString();
  text += FormatCount(results.cached_prompt_tokens) + " prefix hit tokens, " +
          FormatCount(results.preemptions) + " preemptions\n";

  if (!results.errors.empty()) {
    Table errors({{"errors"}, {"first error", Table::Align::kLeft}});
    for (const auto& [code, error] : results.errors) {
      errors.AddRow({FormatCount(error.count), DescribeStatus(error.first, address)});
    }
    text += "\n" + errors.ToString();
  }
  if (results.shortened > 0) {
    text +=
        "\n" + FormatCount(results.shortened) + " requests were shortened to fit the context.\n";
  }
  if (!results.inter_token.exact()) {
    text += "\nPercentiles are those of " + FormatCount(SampleSet::kKept) +
            " samples, drawn at random from all.\n";
  }
  return text;
}

nlohmann::ordered_json LoadJson(const LoadResults& results, const WorkloadOptions& options,
                                const LoadPace& pace, const std::string& address) {
  nlohmann::ordered_json errors = nlohmann::ordered_json::array();
  for (const auto& [code, error] : results.errors) {
    errors.push_back({{"code", static_cast<int>(code)},
                      {"count", error.count},
                      {"first", DescribeStatus(error.first, address)}});
  }
  nlohmann::ordered_json load = {{"model", options.model}, {"seed", options.seed}};
  if (pace.rate) {
    load["rate"] = *pace.rate;
  } else {
    load["concurrency"] = pace.concurrency;
  }
  return {
      {"server", address},
      {"load", load},
      {"seconds", results.seconds},
      {"requests",
       {{"started", results.started},
        {"completed", results.completed},
        {"cancelled", results.cancelled},
        {"expired", results.expired},
        {"failed", results.failed},
        {"truncated", results.truncated},
        {"interrupted", results.interrupted},
        {"shortened", results.shortened},
        {"completed_per_second", Rate(static_cast<double>(results.completed), results.seconds)}}},
      {"errors", errors},
      {"tokens",
       {{"prompt", results.prompt_tokens},
        {"prompt_cached", results.cached_prompt_tokens},
        {"generated", results.generated_tokens},
        {"prompt_per_second", Rate(static_cast<double>(results.prompt_tokens), results.seconds)},
        {"generated_per_second",
         Rate(static_cast<double>(results.generated_tokens), results.seconds)}}},
      {"preemptions", results.preemptions},
      {"seconds_to_first_token", Quantiles(results.time_to_first_token)},
      {"seconds_between_tokens", Quantiles(results.inter_token)},
      {"seconds_between_messages", Quantiles(results.message_gap)},
      {"seconds_end_to_end", Quantiles(results.end_to_end)},
      {"seconds_sent_late", Quantiles(results.start_delay)},
      {"cache_bytes",
       {{"used", Quantiles(results.used_bytes)},
        {"peak_allocated", Quantiles(results.peak_allocated_bytes)},
        {"own", Quantiles(results.own_bytes)},
        {"shared", Quantiles(results.shared_bytes)}}},
  };
}

std::string LoadProgressLine(const LoadProgress& before, const LoadProgress& now) {
  const auto tokens = static_cast<double>(now.generated_tokens - before.generated_tokens);
  std::string line =
      FormatCount(std::llround(now.seconds)) + " s: " + FormatCount(now.completed) + " completed";
  if (now.cancelled > 0) line += ", " + FormatCount(now.cancelled) + " cancelled";
  if (now.failed > 0) line += ", " + FormatCount(now.failed) + " failed";
  return line + ", " + FormatCount(now.live) + " in flight, " +
         FormatDecimal(Rate(tokens, now.seconds - before.seconds), 0) + " tokens/s";
}

}  // namespace triptych::client
