// triptych-model: make, measure and look at checkpoints.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <thread>

#include "engine/kernels/threads.h"
#include "engine/tools/convert.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/inspect.h"
#include "engine/tools/train.h"

namespace triptych {
namespace {

// As diff(1) has it.
enum ExitStatus { kEqual = 0, kDifferent = 1, kTrouble = 2 };

// What the chosen command does; returns the exit status.
using Action = std::function<int()>;

const std::map<std::string, DType> kDTypes = {{"float32", DType::kFloat32},
                                              {"bfloat16", DType::kBFloat16}};
const std::map<std::string, AttentionKind> kKinds = {
    {"mha", AttentionKind::kMha}, {"gqa", AttentionKind::kGqa}, {"mla", AttentionKind::kMla}};
const std::map<std::string, FactorMethod> kMethods = {{"weight", FactorMethod::kWeight},
                                                      {"activation", FactorMethod::kActivation}};

// One of the names of `values`; shown by the help as they are.
template <typename Value, typename Target>
CLI::Option* AddChoice(CLI::App& command, const std::string& flag, Target& target,
                       const std::map<std::string, Value>& values, const std::string& help) {
  return command
      .add_option_function<std::string>(
          flag, [&](const std::string& name) { target = values.at(name); }, help)
      ->check(CLI::IsMember(values));
}

CLI::Option* AddModel(CLI::App& command, const std::string& flag, std::filesystem::path& model,
                      const std::string& help = "checkpoint directory") {
  return command.add_option(flag, model, help)->required()->check(CLI::ExistingDirectory);
}

CLI::Option* AddHeldOut(CLI::App& command, double& held_out) {
  return command.add_option("--held-out", held_out, "fraction of the text's end that is held out")
      ->check(CLI::Range(0.0, 0.9))
      ->capture_default_str();
}

void AddText(CLI::App& command, std::filesystem::path& text, double& held_out) {
  command.add_option("--text", text, "text file")->required()->check(CLI::ExistingFile);
  AddHeldOut(command, held_out);
}

void AddTrain(CLI::App& app, TrainOptions& train, Action& action) {
  CLI::App* command = app.add_subcommand("train", "Train a decoder on a text file");
  CLI::Option_group* start = command->add_option_group("start");
  start->require_option(1);
  start->add_option("--config", train.config, "config.json of the model to make")
      ->check(CLI::ExistingFile);
  start->add_option("--from", train.from, "checkpoint of the model to train on")
      ->check(CLI::ExistingDirectory);
  AddText(*command, train.text, train.held_out);
  command->add_option("--output", train.output, "directory of the new checkpoint")->required();
  command->add_option("--steps", train.steps, "optimizer steps")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  command->add_option("--batch-size", train.batch_size, "windows of full context in a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--learning-rate", train.learning_rate, "peak learning rate")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  command->add_option("--warmup-steps", train.warmup_steps, "steps of linear warm-up")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  command->add_option("--weight-decay", train.weight_decay, "weight decay of matrices")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command->add_option("--dropout", train.dropout, "dropout of the residual branches")
      ->check(CLI::Range(0.0, 0.9))
      ->capture_default_str();
  command->add_option("--clip", train.clip, "largest norm of the gradient")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  command->add_option("--seed", train.seed, "seed of weights, windows and dropout")
      ->capture_default_str();
  command->add_option("--save-every", train.save_every, "steps between resumable states")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  CLI::Option* teacher =
      command->add_option("--teacher", train.teacher, "checkpoint to distil from, beside the text")
          ->check(CLI::ExistingDirectory);
  command->add_option("--teacher-weight", train.teacher_weight, "the teacher's share of the loss")
      ->needs(teacher)
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->callback([&] {
    action = [&] {
      Train(train);
      if (train.held_out > 0) {
        Evaluate({.model = train.output, .text = train.text, .held_out = train.held_out});
      }
      return kEqual;
    };
  });
}

void AddEvaluate(CLI::App& app, EvaluateOptions& evaluate, Action& action) {
  CLI::App* command = app.add_subcommand("evaluate", "Held-out loss in nats per token (byte)");
  AddModel(*command, "--model", evaluate.model);
  AddText(*command, evaluate.text, evaluate.held_out);
  AddChoice(*command, "--dtype", evaluate.dtype, kDTypes,
            "dtype of weights and products [float32]");
  command->callback([&] {
    action = [&] {
      Evaluate(evaluate);
      return kEqual;
    };
  });
}

void AddInspect(CLI::App& app, std::filesystem::path& model, bool& tensors, Action& action) {
  CLI::App* command =
      app.add_subcommand("inspect", "What a checkpoint is, and what serving it costs");
  AddModel(*command, "model", model);
  command->add_flag("--tensors", tensors, "list every tensor");
  command->callback([&] {
    action = [&] {
      Inspect(model, tensors);
      return kEqual;
    };
  });
}

void AddConvert(CLI::App& app, ConvertOptions& convert, Action& action) {
  CLI::App* command =
      app.add_subcommand("convert", "Make a checkpoint of another attention kind out of one");
  AddModel(*command, "--from", convert.from);
  command->add_option("--to", convert.to, "directory of the new checkpoint")->required();
  AddChoice(*command, "--attention", convert.attention, kKinds, "of the new checkpoint")
      ->required();
  command->add_option("--groups", convert.groups, "gqa: key/value heads");
  command->add_option("--rank", convert.rank,
                      "mla: elements of a latent in every layer [as many as lose nothing]");
  command->add_option("--bytes-per-position", convert.bytes_per_position,
                      "mla: the most a position may cost; ranks are chosen for each layer");
  command
      ->add_option("--max-loss-increase", convert.max_loss_increase,
                   "mla: the most nats per token to lose; ranks are chosen for each layer")
      ->check(CLI::Range(0.0, 100.0));
  AddChoice(*command, "--method", convert.method, kMethods,
            "mla: what the factors are the best for [activation with --calibrate, else weight]");
  command->add_option("--calibrate", convert.calibrate, "text to take inputs from, and losses")
      ->check(CLI::ExistingFile);
  AddHeldOut(*command, convert.held_out);
  AddChoice(*command, "--dtype", convert.dtype, kDTypes, "to store [the source's]");
  command->callback([&] {
    action = [&] {
      ConvertModel(convert);
      return kEqual;
    };
  });
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Make, measure and look at Triptych's models. Exit status: 0, or 1 if what was compared "
      "differs, or 2.",
      "triptych-model");
  app.require_subcommand(1);
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  app.add_option("--threads", threads, "compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();

  Action action;
  TrainOptions train;
  AddTrain(app, train, action);
  EvaluateOptions evaluate;
  AddEvaluate(app, evaluate, action);
  std::filesystem::path inspected;
  bool list_tensors = false;
  AddInspect(app, inspected, list_tensors, action);
  ConvertOptions convert;
  AddConvert(app, convert, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "triptych-model: %s\n", e.what());
    return kTrouble;
  }
  SetComputeThreads(threads);
  // Training allocates the same large tensors in every step: keep their pages, or a third of the
  // time goes into faulting them in again.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_ARENA_MAX, 1);
  try {
    return action();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "triptych-model: %s\n", e.what());
    return kTrouble;
  }
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) { return triptych::Main(argc, argv); }
