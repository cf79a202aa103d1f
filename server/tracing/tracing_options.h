// Options of tracing, by the variables of OpenTelemetry.
#ifndef TRIPTYCH_SERVER_TRACING_TRACING_OPTIONS_H_
#define TRIPTYCH_SERVER_TRACING_TRACING_OPTIONS_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/address.h"

namespace triptych::server {

// An address of HTTP without TLS.
struct HttpUrl {
  Address address;         // its port is not 0
  std::string path = "/";  // begins with a slash

  std::string Authority() const { return address.host + ':' + std::to_string(address.port); }
  std::string Text() const { return "http://" + Authority() + path; }
};

// Parses http://HOST[:PORT][/PATH]; the default port is `port`. Throws std::invalid_argument.
HttpUrl ParseHttpUrl(const std::string& text, int port);

// Decides which requests have spans.
struct TraceSampler {
  double ratio = 1;            // of the traces that begin here, 0 to 1
  bool follows_parent = true;  // a call's traceparent decides, if there is one
};

struct TracingOptions {
  HttpUrl collector;  // takes spans in the JSON of OTLP
  std::vector<std::pair<std::string, std::string>> headers;
  std::string service_name = "triptych";
  // A protocol that a variable asks for, and that is not the one in use; or empty.
  std::string other_protocol;
  TraceSampler sampler;
};

// Returns the value of an environment variable, or null.
using Variable = std::function<const char*(const char* name)>;

// `endpoint` is --otlp-endpoint, or empty; the variables OTEL_EXPORTER_OTLP_ENDPOINT and
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT name one too. The others are OTEL_EXPORTER_OTLP_HEADERS,
// OTEL_EXPORTER_OTLP_TRACES_HEADERS, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER,
// OTEL_TRACES_SAMPLER_ARG, OTEL_TRACES_EXPORTER and OTEL_SDK_DISABLED, as OpenTelemetry's
// specification has them. OTEL_EXPORTER_OTLP_PROTOCOL and OTEL_EXPORTER_OTLP_TRACES_PROTOCOL change
// nothing. Absent: no tracing. Throws std::invalid_argument that names the flag or
// the variable, its value, and what is allowed.
std::optional<TracingOptions> ReadTracingOptions(const std::string& endpoint,
                                                 const Variable& variable);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_TRACING_TRACING_OPTIONS_H_
