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
  CLI::App* command = app.add_subcommand(
      "drain", "Finish the live requests of a server and stop it; for operators");
  const auto request = std::make_shared<v1::DrainRequest>();
  AddNumber<double>(
      command, "--within", "Time until live requests are cancelled [the server's]", {0, 86400},
      [request](double seconds) {
        using google::protobuf::util::TimeUtil;
        *request->mutable_timeout() = TimeUtil::MillisecondsToDuration(std::llround(seconds * 1e3));
      })
      ->type_name("SECONDS");
  SetFooter(
      command,
      "  triptych drain --within 60\n\n"
      "Drains like SIGTERM. The default of --within is the server's --drain-timeout. Requires the\n"
      "scope admin.");
  command->callback([&server, request] { Drain(server, *request); });
}

}  // namespace triptych::client
