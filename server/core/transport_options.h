// Options of all transports: addresses, access, TLS and limits.
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
  // File of bearer tokens, in lines `NAME SCOPE[,SCOPE...] SHA256HEX` (TokenList). Without a file
  // no token is required: every caller has the scopes inference and statistics, and callers on this
  // machine also admin.
  std::optional<std::filesystem::path> tokens;
  // Without tokens, every caller also has the scope admin.
  bool insecure = false;
};

// PEM files, reloaded when they change.
struct TlsOptions {
  std::filesystem::path certificate;  // the server's certificate chain
  std::filesystem::path key;
  // Authorities of the certificates that clients must present; absent: none is required.
  std::optional<std::filesystem::path> client_authority;
};

// Limits of one connection, or of all together, that a transport enforces.
struct TransportLimits {
  int max_streams = 100;                 // concurrent calls on a connection
  int64_t max_message_bytes = 64 << 10;  // of a request
  int max_metadata_bytes = 16 << 10;     // of a request's headers
  int64_t max_memory_bytes = 256 << 20;  // of the transport's buffers, all connections together
  std::chrono::milliseconds max_idle{std::chrono::minutes(5)};  // without a call, then closed
  // Age at which a connection takes no new calls; calls in progress continue.
  std::chrono::milliseconds max_age{std::chrono::hours(1)};
  // Time for the client to read one write (HTTP: each MiB of it) before the call is ended.
  std::chrono::milliseconds stall_timeout{std::chrono::seconds(30)};
  // Minimum interval of a client's pings, with or without calls.
  std::chrono::milliseconds min_ping_interval{std::chrono::seconds(9)};
  // HTTP: time for a whole request to arrive, from its first byte. gRPC bounds its buffers instead.
  std::chrono::milliseconds max_request_time{std::chrono::seconds(60)};
  // HTTP: time after which a stream without output sends a comment.
  std::chrono::milliseconds max_silence{std::chrono::seconds(5)};
  int max_connections = 4096;          // HTTP
  int max_address_connections = 2048;  // HTTP, from one address
  // Idle time after which the server pings a client, and time for the reply before it disconnects.
  std::chrono::milliseconds keepalive{std::chrono::seconds(60)};
  std::chrono::milliseconds keepalive_timeout{std::chrono::seconds(20)};
};

// Starts a drain as SIGTERM does, on behalf of `client`; `timeout` replaces --drain-timeout. Must
// not block.
using RequestDrain = std::function<void(std::optional<std::chrono::milliseconds> timeout,
                                        const std::string& client)>;

struct TransportOptions {
  // HOST:PORT or [IPV6]:PORT; port 0 lets the system choose.
  std::string listen = "127.0.0.1:50051";
  AccessOptions access;
  // Address of HTTP, as above; absent: HTTP is off.
  std::optional<std::string> http = {};
  // Host header values that HTTP accepts where no token or certificate is required, in addition to
  // those of HostNames.
  std::vector<std::string> http_hosts = {};
  // Origins whose web pages may read HTTP's responses (CrossOrigin).
  std::vector<std::string> http_origins = {};
  // Whether prompts and texts of HTTP name special tokens unless their parse_special says
  // otherwise.
  bool http_parse_special = true;
  std::optional<TlsOptions> tls;  // of all addresses; absent: unencrypted
  TransportLimits limits;
  bool reflection = true;
  // Called before every request that computes.
  std::function<bool()> is_memory_short = [] { return false; };
  // Called once, on any thread, with a one-line error when a GPU fails for good. Requests then
  // fail.
  std::function<void(const std::string& error)> device_lost = [](const std::string&) {};
  RequestDrain request_drain = [](std::optional<std::chrono::milliseconds>, const std::string&) {};
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TRANSPORT_OPTIONS_H_
