#include "client/server_flags.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "client/flags.h"
#include "client/input.h"
#include "client/pem.h"
#include "engine/base/environment.h"

namespace triptych::client {
namespace {

constexpr char kServerVariable[] = "TRIPTYCH_SERVER";
constexpr char kTokenVariable[] = "TRIPTYCH_TOKEN";
constexpr size_t kMaxTokenBytes = 4096;

std::string CheckAddress(const std::string& text) {
  const std::optional<std::string> allowed = FindBadAddress(text);
  return allowed ? "must be " + *allowed + ", not '" + text + "'" : "";
}

void Refuse(const std::string& flag, const std::string& file,
            const std::optional<std::string>& why) {
  if (why) throw CLI::ValidationError(flag, "'" + file + "': " + *why);
}

TlsOptions ReadTls(const ServerFlags& flags) {
  TlsOptions tls;
  if (flags.ca_file) {
    tls.authorities = ReadFile("--ca", *flags.ca_file);
    Refuse("--ca", *flags.ca_file, FindBadCertificates(tls.authorities));
  }
  if (flags.certificate_file) {
    tls.certificate = ReadFile("--cert", *flags.certificate_file);
    Refuse("--cert", *flags.certificate_file, FindBadCertificates(tls.certificate));
    tls.key = ReadFile("--key", *flags.key_file);
    Refuse("--key", *flags.key_file, FindBadKey(tls.key, tls.certificate));
  }
  if (flags.tls_name) {
    tls.name = *flags.tls_name;
  } else if (IsAddressList(flags.address)) {
    throw CLI::ValidationError(
        "--tls-name",
        "required for TLS with several addresses: the name in all their certificates");
  }
  return tls;
}

// `source` is for the error, which does not show the token.
std::string CheckedToken(std::string token, const std::string& source) {
  const bool visible =
      std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (token.empty() || token.size() > kMaxTokenBytes || !visible) {
    throw CLI::ValidationError(source, "must hold a token: one line of 1 to " +
                                           std::to_string(kMaxTokenBytes) +
                                           " visible ASCII characters");
  }
  return token;
}

std::string ReadToken(const ServerFlags& flags) {
  if (flags.token_file) {
    std::string token = ReadFile("--token-file", *flags.token_file);
    token.erase(token.find_last_not_of("\r\n") + 1);
    return CheckedToken(std::move(token), "--token-file: '" + *flags.token_file + "'");
  }
  const char* token = std::getenv(kTokenVariable);
  return token == nullptr || *token == '\0' ? "" : CheckedToken(token, kTokenVariable);
}

}  // namespace

void AddServerFlags(CLI::App& app, ServerFlags& flags) {
  app.add_option("--server", flags.address,
                 "HOST:PORT or unix:PATH; to balance: dns:///HOST:PORT or IP:PORT,...")
      ->type_name("ADDRESS")
      ->check(CheckAddress)
      ->envname(kServerVariable)
      ->capture_default_str();
  AddNumber<double>(&app, "--timeout", "Deadline of each call [none]", {0.001, 1e6},
                    [&](double seconds) {
                      flags.timeout = std::chrono::milliseconds(std::llround(seconds * 1e3));
                    })
      ->type_name("SECONDS");
  app.add_flag("--tls", flags.tls, "Use TLS and check the server's certificate");
  app.add_option("--ca", flags.ca_file,
                 "PEM file of the server's certificate authorities [the system's]")
      ->type_name("FILE");
  CLI::Option* certificate =
      app.add_option("--cert", flags.certificate_file, "PEM file of the client's certificate")
          ->type_name("FILE");
  CLI::Option* key =
      app.add_option("--key", flags.key_file, "PEM file of the private key of --cert")
          ->type_name("FILE")
          ->needs(certificate);
  certificate->needs(key);
  app.add_option("--tls-name", flags.tls_name,
                 "Name in the server's certificate [the host of --server]")
      ->type_name("NAME")
      ->check(CheckText);
  app.add_option("--token-file", flags.token_file,
                 "File with the bearer token [the variable " + std::string(kTokenVariable) + "]")
      ->type_name("FILE");
}

void AddServerFlagsFromEnvironment(std::vector<std::string>& arguments) {
  AddFlagFromEnvironment("--server", kServerVariable, arguments);
}

Connection ReadConnection(const ServerFlags& flags) {
  Connection connection;
  connection.channel.address = flags.address;
  if (flags.tls || flags.ca_file || flags.certificate_file || flags.tls_name) {
    connection.channel.tls = ReadTls(flags);
  }
  connection.call.timeout = flags.timeout;
  connection.call.token = ReadToken(flags);
  return connection;
}

void RequireOneServer(const ServerFlags& flags) {
  if (NamesSeveralServers(flags.address)) {
    throw CLI::ValidationError("--server", "must be one address here, not '" + flags.address + "'");
  }
}

}  // namespace triptych::client
