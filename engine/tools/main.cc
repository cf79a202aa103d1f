// triptych-model: make, measure and look at checkpoints.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <limits>
#include <thread>

#include "engine/kernels/threads.h"
#include "engine/tools/convert.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/inspect.h"
#include "engine/tools/train.h"

namespace {

// Flags shared by the commands that read a text.
void AddTextFlags(CLI::App& command, std::filesystem::path& text, double& held_out) {
  command.add_option("--text", text, "text file")->required()->check(CLI::ExistingFile);
  command.add_option("--held-out", held_out, "fraction of the text's end that is held out")
      ->check(CLI::Range(0.0, 0.9))
      ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Make, measure and look at Triptych's models.", "triptych-model");
  app.require_subcommand(1);
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  app.add_option("--threads", threads, "compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();

  triptych::TrainOptions train;
  CLI::App* train_command = app.add_subcommand("train", "Train a decoder on a text file");
  CLI::Option_group* start = train_command->add_option_group("start");
  start->require_option(1);
  start->add_option("--config", train.config, "config.json of the model to make")
      ->check(CLI::ExistingFile);
  start->add_option("--from", train.from, "checkpoint of the model to train on")
      ->check(CLI::ExistingDirectory);
  AddTextFlags(*train_command, train.text, train.held_out);
  train_command->add_option("--output", train.output, "directory of the new checkpoint")
      ->required();
  train_command->add_option("--steps", train.steps, "optimizer steps")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  train_command->add_option("--batch-size", train.batch_size, "windows of full context in a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  train_command->add_option("--learning-rate", train.learning_rate, "peak learning rate")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  train_command->add_option("--warmup-steps", train.warmup_steps, "steps of linear warm-up")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  train_command->add_option("--weight-decay", train.weight_decay, "weight decay of matrices")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  train_command->add_option("--dropout", train.dropout, "dropout of the residual branches")
      ->check(CLI::Range(0.0, 0.9))
      ->capture_default_str();
  train_command->add_option("--clip", train.clip, "largest norm of the gradient")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  train_command->add_option("--seed", train.seed, "seed of weights, windows and dropout")
      ->capture_default_str();
  train_command->add_option("--save-every", train.save_every, "steps between resumable states")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();

  triptych::EvaluateOptions evaluate;
  CLI::App* evaluate_command =
      app.add_subcommand("evaluate", "Held-out loss in nats per token (byte)");
  evaluate_command->add_option("--model", evaluate.model, "checkpoint directory")
      ->required()
      ->check(CLI::ExistingDirectory);
  AddTextFlags(*evaluate_command, evaluate.text, evaluate.held_out);
  evaluate_command->add_option("--dtype", evaluate.dtype, "dtype of weights and products")
      ->transform(CLI::CheckedTransformer(std::map<std::string, triptych::DType>{
          {"float32", triptych::DType::kFloat32}, {"bfloat16", triptych::DType::kBFloat16}}))
      ->default_str("float32");

  std::filesystem::path inspected;
  bool list_tensors = false;
  CLI::App* inspect_command =
      app.add_subcommand("inspect", "What a checkpoint is, and what serving it costs");
  inspect_command->add_option("model", inspected, "checkpoint directory")
      ->required()
      ->check(CLI::ExistingDirectory);
  inspect_command->add_flag("--tensors", list_tensors, "list every tensor");

  std::filesystem::path convert_from, convert_to;
  triptych::ConvertTarget target;
  CLI::App* convert_command =
      app.add_subcommand("convert", "Make a checkpoint of another attention kind out of one");
  convert_command->add_option("--from", convert_from, "checkpoint directory")
      ->required()
      ->check(CLI::ExistingDirectory);
  convert_command->add_option("--to", convert_to, "directory of the new checkpoint")->required();
  convert_command->add_option("--attention", target.attention, "mha, gqa or mla")
      ->required()
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, triptych::AttentionKind>{{"mha", triptych::AttentionKind::kMha},
                                                         {"gqa", triptych::AttentionKind::kGqa},
                                                         {"mla", triptych::AttentionKind::kMla}}));
  convert_command->add_option("--groups", target.groups, "key/value heads of GQA");
  convert_command->add_option("--rank", target.rank, "rank of MLA's latent");

  CLI11_PARSE(app, argc, argv);
  triptych::SetComputeThreads(threads);
  // Training allocates the same large tensors in every step: keep their pages, or a third of the
  // time goes into faulting them in again.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_ARENA_MAX, 1);
  try {
    if (train_command->parsed()) triptych::Train(train);
    if (convert_command->parsed()) triptych::Convert(convert_from, convert_to, target);
    if (evaluate_command->parsed()) triptych::Evaluate(evaluate);
    if (inspect_command->parsed()) triptych::Inspect(inspected, list_tensors);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "triptych-model: %s\n", e.what());
    return 1;
  }
  return 0;
}
