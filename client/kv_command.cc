#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/commands.h"
#include "client/flags.h"
#include "client/format.h"
#include "client/output.h"
#include "engine/base/quantities.h"
#include "engine/base/table.h"

namespace triptych::client {
namespace {

struct KvFlags {
  v1::WatchKvCacheStatsRequest request;
  bool watch = false;
  bool sequences = false;
  bool json = false;
};

std::string StatsText(const v1::GetKvCacheStatsResponse& stats) {
  Table table({{"model"},
               {"pool"},
               {"used"},
               {"allocated"},
               {"shared"},
               {"evictable"},
               {"free"},
               {"peak allocated"},
               {"positions computed"},
               {"bytes per position"},
               {"MHA would use"},
               {"blocks free"},
               {"blocks evictable"},
               {"blocks evicted"},
               {"blocks"},
               {"positions per block"},
               {"sequences running"},
               {"sequences waiting"},
               {"preemptions"},
               {"requests finished"},
               {"requests cancelled"},
               {"requests failed"},
               {"requests refused"},
               {"prompt tokens"},
               {"prefix hit tokens"},
               {"generated tokens"}});
  for (const v1::KvCacheStats& model : stats.models()) {
    const v1::RequestCounts& requests = model.requests();
    table.AddRow({model.model(),
                  FormatBytes(model.pool_bytes()),
                  FormatBytes(model.used_bytes()),
                  FormatBytes(model.allocated_bytes()),
                  FormatBytes(model.shared_bytes()),
                  FormatBytes(model.evictable_bytes()),
                  FormatBytes(model.free_bytes()),
                  FormatBytes(model.peak_allocated_bytes()),
                  FormatCount(model.positions()),
                  FormatBytes(model.bytes_per_position()),
                  FormatBytes(model.mha_used_bytes()),
                  FormatCount(model.free_blocks()),
                  FormatCount(model.evictable_blocks()),
                  FormatCount(model.evicted_blocks()),
                  FormatCount(model.total_blocks()),
                  FormatCount(model.block_positions()),
                  FormatCount(model.running_sequences()),
                  FormatCount(model.waiting_sequences()),
                  FormatCount(model.preemptions()),
                  FormatCount(requests.finished()),
                  FormatCount(requests.cancelled()),
                  FormatCount(requests.failed()),
                  FormatCount(requests.refused()),
                  FormatCount(requests.prompt_tokens()),
                  FormatCount(requests.cached_prompt_tokens()),
                  FormatCount(requests.generated_tokens())});
  }
  std::vector<std::string> total = {"total",
                                    FormatBytes(stats.total_pool_bytes()),
                                    FormatBytes(stats.total_used_bytes()),
                                    FormatBytes(stats.total_allocated_bytes()),
                                    "",
                                    FormatBytes(stats.total_evictable_bytes()),
                                    FormatBytes(stats.total_free_bytes())};
  total.resize(table.columns());
  table.AddRow(std::move(total));
  return table.Sideways(LineWidth());
}

std::string SequencesText(const v1::ListSequencesResponse& response) {
  if (response.sequences().empty()) return "no live sequences\n";
  Table table({{"request", Table::Align::kLeft},
               {"model", Table::Align::kLeft},
               {"state", Table::Align::kLeft},
               {"prompt\ntokens"},
               {"prefix\nhits"},
               {"new\ntokens"},
               {"used"},
               {"allocated"},
               {"shared"},
               {"pre-\nempted"}});
  for (const v1::Sequence& sequence : response.sequences()) {
    const v1::KvCacheUsage& cache = sequence.kv_cache();
    const std::string choice = sequence.choice() > 0 ? "." + std::to_string(sequence.choice()) : "";
    table.AddRow({sequence.request_id() + choice, sequence.model(), Label(sequence.state()),
                  FormatCount(sequence.prompt_tokens()),
                  FormatCount(sequence.cached_prompt_tokens()),
                  FormatCount(sequence.generated_tokens()), FormatBytes(cache.used_bytes()),
                  FormatBytes(cache.allocated_bytes()), FormatBytes(cache.shared_bytes()),
                  FormatCount(sequence.preemptions())});
  }
  return table.ToString();
}

// Prints updates; on a terminal, each replaces the previous one.
class StatsDisplay {
 public:
  void Show(const v1::GetKvCacheStatsResponse& stats) {
    const std::string text = StatsText(stats);
    if (lines_ > 0) {
      // Move up to the first line, and clear to the end of the screen.
      Print(StdoutIsTerminal() ? "\x1b[" + std::to_string(lines_) + "A\x1b[J" : "\n");
    }
    Print(text);
    lines_ = std::count(text.begin(), text.end(), '\n');
  }

 private:
  int64_t lines_ = 0;  // of the last update
};

void ShowKvCache(const ServerFlags& server, const KvFlags& flags) {
  RequireOneServer(server);
  Session session(server);
  const std::string& model = flags.request.model();
  StatsDisplay display;
  const auto show = [&](const v1::GetKvCacheStatsResponse& stats) {
    if (flags.json) {
      PrintJson(stats);
    } else {
      display.Show(stats);
    }
  };
  if (flags.sequences) {
    v1::ListSequencesResponse response;
    session.Check(session.client().ListSequences(model, &response));
    if (flags.json) {
      PrintJson(response);
    } else {
      Print(SequencesText(response));
    }
  } else if (flags.watch) {
    session.Check(session.client().WatchKvCacheStats(flags.request, show));
  } else {
    v1::GetKvCacheStatsResponse stats;
    session.Check(session.client().GetKvCacheStats(model, &stats));
    show(stats);
  }
}

}  // namespace

void AddKvCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command = app.add_subcommand("kv", "Contents and costs of the KV caches");
  const auto flags = std::make_shared<KvFlags>();
  AddModelFlag(command, "Only this model [all]", *flags->request.mutable_model());
  CLI::Option* watch =
      command->add_flag("--watch", flags->watch, "Refresh the statistics until Ctrl-C");
  AddNumber<double>(command, "--interval", "Time between two updates [the server's default: 1]",
                    {limits::kWatchInterval.low / 1e3, limits::kWatchInterval.high / 1e3},
                    [flags](double seconds) {
                      using google::protobuf::util::TimeUtil;
                      *flags->request.mutable_interval() =
                          TimeUtil::MillisecondsToDuration(std::llround(seconds * 1e3));
                    })
      ->needs(watch)
      ->type_name("SECONDS");
  command->add_flag("--sequences", flags->sequences, "Live sequences instead of statistics")
      ->excludes(watch);
  command->add_flag("--json", flags->json, "Print each answer as a JSON line");
  SetFooter(command,
            "  triptych kv --watch --interval 0.5\n"
            "  triptych kv --sequences --model shakespeare-mla");
  command->callback([&server, flags] { ShowKvCache(server, *flags); });
}

}  // namespace triptych::client
