// Where a server listens and whom it lets in, whatever transport it is.
#ifndef TRIPTYCH_SERVER_CORE_TRANSPORT_OPTIONS_H_
#define TRIPTYCH_SERVER_CORE_TRANSPORT_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace triptych::server {

struct AccessOptions {
  // Lines of `NAME SCOPE[,SCOPE...] SHA256HEX`: who may do what with the token of that SHA-256.
  // Empty lines and those that begin with # count for nothing. Without a file no token is asked
  // for: every caller has the scopes inference and statistics, and admin if it is on this machine.
  std::optional<std::filesystem::path> tokens;
  // Without tokens, admin is everybody's.
  bool insecure = false;
};

// PEM files, read anew when they change.
struct TlsOptions {
  std::filesystem::path certificate;  // the server's and those that lead to its authority
  std::filesystem::path key;
  // Whose certificates clients must bring; none is asked for if absent.
  std::optional<std::filesystem::path> client_authority;
};

// What one connection, or all of them, may take. What the transport cannot limit is not here.
struct TransportLimits {
  int max_streams = 100;                 // calls at once on a connection
  int64_t max_message_bytes = 64 << 10;  // of a request
  int max_metadata_bytes = 16 << 10;     // of a request's headers
  int64_t max_memory_bytes = 256 << 20;  // of the transport's own, all connections together
  std::chrono::milliseconds max_idle{std::chrono::minutes(5)};  // without a call; then it is closed
  // After which a connection takes no new calls; those that it has go on.
  std::chrono::milliseconds max_age{std::chrono::hours(1)};
  // After which a write that its client does not take ends the call. Of HTTP, a mebibyte of one.
  std::chrono::milliseconds stall_timeout{std::chrono::seconds(30)};
  // A client may ping this often, with calls or without.
  std::chrono::milliseconds min_ping_interval{std::chrono::seconds(9)};
  // For a whole request to arrive, from its first byte on. Of HTTP; gRPC bounds what it buffers.
  std::chrono::milliseconds max_request_time{std::chrono::seconds(60)};
  int max_connections = 4096;          // of HTTP
  int max_address_connections = 2048;  // of HTTP, from one address
  // The server pings a silent client this often, and closes what does not answer in time.
  std::chrono::milliseconds keepalive{std::chrono::seconds(60)};
  std::chrono::milliseconds keepalive_timeout{std::chrono::seconds(20)};
};

// Has the server drain as SIGTERM does, within that time or else its own, because a client asked
// for it. Must not block.
using RequestDrain = std::function<void(std::optional<std::chrono::milliseconds> timeout,
                                        const std::string& client)>;

struct TransportOptions {
  // HOST:PORT or [IPV6]:PORT; port 0 lets the system choose.
  std::string listen = "127.0.0.1:50051";
  AccessOptions access;
  // The same, where HTTP is spoken; nowhere if absent.
  std::optional<std::string> http = {};
  // Names by which browsers may ask for it where neither tokens nor certificates are asked for,
  // beside addresses, localhost and the host of `http`.
  std::vector<std::string> http_hosts = {};
  std::optional<TlsOptions> tls;  // unencrypted if absent; of all addresses
  TransportLimits limits;
  bool reflection = true;
  // Asked before every request that is computed.
  std::function<bool()> is_memory_short = [] { return false; };
  // Called once, on any thread, with one line when a GPU can compute no more. Requests fail then.
  std::function<void(const std::string& error)> device_lost = [](const std::string&) {};
  RequestDrain request_drain = [](std::optional<std::chrono::milliseconds>, const std::string&) {};
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TRANSPORT_OPTIONS_H_
