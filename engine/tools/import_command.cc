#include <CLI/CLI.hpp>
#include <memory>

#include "engine/tools/commands.h"
#include "engine/tools/import.h"

namespace triptych::tools {

void AddImportCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("import", "Make a checkpoint from a llama2.c model and tokenizer");
  const auto options = std::make_shared<ImportOptions>();
  command->add_option("model", options->model, "model of llama2.c: a .bin file")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--tokenizer", options->tokenizer, "tokenizer of llama2.c: a .bin file")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--output", options->output, "directory of the new checkpoint")->required();
  command->callback([&invocation, options] {
    options->command = invocation.command_line;
    invocation.run = [options] {
      ImportModel(*options);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
