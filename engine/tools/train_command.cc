#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "engine/tools/commands.h"
#include "engine/tools/flags.h"
#include "engine/tools/train.h"

namespace triptych::tools {
namespace {

const std::map<std::string, ComputeType> kTrainingTypes = {{"float32", ComputeType::kFloat32},
                                                           {"bfloat16", ComputeType::kBFloat16}};

void AddRunOptions(CLI::App& command, TrainOptions& options) {
  command.add_option("--steps", options.steps, "optimizer steps")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  command.add_option("--batch-size", options.batch_size, "windows per step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--window", options.window,
                  "length of a window, in tokens, for training and for the held-out loss "
                  "[the full context]")
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--learning-rate", options.learning_rate, "peak learning rate")
      ->check(NumberIn(1e-9, 1.0))
      ->capture_default_str();
  command.add_option("--warmup-steps", options.warmup_steps, "steps of linear warm-up")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  command.add_option("--weight-decay", options.weight_decay, "weight decay of matrices")
      ->check(NumberIn(0.0, 10.0))
      ->capture_default_str();
  command
      .add_option("--dropout", options.dropout,
                  "dropout of embeddings, attention weights and residual branches")
      ->check(NumberIn(0.0, 0.9))
      ->capture_default_str();
  command.add_option("--clip", options.clip, "maximum norm of the gradient")
      ->check(NumberIn(1e-6, 1e6))
      ->capture_default_str();
  command.add_option("--seed", options.seed, "seed of weights, windows and dropout")
      ->capture_default_str();
  command
      .add_option("--save-every", options.save_every,
                  "steps between measurements of the held-out loss, each with a state to resume "
                  "from")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  AddChoice(command, "--dtype", options.compute, kTrainingTypes,
            "format of matrix products [bfloat16 if the processor multiplies it, else float32]");
}

}  // namespace

void AddTrainCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("train", "Train a decoder on a text file");
  const auto options = std::make_shared<TrainOptions>();
  CLI::Option_group* start = command->add_option_group("start");
  start->require_option(1);
  start->add_option("--config", options->config, "config.json of the new model")
      ->check(CLI::ExistingFile);
  start->add_option("--from", options->from, "checkpoint to train further")->check(IsCheckpoint());
  AddText(*command, options->text, options->held_out);
  command->add_option("--output", options->output, "directory of the new checkpoint")->required();
  AddRunOptions(*command, *options);
  CLI::Option* teacher =
      command
          ->add_option("--teacher", options->teachers,
                       "checkpoint to distil from, in addition to the text; repeat the option for "
                       "the mean of several")
          ->allow_extra_args(false)
          ->check(IsCheckpoint());
  command->add_option("--teacher-weight", options->teacher_weight, "teachers' share of the loss")
      ->needs(teacher)
      ->check(NumberIn(0.0, 1.0))
      ->capture_default_str();
  command->callback([&invocation, options] {
    options->command = invocation.command_line;
    invocation.run = [options] {
      Train(*options);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
