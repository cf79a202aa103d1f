#include <chrono>
#include <memory>
#include <string>

#include "client/commands.h"
#include "client/flags.h"
#include "client/output.h"

namespace triptych::client {
namespace {

using grpc::health::v1::HealthCheckResponse;

// A probe that takes longer has failed.
constexpr std::chrono::seconds kDefaultTimeout{3};

std::string StatusName(HealthCheckResponse::ServingStatus status) {
  const std::string name = HealthCheckResponse::ServingStatus_Name(status);
  return name.empty() ? std::to_string(static_cast<int>(status)) : name;
}

void CheckHealth(ServerFlags server, const std::string& service) {
  RequireOneServer(server);
  if (!server.timeout) server.timeout = kDefaultTimeout;
  Connection connection = ReadConnection(server);
  connection.channel.retry = false;  // a probe reports the current state
  Session session(connection);
  HealthCheckResponse response;
  const grpc::Status status = session.client().CheckHealth(service, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    throw Failure("no service '" + service + "' at " + server.address);
  }
  session.Check(status);
  if (response.status() != HealthCheckResponse::SERVING) {
    throw Failure((service.empty() ? "the server" : service) + " at " + server.address + " is " +
                  StatusName(response.status()));
  }
  // The server is serving even if this call fails.
  v1::ListModelsResponse models;
  const bool says = session.client().ListModels(&models).ok() && !models.server_version().empty();
  Print("SERVING" + (says ? ", version " + models.server_version() : "") + "\n");
}

}  // namespace

void AddHealthCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command = app.add_subcommand(
      "health", "Check that the server, or one of its services, is serving; for probes");
  const auto service = std::make_shared<std::string>();
  command->add_option("SERVICE", *service, "Full name of a service [the whole server]");
  SetFooter(
      command,
      "  triptych health\n"
      "  triptych health triptych.v1.InferenceService\n\n"
      "The exit status is 0 only if the answer is SERVING. The default of --timeout is 3 seconds.");
  command->callback([&server, service] { CheckHealth(server, *service); });
}

}  // namespace triptych::client
