#include "server/tracing/tracing_options.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string_view>

#include "engine/base/parse.h"
#include "engine/base/quoted.h"
#include "server/core/percent_decode.h"

namespace triptych::server {
namespace {

constexpr const char* kTracesPath = "/v1/traces";
constexpr int kOtlpPort = 4318;  // of OTLP over HTTP

[[noreturn]] void Refuse(const std::string& where, const std::string& value,
                         const std::string& allowed) {
  throw std::invalid_argument(where + " is " + Quoted(value) + "; allowed: " + allowed);
}

// True if all characters are visible ASCII, as in a header or a request line.
bool IsVisible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// NAME=VALUE,NAME=VALUE with percent-encoded values. Values may be secret: errors do not show them.
std::vector<std::pair<std::string, std::string>> ParseHeaders(const std::string& where,
                                                              std::string_view text) {
  const auto is_token = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.").find(c) != std::string_view::npos;
  };
  std::vector<std::pair<std::string, std::string>> headers;
  while (!text.empty()) {
    const std::string_view entry = Trimmed(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.find(','), text.size() - 1) + 1);
    if (entry.empty()) continue;
    const size_t equals = entry.find('=');
    const std::string_view name = Trimmed(entry.substr(0, equals));
    std::string value;
    if (equals != entry.npos) value = PercentDecode(Trimmed(entry.substr(equals + 1)));
    const bool is_valid =
        equals != entry.npos && !name.empty() && std::all_of(name.begin(), name.end(), is_token) &&
        std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!is_valid) {
      throw std::invalid_argument(where + ": entry " + std::to_string(headers.size() + 1) +
                                  " is no header; allowed: NAME=VALUE,NAME=VALUE");
    }
    headers.emplace_back(name, std::move(value));
  }
  return headers;
}

TraceSampler ParseSampler(const std::string& name, const std::string& argument) {
  double ratio = 1;
  if (name.ends_with("traceidratio") && !argument.empty()) {
    const auto parsed = ParseNumber<double>(argument, 0, 1);
    if (!parsed) Refuse("OTEL_TRACES_SAMPLER_ARG", argument, "0 to 1");
    ratio = *parsed;
  }
  if (name.empty() || name == "parentbased_always_on") return {1, true};
  if (name == "parentbased_always_off") return {0, true};
  if (name == "parentbased_traceidratio") return {ratio, true};
  if (name == "always_on") return {1, false};
  if (name == "always_off") return {0, false};
  if (name == "traceidratio") return {ratio, false};
  Refuse("OTEL_TRACES_SAMPLER", name,
         "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, "
         "parentbased_traceidratio");
}

}  // namespace

HttpUrl ParseHttpUrl(const std::string& text, int port) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&] {
    throw std::invalid_argument("is " + Quoted(text) +
                                "; allowed: http://HOST[:PORT][/PATH] (no TLS)");
  };
  if (!text.starts_with(kScheme) || !IsVisible(text) || text.size() > 2048) refuse();
  const std::string_view rest = std::string_view(text).substr(kScheme.size());
  const size_t slash = rest.find('/');
  std::string authority(rest.substr(0, slash));
  HttpUrl url;
  if (slash != rest.npos) url.path = rest.substr(slash);
  if (authority.find_first_of("@?#") != authority.npos || url.path.find('#') != url.path.npos) {
    refuse();
  }
  if (authority.ends_with(']') || authority.find(':') == authority.npos) {
    authority += ':' + std::to_string(port);
  }
  const std::optional<Address> address = ParseAddress(authority);
  if (!address || address->port == 0) refuse();
  const std::string& host = address->host;
  const bool brackets = host.starts_with('[');
  if (brackets != host.ends_with(']') || (brackets && host.size() < 3)) refuse();
  url.address = *address;
  return url;
}

std::optional<TracingOptions> ReadTracingOptions(const std::string& endpoint,
                                                 const Variable& variable) {
  const auto value = [&](const char* name) {
    const char* const text = variable(name);
    return std::string(text == nullptr ? "" : text);
  };
  // The whole address of the collector's traces, or the beginning of one.
  std::string where = "--otlp-endpoint", address = endpoint;
  bool is_whole = false;
  if (address.empty()) {
    where = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    address = value(where.c_str());
    is_whole = true;
    std::string disabled = value("OTEL_SDK_DISABLED");
    std::transform(disabled.begin(), disabled.end(), disabled.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (disabled == "true" || value("OTEL_TRACES_EXPORTER") == "none") return {};
  }
  if (address.empty()) {
    where = "OTEL_EXPORTER_OTLP_ENDPOINT";
    address = value(where.c_str());
    is_whole = false;
  }
  if (address.empty()) return std::nullopt;
  TracingOptions options;
  try {
    options.collector = ParseHttpUrl(address, kOtlpPort);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(where + ' ' + e.what());
  }
  if (!is_whole) {
    std::string& path = options.collector.path;
    if (path.ends_with('/')) path.pop_back();
    path += kTracesPath;
  }
  std::string name = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
  if (value(name.c_str()).empty()) name = "OTEL_EXPORTER_OTLP_HEADERS";
  options.headers = ParseHeaders(name, value(name.c_str()));
  if (!value("OTEL_SERVICE_NAME").empty()) options.service_name = value("OTEL_SERVICE_NAME");
  std::string protocol = value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
  if (protocol.empty()) protocol = value("OTEL_EXPORTER_OTLP_PROTOCOL");
  if (protocol != "http/json") options.other_protocol = protocol;
  options.sampler = ParseSampler(value("OTEL_TRACES_SAMPLER"), value("OTEL_TRACES_SAMPLER_ARG"));
  return options;
}

}  // namespace triptych::server
