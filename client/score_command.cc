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
  SetInput(ReadInput(flags.input), request);

  Session session(server);
  v1::ScoreResponse response;
  session.Check(session.client().Score(request, &response));
  if (flags.json) {
    PrintJson(response);
    return;
  }
  Table table({{"log-likelihood"}, {"tokens"}, {"nats per token"}, {"perplexity"}});
  const bool any = response.scored_tokens() > 0;
  const double nats = -response.log_likelihood() / response.scored_tokens();
  table.AddRow({FormatDecimal(response.log_likelihood(), 3), FormatCount(response.scored_tokens()),
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
