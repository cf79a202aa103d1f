#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "engine/tools/commands.h"
#include "engine/tools/flags.h"
#include "engine/tools/inspect.h"

namespace triptych::tools {
namespace {

struct InspectFlags {
  std::filesystem::path model;
  bool tensors = false;
};

}  // namespace

void AddInspectCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("inspect", "Show the config of a checkpoint and its cost in the KV cache");
  const auto flags = std::make_shared<InspectFlags>();
  AddModel(*command, "model", flags->model);
  command->add_flag("--tensors", flags->tensors, "list of all tensors");
  command->callback([&invocation, flags] {
    invocation.run = [flags] {
      Inspect(flags->model, flags->tensors);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
