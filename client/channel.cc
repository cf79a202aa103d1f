#include "client/channel.h"

#include <arpa/inet.h>

#include <cctype>
#include <cstdio>
#include <sstream>
#include <string_view>
#include <vector>

#include "engine/base/address.h"

namespace triptych::client {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kDns = "dns:///";
constexpr size_t kMaxUnixPath = 107;  // bytes of a socket's path
constexpr int kMaxMessageBytes = 4 << 20;

// The server accepts pings at least 10 s apart (server/README.md); the rest allows for delays of
// the network.
constexpr int kKeepaliveMs = 15'000;
constexpr int kKeepaliveTimeoutMs = 15'000;
// Longest time until a server that comes back gets calls.
constexpr int kMaxReconnectBackoffMs = 10'000;

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list + ",");
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

bool IsIp(int family, const std::string& text) {
  in6_addr address;  // large enough for both
  return inet_pton(family, text.c_str(), &address) == 1;
}

// AF_INET for IPV4:PORT, AF_INET6 for [IPV6]:PORT; 0 for any other text.
int IpFamily(const std::string& text) {
  const std::optional<Address> address = ParseAddress(text);
  if (!address || address->port == 0) return 0;
  const std::string& host = address->host;
  if (IsIp(AF_INET, host)) return AF_INET;
  if (host.front() == '[' && IsIp(AF_INET6, host.substr(1, host.size() - 2))) return AF_INET6;
  return 0;
}

// `text` for the path of a URI.
std::string PercentEncoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) ||
        std::string_view("-._~:/,").find(c) != std::string_view::npos) {
      encoded += c;
    } else {
      char code[4];
      std::snprintf(code, sizeof(code), "%%%02X", static_cast<unsigned char>(c));
      encoded += code;
    }
  }
  return encoded;
}

std::string Target(const std::string& address) {
  if (address.starts_with(kUnix)) return PercentEncoded(address);
  if (address.starts_with(kDns)) return PercentEncoded(address);
  if (!IsAddressList(address)) return std::string(kDns) + PercentEncoded(address);
  const std::string first = Split(address).front();
  return (IpFamily(first) == AF_INET ? "ipv4:" : "ipv6:") + PercentEncoded(address);
}

// gRPC's service config. By retryThrottling, each failure costs one of 1000 tokens and each success
// returns a tenth; at 500 tokens or fewer, no call is retried. The number is large since a server,
// which may share one address with others, may stop with many calls that it has not begun. When a
// drain begins, gRPC 1.51 ends those in transit with CANCELLED.
std::string ServiceConfig(bool retry, bool several_servers) {
  std::string config = R"({"loadBalancingConfig": [{"round_robin": {}}])";
  if (several_servers) {
    config += R"(, "healthCheckConfig": {"serviceName": "triptych.v1.InferenceService"})";
  }
  if (retry) {
    config += R"(,
      "methodConfig": [{"name": [{}], "retryPolicy": {
        "maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"]}}],
      "retryThrottling": {"tokenRatio": 0.1, "maxTokens": 1000})";
  }
  return config + "}";
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const std::optional<TlsOptions>& tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = tls->authorities,
                               .pem_private_key = tls->key,
                               .pem_cert_chain = tls->certificate});
}

}  // namespace

bool IsAddressList(const std::string& address) {
  return !address.starts_with(kUnix) && address.find(',') != std::string::npos;
}

bool NamesSeveralServers(const std::string& address) {
  return IsAddressList(address) || address.starts_with(kDns);
}

std::optional<std::string> FindBadAddress(const std::string& address) {
  if (address.starts_with(kUnix)) {
    const size_t length = address.size() - kUnix.size();
    if (length >= 1 && length <= kMaxUnixPath) return std::nullopt;
    return "unix:PATH, of 1 to " + std::to_string(kMaxUnixPath) + " bytes";
  }
  if (IsAddressList(address)) {
    const std::vector<std::string> parts = Split(address);
    const int family = IpFamily(parts.front());
    bool same = family != 0;
    for (const std::string& part : parts) same = same && IpFamily(part) == family;
    if (same) return std::nullopt;
    return "IP:PORT,IP:PORT..., all IPv4 or all [IPv6] (a host name cannot be in a list)";
  }
  const size_t scheme = address.starts_with(kDns) ? kDns.size() : 0;
  const std::optional<Address> parsed = ParseAddress(address.substr(scheme));
  if (parsed && parsed->port != 0) return std::nullopt;
  return "HOST:PORT, dns:///HOST:PORT, IP:PORT,IP:PORT... or unix:PATH";
}

std::shared_ptr<grpc::Channel> Connect(const ChannelOptions& options) {
  const std::string& address = options.address;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A stream may be silent for longer than two pings.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectBackoffMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, options.own_connection ? 1 : 0);
  if (options.window_bytes) {
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, *options.window_bytes);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, options.retry ? 1 : 0);
  // A request larger than this buffer is never retried.
  arguments.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE, kMaxMessageBytes + (1 << 10));
  arguments.SetServiceConfigJSON(ServiceConfig(options.retry, NamesSeveralServers(address)));
  if (options.tls && !options.tls->name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->name);
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, options.tls->name);
  } else if (IsAddressList(address)) {  // proxies do not take a list
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, Split(address).front());
  }
  return grpc::CreateCustomChannel(Target(address), Credentials(options.tls), arguments);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  return Connect(ChannelOptions{.address = address, .retry = false});
}

}  // namespace triptych::client
