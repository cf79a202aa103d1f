#include "server/tracing/tracing_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

namespace triptych::server::tracing_options_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using Variables = std::map<std::string, std::string>;

std::optional<TracingOptions> Read(const std::string& endpoint, const Variables& variables) {
  return ReadTracingOptions(endpoint, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string Refusal(const std::string& endpoint, const Variables& variables) {
  try {
    Read(endpoint, variables);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

std::string Collector(const std::string& endpoint, const Variables& variables) {
  const auto options = Read(endpoint, variables);
  return options ? options->collector.Text() : "none";
}

TEST(TracingOptions, TheFlagPrecedesTheVariables) {
  const Variables both = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all"},
                          {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/whole/path"}};
  EXPECT_EQ(Collector("", {}), "none");
  EXPECT_EQ(Collector("http://flag:9/", both), "http://flag:9/v1/traces");
  EXPECT_EQ(Collector("", both), "http://traces:4318/whole/path");
  EXPECT_EQ(Collector("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all/base"}}),
            "http://all:4318/base/v1/traces");
  EXPECT_EQ(Collector("http://[::1]:80", {}), "http://[::1]:80/v1/traces");
}

TEST(TracingOptions, VariablesSwitchItOff) {
  for (const auto& [name, value] :
       Variables{{"OTEL_SDK_DISABLED", "True"}, {"OTEL_TRACES_EXPORTER", "none"}}) {
    const Variables variables = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all"}, {name, value}};
    EXPECT_EQ(Collector("", variables), "none") << name;
    EXPECT_NE(Collector("http://flag", variables), "none") << name;
  }
}

TEST(TracingOptions, HeadersNameAndSampler) {
  const auto options = Read("http://c", {{"OTEL_EXPORTER_OTLP_HEADERS", "a=b%20c, x-key = v=1 ,"},
                                         {"OTEL_SERVICE_NAME", "chat"},
                                         {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
                                         {"OTEL_TRACES_SAMPLER", "traceidratio"},
                                         {"OTEL_TRACES_SAMPLER_ARG", "0.25"}});
  ASSERT_TRUE(options.has_value());
  EXPECT_THAT(options->headers, ElementsAre(Pair("a", "b c"), Pair("x-key", "v=1")));
  EXPECT_EQ(options->service_name, "chat");
  EXPECT_EQ(options->other_protocol, "grpc");
  EXPECT_EQ(options->sampler.ratio, 0.25);
  EXPECT_FALSE(options->sampler.follows_parent);
  EXPECT_TRUE(Read("http://c", {})->sampler.follows_parent);
}

TEST(TracingOptions, ErrorsNameTheFlagOrVariable) {
  for (const std::string url :
       {"https://c", "c:4318", "http://", "http://c:", "http://c:0", "http://c:65536",
        "http://c:4318x", "http://user@c", "http://c d", "http://a:b:c", "http://[::1",
        "http://c#f", "http://c\r\nX: y", "ftp://c"}) {
    EXPECT_THAT(Refusal(url, {}), HasSubstr("--otlp-endpoint is ")) << url;
    EXPECT_THAT(Refusal("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", url}}),
                HasSubstr("OTEL_EXPORTER_OTLP_ENDPOINT is "))
        << url;
  }
  const auto refusal = [](const std::string& name, const std::string& value) {
    return Refusal("http://c", {{name, value}, {"OTEL_TRACES_SAMPLER", "traceidratio"}});
  };
  EXPECT_EQ(refusal("OTEL_TRACES_SAMPLER_ARG", "1.5"),
            "OTEL_TRACES_SAMPLER_ARG is \"1.5\"; allowed: 0 to 1");
  EXPECT_THAT(Refusal("http://c", {{"OTEL_TRACES_SAMPLER", "sometimes"}}),
              HasSubstr("OTEL_TRACES_SAMPLER is \"sometimes\"; allowed: always_on"));
  // Headers may hold a secret, and are not shown.
  for (const std::string headers : {"secret", "=secret", "a b=secret", "a=secret%0d%0aX: y"}) {
    EXPECT_EQ(refusal("OTEL_EXPORTER_OTLP_HEADERS", headers),
              "OTEL_EXPORTER_OTLP_HEADERS: entry 1 is no header; allowed: NAME=VALUE,NAME=VALUE");
  }
}

}  // namespace
}  // namespace triptych::server::tracing_options_test
