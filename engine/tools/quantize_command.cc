#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "engine/tools/commands.h"
#include "engine/tools/flags.h"
#include "engine/tools/quantize.h"

namespace triptych::tools {
namespace {

const std::map<std::string, WeightFormat> kIntegerFormats = {{"int8", WeightFormat::kInt8},
                                                             {"int4", WeightFormat::kInt4}};

}  // namespace

void AddQuantizeCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("quantize", "Make a checkpoint with the matrices stored as integers");
  const auto options = std::make_shared<QuantizeOptions>();
  AddModel(*command, "--from", options->from);
  command->add_option("--to", options->to, "directory of the new checkpoint")->required();
  AddChoice(*command, "--dtype", options->format, kIntegerFormats, "format of the matrices")
      ->required();
  command->add_flag("--keep-embeddings", options->keep_embeddings,
                    "unchanged embedding and output matrix");
  CLI::Option* calibrate =
      command
          ->add_option("--calibrate", options->calibrate,
                       "int4: text file for the inputs that rounding fits, and for losses")
          ->check(CLI::ExistingFile);
  AddHeldOut(*command, options->held_out)->needs(calibrate);
  command->callback([&invocation, options] {
    options->command = invocation.command_line;
    invocation.run = [options] {
      QuantizeModel(*options);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
