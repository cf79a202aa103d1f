#include "server/tracing/tracing_options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "engine/base/quoted.h"

namespace triptych::server {
namespace {

constexpr const char* kTracesPath = "/v1/traces";
constexpr const char* kOtlpPort = "4318";  // of OTLP over HTTP

[[noreturn]] void Refuse(const std::string& where, const std::string& value,
                         const std::string& allowed) {
  throw std::invalid_argument(where + " is " + Quoted(value) + "; allowed: " + allowed);
}

bool IsPort(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port < 65536;
}

// True if all characters are visible ASCII, as in a header or a request line.
bool IsVisible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
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
    if (equals != entry.npos) value = PercentDecoded(Trimmed(entry.substr(equals + 1)));
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
    char* end = nullptr;
    ratio = std::strtod(argument.c_str(), &end);
    if (*end != '\0' || !(ratio >= 0 && ratio <= 1)) {
      Refuse("OTEL_TRACES_SAMPLER_ARG", argument, "0 to 1");
    }
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

std::string HttpUrl::Text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return "http://" + (is_ipv6 ? '[' + host + ']' : host) + ':' + port + path;
}

HttpUrl ParseHttpUrl(const std::string& text, const std::string& port) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&] {
    throw std::invalid_argument("is " + Quoted(text) +
                                "; allowed: http://HOST[:PORT][/PATH] (no TLS)");
  };
  if (!text.starts_with(kScheme) || !IsVisible(text) || text.size() > 2048) refuse();
  std::string_view rest = std::string_view(text).substr(kScheme.size());
  HttpUrl url{.host = {}, .port = port, .path = "/"};
  const size_t slash = rest.find('/');
  if (slash != rest.npos) url.path = rest.substr(slash);
  rest = rest.substr(0, slash);
  if (rest.find_first_of("@?#") != rest.npos || url.path.find('#') != url.path.npos) refuse();
  size_t colon = rest.rfind(':');
  if (rest.starts_with('[')) {
    const size_t close = rest.find(']');
    if (close == rest.npos) refuse();
    url.host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    if (!rest.empty() && rest[0] != ':') refuse();
    colon = rest.empty() ? rest.npos : 0;
  } else {
    url.host = rest.substr(0, colon);
    if (url.host.find(':') != url.host.npos) refuse();
  }
  if (colon != rest.npos) url.port = rest.substr(colon + 1);
  if (url.host.empty() || !IsPort(url.port)) refuse();
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
