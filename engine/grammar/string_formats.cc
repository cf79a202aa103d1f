#include "engine/grammar/string_formats.h"

#include <utility>
#include <vector>

namespace triptych::grammar {
namespace {

using Formats = std::vector<std::pair<std::string, std::string>>;

// An address of IPv6 without an IPv4 part: eight groups, or fewer around "::".
std::string Ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  std::string all = "(?:" + group + ":){7}" + group;
  for (int before = 0; before <= 7; ++before) {
    const int after = 7 - before;
    all += "|";
    if (before > 0) all += group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
    all += "::";
    if (after > 0) {
      all += "(?:" + group + "(?::" + group + "){0," + std::to_string(after - 1) + "})?";
    }
  }
  return all;
}

// A URI (RFC 3986) without addresses in brackets. A bounded one has less than 2083 characters, the
// maxLength of Pydantic's HttpUrl, which therefore does not cut it.
std::string Uri(bool bounded) {
  const auto up_to = [&](int most) {
    return bounded ? "{0," + std::to_string(most) + "}" : std::string("*");
  };
  const std::string characters = "A-Za-z0-9._~!$&'()*+,;=:@-";
  const auto part = [&](const std::string& more, int most) {
    return "(?:[" + more + characters + "]|%[0-9A-Fa-f]{2})" + up_to(most);
  };
  const std::string host = "[A-Za-z0-9](?:[A-Za-z0-9.-]" + up_to(100) + "[A-Za-z0-9])?";
  const std::string authority = "//(?:[A-Za-z0-9._~-]" + up_to(30) + "@)?" + host +
                                "(?::[0-9]{1,5})?(?:/" + part("/", 250) + ")?";
  return "[A-Za-z][A-Za-z0-9+.-]" + up_to(30) + ":(?:" + authority + "|/?[" + characters + "]" +
         part("/", 250) + ")(?:\\?" + part("/?", 200) + ")?(?:#" + part("/?", 100) + ")?";
}

Formats Make() {
  const std::string leap =
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  const std::string date =
      "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
      "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
      leap + "-02-29)";
  const std::string time =
      "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
      "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
  const std::string number = "[0-9]{1,9}";
  const std::string clock = "T(?:" + number + "H(?:" + number + "M(?:" + number + "S)?)?|" +
                            number + "M(?:" + number + "S)?|" + number + "S)";
  const std::string day = "(?:" + number + "Y(?:" + number + "M(?:" + number + "D)?)?|" + number +
                          "M(?:" + number + "D)?|" + number + "D)";
  return {{"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
          {"date", date},
          {"date-time", date + "T" + time},
          {"duration", "P(?:" + number + "W|" + day + "(?:" + clock + ")?|" + clock + ")"},
          {"email", atom + "(?:\\." + atom + "){0,2}@" + label + "(?:\\." + label + "){1,3}"},
          {"hostname", label + "(?:\\." + label + "){0,3}"},
          {"ipv4", octet + "(?:\\." + octet + "){3}"},
          {"ipv6", Ipv6()},
          {"time", time},
          {"uri", Uri(/*bounded=*/true)},
          {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"}};
}

const Formats& All() {
  static const Formats formats = Make();
  return formats;
}

}  // namespace

std::optional<std::string> FormatPattern(std::string_view format, bool with_pattern) {
  if (format == "uri" && with_pattern) return "^(?:" + Uri(/*bounded=*/false) + ")$";
  for (const auto& [name, pattern] : All()) {
    if (name == format) return "^(?:" + pattern + ")$";
  }
  return std::nullopt;
}

bool IsAnyText(std::string_view format) { return format == "binary" || format == "password"; }

std::string FormatNames() {
  std::string names = "binary, password";
  for (const auto& [name, pattern] : All()) names += ", " + name;
  return names;
}

}  // namespace triptych::grammar
