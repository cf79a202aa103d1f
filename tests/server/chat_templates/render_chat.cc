// Renders conversations for compare.mjs. For each line of JSON, prints one:
//   {"jinja": TEXT}                                         the name of the recognised template, or
//                                                           null
//   {"template": NAME, "messages": [{"role", "content"}...],
//    "add_generation_prompt": BOOL}                         {"text"}, or {"refused": FIELD}; begin
//                                                           and end token are <s> and </s>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/core/chat/chat_template.h"
#include "server/core/chat/chat_template_file.h"

namespace triptych::server {
namespace {

using nlohmann::json;

json Known(const std::string& jinja) {
  const auto form = KnownChatTemplate(jinja);
  return form ? json(Name(*form)) : json();
}

json RenderLine(const json& line) {
  std::vector<ChatMessage> messages;
  for (const json& message : line.at("messages")) {
    messages.push_back({Names<ChatRole>().at(message.at("role")), message.at("content")});
  }
  const auto pieces = Render(Names<ChatTemplate>().at(line.at("template")), messages,
                             line.at("add_generation_prompt"));
  if (!pieces.ok()) return {{"refused", pieces.error().field}};
  std::string text;
  for (const ChatPiece& piece : pieces.value()) {
    text += piece.kind == ChatPiece::kBegin ? "<s>" : piece.kind == ChatPiece::kEnd ? "</s>" : "";
    text += piece.text;
  }
  return {{"text", text}};
}

}  // namespace
}  // namespace triptych::server

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto asked = nlohmann::json::parse(line);
    const auto answer = asked.contains("jinja") ? triptych::server::Known(asked.at("jinja"))
                                                : triptych::server::RenderLine(asked);
    std::cout << answer.dump() << "\n";
  }
}
