#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "engine/base/formats.h"
#include "engine/base/names.h"
#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/tools/commands.h"
#include "engine/tools/flags.h"
#include "engine/tools/plan/plan.h"

namespace triptych::tools {
namespace {

CLI::Validator IsSize() {
  return CLI::Validator(
      [](std::string& text) {
        return ParseBytes(text) ? "" : Quoted(text) + " is not a size; allowed: " + kBytesAllowed;
      },
      "SIZE");
}

void AddFormats(CLI::App& command, PlanOptions& options) {
  AddChoice(command, "--dtype", options.weights.layers, Names<WeightFormat>(),
            "format of the weights [the checkpoint's; on a GPU bfloat16]");
  AddChoice(command, "--embedding-dtype", options.weights.embeddings, Names<WeightFormat>(),
            "format of the embedding and the output matrix [as --dtype, or the checkpoint's]");
  AddChoice(command, "--expert-dtype", options.weights.experts, Names<WeightFormat>(),
            "format of the routed experts [as --dtype, or the checkpoint's]");
  AddChoice(command, "--kv-cache-dtype,--kv-dtype", options.cache, Names<CacheFormat>(),
            "format of the KV cache [as the weights]");
}

}  // namespace

void AddPlanCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "plan", "Compute how many sequences fit in memory, and their speed, as MHA, GQA and MLA");
  const auto options = std::make_shared<PlanOptions>();
  AddModel(*command, "--model", options->model,
           "checkpoint, of which only the config is read: a directory or a .gguf file");
  command
      ->add_option_function<std::string>(
          "--memory", [options](const std::string& text) { options->memory = *ParseBytes(text); },
          "memory of the server: bytes, or a size such as 80GiB [with --device cuda: the GPU's "
          "free memory]")
      ->check(IsSize());
  command->add_option("--context", options->context,
                      "positions of every sequence [the model's context]");
  command->add_option(
      "--groups", options->groups,
      "GQA: key/value heads [the model's, or the most with rows no wider than MLA's]");
  command->add_option("--rank", options->rank,
                      "MLA: elements of a latent [the model's, or the exact rank]");
  AddFormats(*command, *options);
  CLI::Option* machine =
      command
          ->add_option("--machine", options->machine,
                       "JSON file of the rates of a CPU or GPU [--device, measured]")
          ->check(CLI::ExistingFile);
  command->add_option("--device", options->device, "device to measure: cpu, cuda or cuda:N")
      ->excludes(machine)
      ->capture_default_str();
  command
      ->add_option("--write-machine", options->write_machine,
                   "file for the measured rates, to use with --machine")
      ->excludes(machine);
  command->callback([&invocation, options] {
    invocation.run = [&invocation, options] {
      options->threads = invocation.threads;
      Plan(*options);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
