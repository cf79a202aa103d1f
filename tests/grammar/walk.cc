// walk: reads lines {"schema": ..., "texts": [...], "walks": N} and writes one line for each.
//   {"refused": "..."} if the schema is refused;
//   {"accepted": [...], "walks": [...]}: which texts the schema accepts, and N random ones that it
//   does.
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/matcher.h"

namespace triptych::grammar {
namespace {

constexpr size_t kLongWalk = 200;  // bytes; a walk then prefers to end

bool Accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  Matcher matcher(grammar);
  return matcher.Advance(text) && matcher.MayEnd();
}

// Bytes that close what is open, in the order in which a long walk prefers them.
constexpr std::string_view kEnds = "\"}],:0e";

// A random byte that can come next, and the positions after it.
std::pair<char, Positions> Next(const Grammar& grammar, Stacks& stacks, const Positions& positions,
                                bool to_end, std::mt19937_64& random) {
  const auto after = [&](int byte) {
    return std::pair(static_cast<char>(byte),
                     After(grammar, stacks, positions, static_cast<uint8_t>(byte)));
  };
  for (const char end : to_end ? kEnds : "") {
    auto next = after(static_cast<uint8_t>(end));
    if (!next.second.empty()) return next;
  }
  const auto first = static_cast<int>(random() % 256);
  for (int i = 0; i < 256; ++i) {
    auto next = after((first + i) % 256);
    if (!next.second.empty()) return next;
  }
  return {};
}

std::string Walk(const Grammar& grammar, std::mt19937_64& random) {
  Stacks stacks;
  Positions positions = StartOf(grammar, stacks);
  std::string text;
  while (!MayEnd(positions) || positions.size() > 1) {
    const bool is_long = text.size() > kLongWalk;
    if (MayEnd(positions) && (random() % 4 == 0 || is_long)) break;
    const bool to_end = random() % (is_long ? 8 : 4) < (is_long ? 7 : 1);
    auto [byte, after] = Next(grammar, stacks, positions, to_end, random);
    if (after.empty()) return "dead end: " + text;
    positions = std::move(after);
    text += byte;
  }
  return text;
}

nlohmann::json Answer(const nlohmann::ordered_json& line, std::mt19937_64& random) {
  std::shared_ptr<const Grammar> grammar;
  try {
    Expressions expressions;
    const Expression start = ParseJsonSchema(expressions, line.at("schema").get<std::string>());
    grammar = std::make_shared<const Grammar>(Compile(expressions, start));
  } catch (const GrammarError& error) {
    return {{"refused", error.path() + " " + error.what()}};
  }
  nlohmann::json answer = {{"accepted", nlohmann::json::array()},
                           {"walks", nlohmann::json::array()}};
  for (const auto& text : line.at("texts")) {
    answer["accepted"].push_back(Accepts(grammar, text.get<std::string>()));
  }
  for (int walk = line.at("walks"); walk > 0; --walk) {
    answer["walks"].push_back(Walk(*grammar, random));
  }
  return answer;
}

}  // namespace
}  // namespace triptych::grammar

int main() {
  std::mt19937_64 random(1);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << triptych::grammar::Answer(nlohmann::ordered_json::parse(line), random).dump()
              << '\n';
  }
}
