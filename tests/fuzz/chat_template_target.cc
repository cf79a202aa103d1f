// Fuzz target: an untrusted chat template of a model.
#include <algorithm>
#include <string>

#include "engine/jinja/from_json.h"
#include "engine/jinja/template.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

// A character of the data that no template has unless it is in its text.
constexpr std::string_view kData = "\u03A9";

const jinja::Variables& Chat() {
  static const jinja::Variables variables = [] {
    const auto json = nlohmann::json::parse(R"({
        "messages": [{"role": "user", "content": " \u03A9 <|a|>\n\u03A9"},
                     {"role": "assistant", "content": "\u03A9", "reasoning_content": "\u03A9"}],
        "tools": [{"name": "\u03A9", "n": [1, 2.5, null, true]}],
        "add_generation_prompt": true})");
    jinja::Variables all;
    for (const auto& [name, value] : json.items()) {
      all.emplace_back(name, jinja::FromJson(value, jinja::Source::kData));
    }
    all.emplace_back("bos_token", jinja::Value::Of("<s>", jinja::Source::kTemplate));
    return all;
  }();
  return variables;
}

}  // namespace

void FuzzChatTemplate(std::string_view bytes) {
  try {
    const jinja::Template parsed(bytes);
    const jinja::Limits limits{
        .max_steps = 1 << 16, .max_bytes = 1 << 22, .max_output_bytes = 1 << 20};
    const jinja::Text text = parsed.Render(Chat(), limits, /*now=*/0);
    Promise(text.size() <= limits.max_bytes, "the output is bounded");
    const bool ascii = std::all_of(bytes.begin(), bytes.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x80 && c != '\\';
    });
    text.ForEachRun([&](std::string_view run, jinja::Source source) {
      Promise(!ascii || source == jinja::Source::kData || run.find(kData) == run.npos,
              "what the data says never counts as the template's");
    });
  } catch (const jinja::SyntaxError&) {
  } catch (const jinja::RenderError&) {
  }
}

}  // namespace triptych
