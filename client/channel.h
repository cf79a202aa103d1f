// Channels to one or several servers.
#ifndef TRIPTYCH_CLIENT_CHANNEL_H_
#define TRIPTYCH_CLIENT_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

namespace triptych::client {

// Check of the server's certificate, and the client's own certificate. Texts are in PEM.
struct TlsOptions {
  std::string authorities;  // signers of the server's certificate; empty: the system's
  std::string certificate;  // the client's chain up to its authority; may be empty
  std::string key;          // of the client's certificate
  std::string name;         // in the server's certificate; empty: the address's host
};

struct ChannelOptions {
  // HOST:PORT or unix:PATH. Several servers: dns:///HOST:PORT, a name with an address for each, or
  // IP:PORT,IP:PORT... (all IPv4, or all IPv6 in brackets).
  std::string address;
  std::optional<TlsOptions> tls = std::nullopt;  // absent: plaintext
  // Retries calls up to 4 times that end with UNAVAILABLE or RESOURCE_EXHAUSTED, or with CANCELLED
  // by the server, before the first response. The backoff is 0.1 s, doubled each time, or the
  // server's hint (grpc-retry-pushback-ms). A failure costs a token and a success returns a tenth
  // of one; there are no retries while 500 of 1000 tokens are spent.
  bool retry = true;
  // Do not share the connection of another channel to the same address.
  bool own_connection = false;
  // Bytes of a reply that the server may send ahead of the call's reads. Absent: gRPC adapts it to
  // the connection.
  std::optional<int32_t> window_bytes = std::nullopt;
};

// nullopt if ChannelOptions accepts `address`; else the allowed forms.
std::optional<std::string> FindBadAddress(const std::string& address);
// True for IP:PORT,IP:PORT...
bool IsAddressList(const std::string& address);
// True for such a list, or dns:///HOST:PORT.
bool NamesSeveralServers(const std::string& address);

// Creates a channel, which connects at the first call. Balances calls round-robin over the
// reachable addresses of the host name or the list. With several servers, skips those that report
// NOT_SERVING for triptych.v1.InferenceService. Detects a silently lost connection within 30 s.
//
// Resolves a name again when a connection ends: a new address gets calls once an old one is gone,
// or too old (server/README.md#limits). Ignores proxies in the environment.
//
// REQUIRES: FindBadAddress accepts the address; `tls`, if given for a list of addresses, has a
// name; certificates and key are valid PEM.
std::shared_ptr<grpc::Channel> Connect(const ChannelOptions& options);
// In plaintext, without retries.
std::shared_ptr<grpc::Channel> Connect(const std::string& address);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_CHANNEL_H_
