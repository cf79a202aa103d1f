#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <variant>

#include "client/commands.h"
#include "client/flags.h"
#include "client/format.h"
#include "client/input.h"
#include "client/output.h"
#include "engine/base/quantities.h"
#include "engine/base/table.h"

namespace triptych::client {
namespace {

constexpr int kMaxInputs = 64;  // per call

struct ScoreFlags {
  std::string model;
  InputFlags input;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  bool lines = false;
  bool json = false;
};

// The beginning of the text or the ids, for one line of the table.
std::string Beginning(const v1::ScoreInput& input) {
  constexpr size_t kMaxBytes = 44;
  std::string text = OneLine(input.text());
  for (const int32_t id : input.tokens().ids()) {
    if (text.size() > kMaxBytes) break;
    if (!text.empty()) text += ',';
    text += std::to_string(id);
  }
  if (text.size() <= kMaxBytes) return text;
  size_t end = kMaxBytes;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // not within a character
  text.resize(end);
  return text + "...";
}

// Adds one input, or one for each non-empty line of it.
void AddInputs(const InputFlags& flags, bool lines, v1::ScoreRequest& request) {
  const Input input = ReadInput(flags);
  if (!lines) {
    SetInput(flags, input, *request.add_inputs());
    return;
  }
  std::istringstream text(std::get<std::string>(input));
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) SetInput(flags, line, *request.add_inputs());
  }
  if (request.inputs().empty() || request.inputs_size() > kMaxInputs) {
    throw CLI::ValidationError("--lines", "must find 1 to " + std::to_string(kMaxInputs) +
                                              " lines of text, not " +
                                              std::to_string(request.inputs_size()));
  }
}

void Score(const ServerFlags& server, const ScoreFlags& flags) {
  v1::ScoreRequest request;
  request.set_model(flags.model);
  AddInputs(flags.input, flags.lines, request);
  request.set_priority(flags.priority);

  Session session(server);
  v1::ScoreResponse response;
  session.Check(session.client().Score(request, &response));
  if (flags.json) {
    PrintJson(response);
    return;
  }
  Table table({{"log-likelihood"},
               {"tokens"},
               {"nats per token"},
               {"perplexity"},
               {"text", Table::Align::kLeft}});
  for (int i = 0; i < response.results_size() && i < request.inputs_size(); ++i) {
    const v1::ScoreResult& result = response.results(i);
    const bool any = result.scored_tokens() > 0;
    const double nats = -result.log_likelihood() / result.scored_tokens();
    table.AddRow({FormatDecimal(result.log_likelihood(), 3), FormatCount(result.scored_tokens()),
                  any ? FormatDecimal(nats, 4) : "-", any ? FormatDecimal(std::exp(nats), 3) : "-",
                  Beginning(request.inputs(i))});
  }
  Print(table.ToString());
}

}  // namespace

void AddScoreCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command = app.add_subcommand(
      "score", "Log-likelihood and perplexity of a text, or of each of its lines");
  const auto flags = std::make_shared<ScoreFlags>();
  AddInputFlags(command, "TEXT", flags->input);
  command->add_flag("--lines", flags->lines, "Score each line separately, up to 64")
      ->excludes("--tokens");
  AddModelFlag(command, kWhichModel, flags->model);
  AddPriorityFlag(command, [flags](v1::Priority priority) { flags->priority = priority; });
  command->add_flag("--json", flags->json, "Print the answer as JSON");
  SetFooter(command,
            "  triptych score --model shakespeare-gqa \"To be, or not to be\"\n"
            "  triptych score --lines --file candidates.txt");
  command->callback([&server, flags] { Score(server, *flags); });
}

}  // namespace triptych::client
