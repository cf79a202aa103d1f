// describe_tools: reads lines {"template": TEXT} and writes for each the format of calls of the
// template: {"format": KIND, "marker": TEXT} or {"error": TEXT}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/text/byte_tokenizer.h"
#include "server/core/chat/chat_template.h"

namespace triptych::server {
namespace {

std::string NameOf(CallFormat::Kind kind) {
  switch (kind) {
    case CallFormat::Kind::kTagged:
      return "tagged";
    case CallFormat::Kind::kList:
      return "list";
    case CallFormat::Kind::kCommand:
      return "command";
    case CallFormat::Kind::kNamed:
      return "named";
    case CallFormat::Kind::kDeepSeekV3:
      return "deepseek_v3";
    case CallFormat::Kind::kDeepSeek:
      return "deepseek";
    case CallFormat::Kind::kLlama:
      return "llama";
  }
  return "";
}

nlohmann::json Describe(const std::string& text) {
  const ByteTokenizer tokenizer;
  const ChatTemplate form({"own", text}, tokenizer, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!form.error().empty()) return {{"error", form.error()}};
  const CallFormat& format = form.tools().format;
  return {{"format", NameOf(format.kind)}, {"marker", format.marker}};
}

}  // namespace
}  // namespace triptych::server

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto parsed = nlohmann::json::parse(line);
    std::cout << triptych::server::Describe(parsed.at("template")).dump() << '\n';
  }
}
