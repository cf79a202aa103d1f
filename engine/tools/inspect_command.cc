#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/tools/commands.h"
#include "engine/tools/flags.h"
#include "engine/tools/inspect.h"

namespace triptych::tools {
namespace {

struct InspectFlags {
  std::filesystem::path model;
  bool tensors = false;
  std::optional<std::string> device = {};
};

}  // namespace

void AddInspectCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("inspect", "Show the config of a checkpoint and its cost in the KV cache");
  const auto flags = std::make_shared<InspectFlags>();
  AddModel(*command, "model", flags->model);
  command->add_flag("--tensors", flags->tensors, "list of all tensors");
  command->add_option("--device", flags->device,
                      "device whose memory a server would take: cpu, cuda or cuda:N [none]");
  command->callback([&invocation, flags] {
    invocation.run = [flags] {
      Inspect(flags->model, flags->tensors, flags->device);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
