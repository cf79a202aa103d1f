// Renders templates for the comparisons with other implementations. For each line of JSON,
//   {"template": TEXT, "variables": OBJECT, "own": OBJECT, "now": SECONDS}
// prints {"text": TEXT, "own": [TEXT...]} or {"error": TEXT}. Texts of `own` count as
// the template's; "own" of the answer has the runs of the template's text.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/jinja/from_json.h"
#include "engine/jinja/template.h"

namespace triptych::jinja {
namespace {

using Json = nlohmann::ordered_json;

Json RenderLine(const Json& line) {
  try {
    Variables variables;
    for (const auto& [name, value] : line.at("variables").items()) {
      variables.emplace_back(name, FromJson(value, Source::kData));
    }
    const Json own_variables = line.value("own", Json::object());
    for (const auto& [name, value] : own_variables.items()) {
      variables.emplace_back(name, FromJson(value, Source::kTemplate));
    }
    const Template parsed(line.at("template").get_ref<const std::string&>());
    const Text text = parsed.Render(variables, Limits(), line.value("now", std::time_t{0}));
    Json own = Json::array();
    text.ForEachRun([&](std::string_view run, Source source) {
      if (source == Source::kTemplate) own.push_back(run);
    });
    return {{"text", text.bytes()}, {"own", std::move(own)}};
  } catch (const std::runtime_error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace
}  // namespace triptych::jinja

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << triptych::jinja::RenderLine(triptych::jinja::Json::parse(line)).dump() << "\n";
  }
}
