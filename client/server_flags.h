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

// Which server, and how to speak to it: what every command takes.
struct ServerFlags {
  std::string address = "127.0.0.1:50051";
  std::optional<std::chrono::milliseconds> timeout;
  bool tls = false;  // also given by each of the next four
  std::optional<std::string> ca_file;
  std::optional<std::string> certificate_file;
  std::optional<std::string> key_file;
  std::optional<std::string> tls_name;
  std::optional<std::string> token_file;  // absent: the variable TRIPTYCH_TOKEN, if it is set
};

void AddServerFlags(CLI::App& app, ServerFlags& flags);
// Puts the flags that variables set before the arguments.
void AddServerFlagsFromEnvironment(std::vector<std::string>& arguments);

// What the flags say, with the files read.
struct Connection {
  ChannelOptions channel;
  CallOptions call;
};

// Throws CLI::ValidationError for a file that cannot be read or used, in one line that names flag
// and file; the token is in no message.
Connection ReadConnection(const ServerFlags& flags);

// For a command that shows or changes one server. Throws CLI::ValidationError for several.
void RequireOneServer(const ServerFlags& flags);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_SERVER_FLAGS_H_
