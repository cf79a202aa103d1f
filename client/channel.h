#ifndef TRIPTYCH_CLIENT_CHANNEL_H_
#define TRIPTYCH_CLIENT_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

namespace triptych::client {

// How a server's certificate is checked, and what it is shown. Texts in PEM.
struct TlsOptions {
  std::string authorities;  // that sign the server's certificate; empty: the system's
  std::string certificate;  // the client's, with those between it and its authority; or empty
  std::string key;          // of that certificate
  std::string name;         // that the server's certificate carries; empty: the address's host
};

struct ChannelOptions {
  // HOST:PORT; several servers as dns:///HOST:PORT, a name with an address for each, or as
  // IP:PORT,IP:PORT... (all IPv4 or all IPv6 in brackets); or unix:PATH.
  std::string address;
  std::optional<TlsOptions> tls = std::nullopt;  // absent: plaintext
  // Makes calls again, up to 5 times in all, that end with UNAVAILABLE or RESOURCE_EXHAUSTED, or
  // with CANCELLED by the server, before it has answered anything: after 0.1 s, doubled each time,
  // or when the server says (grpc-retry-pushback-ms). Stops while more than about half of a
  // server's calls fail; of several servers, after some 500 failures.
  bool retry = true;
  // Never the connection of another channel to the same address.
  bool own_connection = false;
  // How much of a reply the server may send beyond what the call has read. Absent: gRPC adapts it
  // to the connection.
  std::optional<int32_t> window_bytes = std::nullopt;
};

// Nothing if `address` is one that ChannelOptions takes, else what is allowed.
std::optional<std::string> FindBadAddress(const std::string& address);
// IP:PORT,IP:PORT...
bool IsAddressList(const std::string& address);
// Such a list, or dns:///HOST:PORT.
bool NamesSeveralServers(const std::string& address);

// A channel, which connects at the first call. Calls take turns over the addresses that answer:
// those that a host name has, or those that are listed. Of several servers, one that reports itself
// NOT_SERVING for triptych.v1.InferenceService is left out. What becomes unreachable without a word
// is noticed within 30 s. A name is looked up again when a connection ends: a new address gets
// calls once an old one is gone, or too old (server/README.md#limits).
//
// Proxies that the environment names have no part in it.
//
// REQUIRES: an address in which FindBadAddress finds nothing; a name if `tls` is given and the
// address is a list; certificates and key that are what they are said to be.
std::shared_ptr<grpc::Channel> Connect(const ChannelOptions& options);
// In plaintext, each call made once.
std::shared_ptr<grpc::Channel> Connect(const std::string& address);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_CHANNEL_H_
