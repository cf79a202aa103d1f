#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/commands.h"
#include "client/flags.h"
#include "client/format.h"
#include "client/generation.h"
#include "client/input.h"
#include "client/output.h"
#include "engine/base/quantities.h"
#include "engine/base/table.h"

namespace triptych::client {
namespace {

struct CompareFlags {
  v1::GenerateRequest request;  // without model and prompt
  InputFlags input;
  std::vector<std::string> models;
};

struct Result {
  v1::Model model;
  v1::Usage usage;
};

// The models named `names`, in that order; all models if `names` is empty.
std::vector<v1::Model> SelectModels(Session& session, const std::vector<std::string>& names) {
  v1::ListModelsResponse response;
  session.Check(session.client().ListModels(&response));
  if (response.models().empty()) throw Failure("the server has no models");
  if (names.empty()) return {response.models().begin(), response.models().end()};
  std::vector<v1::Model> selected;
  for (const std::string& name : names) {
    const auto model = std::find_if(response.models().begin(), response.models().end(),
                                    [&](const v1::Model& m) { return m.name() == name; });
    if (model == response.models().end()) {
      std::string known;
      for (const v1::Model& m : response.models()) known += (known.empty() ? "" : ", ") + m.name();
      throw Failure("no model '" + name + "' at the server; allowed: " + known);
    }
    selected.push_back(*model);
  }
  return selected;
}

void PrintTable(const std::vector<Result>& results) {
  Table table({{"model"},
               {"attention"},
               {"elements per position"},
               {"bytes per position"},
               {"positions"},
               {"cache used"},
               {"cache allocated"},
               {"peak allocated"},
               {"MHA would use"},
               {"smaller than MHA"},
               {"tokens/s"},
               {"time to first token"}});
  for (const auto& [model, usage] : results) {
    const v1::KvCacheUsage& cache = usage.kv_cache();
    table.AddRow({model.name(), Label(model.attention()),
                  FormatCount(model.elements_per_position()),
                  FormatBytes(cache.bytes_per_position()), FormatCount(cache.positions()),
                  FormatBytes(cache.used_bytes()), FormatBytes(cache.allocated_bytes()),
                  FormatBytes(cache.peak_allocated_bytes()), FormatBytes(cache.mha_used_bytes()),
                  FormatSaving(cache.mha_used_bytes(), cache.used_bytes()), FormatDecodeRate(usage),
                  FormatSeconds(TimeToFirstToken(usage))});
  }
  Print(table.Sideways(LineWidth()));
}

// Prints bars of the bytes per position, which do not depend on the positions of each output.
void PrintBars(const std::vector<Result>& results) {
  constexpr int kBarWidth = 56;
  int64_t most = 1;
  for (const Result& result : results) most = std::max(most, result.model.bytes_per_position());
  Table table({{"cache bytes per position", Table::Align::kLeft},
               {"", Table::Align::kLeft},
               {""},
               {"vs MHA"}});
  for (const auto& [model, usage] : results) {
    const int64_t bytes = model.bytes_per_position();
    table.AddRow({model.name(),
                  FormatBar(static_cast<double>(bytes) / static_cast<double>(most), kBarWidth),
                  FormatBytes(bytes), FormatSaving(model.mha_bytes_per_position(), bytes)});
  }
  Print(table.ToString());
}

void Compare(const ServerFlags& server, const CompareFlags& flags) {
  v1::GenerateRequest request = flags.request;
  SetInput(flags.input, ReadInput(flags.input), request);

  Session session(server);
  std::vector<Result> results;
  for (const v1::Model& model : SelectModels(session, flags.models)) {
    PrintHeading(model.name() + " (" + Label(model.attention()) + ")");
    Print(Dim(Harmless(request.text())));
    request.set_model(model.name());
    results.push_back({model, Generate(session, request, PrintText).front().usage()});
    EndLine();
    Print("\n");
  }
  PrintTable(results);
  Print("\n");
  PrintBars(results);
}

}  // namespace

void AddCompareCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command = app.add_subcommand(
      "compare", "Continue a prompt with several models, and compare their cache costs");
  const auto flags = std::make_shared<CompareFlags>();
  AddInputFlags(command, "PROMPT", flags->input);
  AddTexts(command, "--model", "Model to compare; repeatable [all]",
           [flags](const std::vector<std::string>& names) { flags->models = names; })
      ->type_name("NAME");
  AddGenerationFlags(command, flags->request);
  SetFooter(command,
            "  triptych compare -n 100 --temperature 0 \"To be, or not to be\"\n"
            "  triptych compare --model shakespeare-mha --model shakespeare-mla < prompt.txt");
  command->callback([&server, flags] { Compare(server, *flags); });
}

}  // namespace triptych::client
