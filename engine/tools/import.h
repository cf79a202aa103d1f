// Import of models of llama2.c.
#ifndef TRIPTYCH_ENGINE_TOOLS_IMPORT_H_
#define TRIPTYCH_ENGINE_TOOLS_IMPORT_H_

#include <filesystem>
#include <string>

namespace triptych::tools {

struct ImportOptions {
  std::filesystem::path model;      // engine/checkpoint/llama2c_model.h
  std::filesystem::path tokenizer;  // engine/checkpoint/tokenizer/llama2c_tokenizer.h
  std::filesystem::path output;     // directory; must be absent or empty
  std::string command = {};         // command line for the card
};

// Writes the model in float32, with its tokenizer and a card, and prints a summary. Leaves no model
// behind if it fails. Throws LoadError or std::runtime_error.
void ImportModel(const ImportOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_IMPORT_H_
