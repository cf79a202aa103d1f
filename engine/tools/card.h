// Model card: the README.md of a checkpoint, with its kind, its cost and its origin.
#ifndef TRIPTYCH_ENGINE_TOOLS_CARD_H_
#define TRIPTYCH_ENGINE_TOOLS_CARD_H_

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/config.h"
#include "engine/tools/corpus.h"

namespace triptych::tools {

struct Card {
  std::filesystem::path directory;  // of the model; its last name is the title
  ModelConfig config;
  // Text of the rows about training data; null for none.
  const Corpus* corpus = nullptr;
  std::optional<double> held_out_loss;                     // of the stored weights on `corpus`
  std::vector<std::pair<std::string, std::string>> facts;  // additional rows of the first table
  std::string command;                                     // command line, or empty
  std::string report;                                      // Markdown
  std::filesystem::path source;                            // checkpoint of origin, or empty
};

// Markdown. Includes the card of the source, if it has one.
std::string ToMarkdown(const Card& card);

// "MHA", "GQA with 2 groups", "MLA with latents of 64", "MLA with latents of 16 to 64".
std::string KindText(const ModelConfig& config);

// The last name of a path, also of "DIR/" and ".".
std::string LastName(const std::filesystem::path& path);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CARD_H_
