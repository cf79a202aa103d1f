// Flags for the server, TLS and credentials.
#ifndef TRIPTYCH_CLIENT_SERVER_FLAGS_H_
#define TRIPTYCH_CLIENT_SERVER_FLAGS_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/channel.h"
#include "client/client.h"

namespace CLI {
class App;
}  // namespace CLI

namespace triptych::client {

// Address of the server, TLS and credentials: flags of every command.
struct ServerFlags {
  std::string address = "127.0.0.1:50051";
  std::optional<std::chrono::milliseconds> timeout;
  bool tls = false;  // implied by the next four
  std::optional<std::string> ca_file;
  std::optional<std::string> certificate_file;
  std::optional<std::string> key_file;
  std::optional<std::string> tls_name;
  std::optional<std::string> token_file;  // absent: the variable TRIPTYCH_TOKEN, if it is set
};

void AddServerFlags(CLI::App& app, ServerFlags& flags);
// Prepends the flags that environment variables set to the arguments.
void AddServerFlagsFromEnvironment(std::vector<std::string>& arguments);

// Options from the flags and their files.
struct Connection {
  ChannelOptions channel;
  CallOptions call;
};

// Throws CLI::ValidationError for a file that cannot be read or used, in one line that names flag
// and file. No message contains the token.
Connection ReadConnection(const ServerFlags& flags);

// Throws CLI::ValidationError for several servers. For commands that show or change one server.
void RequireOneServer(const ServerFlags& flags);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_SERVER_FLAGS_H_
