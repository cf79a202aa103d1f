// The README.md of a checkpoint: what it is, what it costs, and how it was made.
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
  std::filesystem::path directory;  // of the model: its last name is the card's title
  ModelConfig config;
  // The rows that describe the text, or none.
  const Corpus* corpus = nullptr;
  std::optional<double> held_out_loss;                     // of the stored weights, on `corpus`
  std::vector<std::pair<std::string, std::string>> facts;  // more rows of the first table
  std::string command;                                     // that was typed, or empty
  std::string report;                                      // Markdown
  std::filesystem::path source;                            // the checkpoint it was made from
};

// As Markdown. The card of the source, where it has one, is a part of it.
std::string ToMarkdown(const Card& card);

// "MHA", "GQA with 2 groups", "MLA with latents of 64", "MLA with latents of 16 to 64".
std::string KindText(const ModelConfig& config);

// "bfloat16", "int4", "int4, embeddings in float32".
std::string DTypesText(const WeightFormats& formats);

// The last name of a path, be it "DIR/" or ".".
std::string LastName(const std::filesystem::path& path);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_CARD_H_
