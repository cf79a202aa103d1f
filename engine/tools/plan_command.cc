#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/base/formats.h"
#include "engine/base/names.h"
#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/tools/commands.h"
#include "engine/tools/flags.h"
#include "engine/tools/plan/machine.h"
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

// A checkpoint, or a file with a config.
CLI::Validator IsConfig() {
  return CLI::Validator(
      [](std::string& path) {
        std::error_code ignored;
        return std::filesystem::exists(path, ignored)
                   ? ""
                   : Quoted(path) + " is not a config.json, a directory or a .gguf file";
      },
      "JSON|DIR|GGUF");
}

CLI::Validator IsMachine() {
  return CLI::Validator(
      [](std::string& machine) {
        std::error_code ignored;
        return PublishedMachine(machine) || std::filesystem::exists(machine, ignored)
                   ? ""
                   : Quoted(machine) + " is not a file; allowed: a file, " + PublishedMachines();
      },
      "NAME|FILE");
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
      "plan", "Compute cache bytes, sequences that fit in memory and their speed, from a config");
  const auto options = std::make_shared<PlanOptions>();
  command
      ->add_option("--model", options->model,
                   "config.json of any family, or a checkpoint, of which only the config is read")
      ->required()
      ->check(IsConfig());
  command
      ->add_option_function<std::string>(
          "--memory", [options](const std::string& text) { options->memory = *ParseBytes(text); },
          "memory of the server: bytes, or a size such as 80GiB [a GPU's; else only bytes are "
          "computed]")
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
                       "JSON file of the rates of a CPU or GPU, or one of these, as published: " +
                           PublishedMachines() + " [--device, measured]")
          ->check(IsMachine());
  command->add_option("--device", options->device, "device to measure: cpu, cuda or cuda:N")
      ->excludes(machine)
      ->capture_default_str();
  command
      ->add_option("--write-machine", options->write_machine,
                   "file for the measured rates, to use with --machine")
      ->excludes(machine);
  command
      ->add_option("--tensor-parallel", options->tensor_parallel,
                   "devices that share the heads of every layer")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--json", options->json, "print the numbers of the config as JSON");
  command->callback([&invocation, options] {
    invocation.run = [&invocation, options] {
      options->threads = invocation.threads;
      Plan(*options);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
