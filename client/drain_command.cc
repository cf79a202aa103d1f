#include <google/protobuf/util/time_util.h>

#include <cmath>
#include <memory>

#include "client/commands.h"
#include "client/flags.h"
#include "client/output.h"
#include "client/session.h"
#include "engine/base/quantities.h"

namespace triptych::client {
namespace {

void Drain(const ServerFlags& server, const v1::DrainRequest& request) {
  RequireOneServer(server);
  Session session(server);
  v1::DrainResponse response;
  session.Check(session.client().Drain(request, &response));
  Print("draining, " + FormatCount(response.live_requests()) + " live requests\n");
}

}  // namespace

void AddDrainCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command =
      app.add_subcommand("drain", "Let a server end its live requests, and stop; for operators");
  const auto request = std::make_shared<v1::DrainRequest>();
  AddNumber<double>(command, "--within", "Cancel those that take longer", {0, 86400},
                    [request](double seconds) {
                      using google::protobuf::util::TimeUtil;
                      *request->mutable_timeout() =
                          TimeUtil::MillisecondsToDuration(std::llround(seconds * 1e3));
                    })
      ->type_name("SECONDS");
  SetFooter(
      command,
      "  triptych drain --within 60\n\n"
      "As SIGTERM does, whose --drain-timeout holds without --within. Needs the scope admin.");
  command->callback([&server, request] { Drain(server, *request); });
}

}  // namespace triptych::client
