#include <cmath>
#include <memory>

#include "client/commands.h"
#include "client/flags.h"
#include "client/format.h"
#include "client/input.h"
#include "client/output.h"
#include "client/table.h"

namespace triptych::client {
namespace {

struct ScoreFlags {
  std::string model;
  InputFlags input;
  bool json = false;
};

void Score(const ServerFlags& server, const ScoreFlags& flags) {
  v1::ScoreRequest request;
  request.set_model(flags.model);
  SetInput(ReadInput(flags.input), *request.add_inputs());

  Session session(server);
  v1::ScoreResponse response;
  session.Check(session.client().Score(request, &response));
  if (flags.json) {
    PrintJson(response);
    return;
  }
  Table table({{"log-likelihood"}, {"tokens"}, {"nats per token"}, {"perplexity"}});
  const v1::ScoreResult result =
      response.results_size() > 0 ? response.results(0) : v1::ScoreResult();
  const bool any = result.scored_tokens() > 0;
  const double nats = -result.log_likelihood() / result.scored_tokens();
  table.AddRow({FormatDecimal(result.log_likelihood(), 3), FormatCount(result.scored_tokens()),
                any ? FormatDecimal(nats, 4) : "-", any ? FormatDecimal(std::exp(nats), 3) : "-"});
  Print(table.ToString());
}

}  // namespace

void AddScoreCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command = app.add_subcommand("score", "How likely a model finds a text");
  const auto flags = std::make_shared<ScoreFlags>();
  AddInputFlags(command, "TEXT", flags->input);
  AddModelFlag(command, kWhichModel, flags->model);
  command->add_flag("--json", flags->json, "Print the answer as JSON");
  SetFooter(command, "  triptych score --model shakespeare-gqa \"To be, or not to be\"");
  command->callback([&server, flags] { Score(server, *flags); });
}

}  // namespace triptych::client
