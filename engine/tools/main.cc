// triptych-model: make, measure and look at checkpoints.
#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "engine/base/parse.h"
#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/base/version.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/compute_threads.h"
#include "engine/model/config.h"
#include "engine/tools/convert.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/import.h"
#include "engine/tools/inspect.h"
#include "engine/tools/plan.h"
#include "engine/tools/quantize.h"
#include "engine/tools/sweep.h"
#include "engine/tools/train.h"
#include "engine/tools/verify.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace triptych::tools {
namespace {

// As diff(1) has it.
enum ExitStatus { kOk = 0, kDifferent = 1, kTrouble = 2 };

// What the chosen command does; returns the exit status.
using Action = std::function<int()>;

const std::map<std::string, at::ScalarType> kVerifiedDTypes = {{"float32", at::kFloat},
                                                               {"float64", at::kDouble}};
const std::map<std::string, ComputeType> kTrainedDTypes = {{"float32", ComputeType::kFloat32},
                                                           {"bfloat16", ComputeType::kBFloat16}};
const std::map<std::string, at::DeviceType> kDevices = {{"cpu", at::kCPU}, {"cuda", at::kCUDA}};

// One of the names of `values`; shown by the help as they are.
template <typename Value, typename Target>
CLI::Option* AddChoice(CLI::App& command, const std::string& flag, Target& target,
                       const std::map<std::string, Value>& values, const std::string& help) {
  return command
      .add_option_function<std::string>(
          flag, [&](const std::string& name) { target = values.at(name); }, help)
      ->check(CLI::IsMember(values));
}

// A number from `low` to `high`: CLI11's own ranges let NaN pass.
CLI::Validator NumberIn(double low, double high) {
  std::ostringstream range;
  range << low << " to " << high;
  return CLI::Validator(
      [low, high, allowed = range.str()](std::string& text) {
        return ParseNumber(text, low, high)
                   ? ""
                   : Quoted(text) + " is not a number that is allowed: " + allowed;
      },
      "FLOAT in [" + range.str() + "]");
}

// A checkpoint that is there.
CLI::Validator IsCheckpoint() {
  return CLI::Validator(
      [](std::string& path) {
        return checkpoint::MayBeCheckpoint(path)
                   ? ""
                   : Quoted(path) + " is not a directory or a .gguf file";
      },
      "DIR|GGUF");
}

CLI::Option* AddModel(CLI::App& command, const std::string& flag, std::filesystem::path& model,
                      const std::string& help = "checkpoint: a directory or a .gguf file") {
  return command.add_option(flag, model, help)->required()->check(IsCheckpoint());
}

CLI::Option* AddHeldOut(CLI::App& command, std::optional<double>& held_out) {
  return command
      .add_option("--held-out", held_out,
                  "fraction of the text's end that is held out [what the model was not trained on, "
                  "or 0.1]")
      ->check(NumberIn(0.0, 0.9));
}

void AddText(CLI::App& command, std::filesystem::path& text, std::optional<double>& held_out) {
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
      ->check(IsCheckpoint());
  AddText(*command, train.text, train.held_out);
  command->add_option("--output", train.output, "directory of the new checkpoint")->required();
  command->add_option("--steps", train.steps, "optimizer steps")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  command->add_option("--batch-size", train.batch_size, "windows in a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--window", train.window,
                   "tokens of a window, also of those that the part held out is measured in "
                   "[the full context]")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--learning-rate", train.learning_rate, "peak learning rate")
      ->check(NumberIn(1e-9, 1.0))
      ->capture_default_str();
  command->add_option("--warmup-steps", train.warmup_steps, "steps of linear warm-up")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  command->add_option("--weight-decay", train.weight_decay, "weight decay of matrices")
      ->check(NumberIn(0.0, 10.0))
      ->capture_default_str();
  command
      ->add_option("--dropout", train.dropout,
                   "dropout of embeddings, attention weights and residual branches")
      ->check(NumberIn(0.0, 0.9))
      ->capture_default_str();
  command->add_option("--clip", train.clip, "largest norm of the gradient")
      ->check(NumberIn(1e-6, 1e6))
      ->capture_default_str();
  command->add_option("--seed", train.seed, "seed of weights, windows and dropout")
      ->capture_default_str();
  command
      ->add_option("--save-every", train.save_every,
                   "steps between states to go on from, each measured on the part held out")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  AddChoice(*command, "--dtype", train.compute, kTrainedDTypes,
            "of matrix products [bfloat16 on machines that multiply such numbers, else float32]");
  CLI::Option* teacher =
      command
          ->add_option("--teacher", train.teachers,
                       "checkpoint to distil from, beside the text; of several, each named by an "
                       "option of its own, the mean of what they expect")
          ->allow_extra_args(false)
          ->check(IsCheckpoint());
  command->add_option("--teacher-weight", train.teacher_weight, "the teachers' share of the loss")
      ->needs(teacher)
      ->check(NumberIn(0.0, 1.0))
      ->capture_default_str();
  command->callback([&] {
    action = [&] {
      Train(train);
      return kOk;
    };
  });
}

void AddEvaluate(CLI::App& app, EvaluateOptions& evaluate, SweepOptions& sweep, Action& action) {
  CLI::App* command = app.add_subcommand("evaluate", "Held-out loss in nats per token (byte)");
  AddModel(*command, "--model", evaluate.model);
  AddText(*command, evaluate.text, evaluate.held_out);
  CLI::Option* dtype = AddChoice(*command, "--dtype", evaluate.dtype, Names<WeightFormat>(),
                                 "dtype of the weights as they are served [float32]");
  CLI::Option* embeddings =
      AddChoice(*command, "--embedding-dtype", evaluate.embeddings, Names<WeightFormat>(),
                "dtype of the embedding and the output matrix [as --dtype]");
  CLI::Option* cache = AddChoice(*command, "--kv-cache-dtype", evaluate.cache, Names<CacheFormat>(),
                                 "dtype of what a cache keeps of a position [float32]");
  CLI::Option* csv =
      command
          ->add_option("--sweep", sweep.csv,
                       "measure every conversion of the model, MHA or GQA, into this CSV file; "
                       "goes on where it stopped")
          ->excludes(dtype)
          ->excludes(embeddings)
          ->excludes(cache);
  command
      ->add_option("--heal-steps", sweep.heal_steps,
                   "with --sweep: training steps after each conversion, taught by --model")
      ->needs(csv)
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  command
      ->add_option("--heal-seeds", sweep.heal_seeds,
                   "with --sweep: each conversion is trained on once with each; none that the "
                   "model was trained with")
      ->needs(csv)
      ->delimiter(',')
      ->capture_default_str();
  command->callback([&] {
    action = [&] {
      if (sweep.csv.empty()) {
        Evaluate(evaluate);
      } else {
        sweep.model = evaluate.model;
        sweep.text = evaluate.text;
        sweep.held_out = evaluate.held_out;
        Sweep(sweep);
      }
      return kOk;
    };
  });
}

void AddImport(CLI::App& app, ImportOptions& import_options, Action& action) {
  CLI::App* command =
      app.add_subcommand("import", "Make a checkpoint out of llama2.c's model and tokenizer");
  command->add_option("model", import_options.model, "llama2.c's .bin file")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--tokenizer", import_options.tokenizer, "its tokenizer's .bin file")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--output", import_options.output, "directory of the new checkpoint")
      ->required();
  command->callback([&] {
    action = [&] {
      ImportModel(import_options);
      return kOk;
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
      return kOk;
    };
  });
}

void AddPlan(CLI::App& app, PlanOptions& plan, Action& action) {
  CLI::App* command = app.add_subcommand(
      "plan", "How many sequences fit in memory, how fast they go, and which attention wins");
  AddModel(*command, "--model", plan.model, "checkpoint, of which the config is read");
  command
      ->add_option_function<std::string>(
          "--memory", [&](const std::string& text) { plan.memory = *ParseBytes(text); },
          "of the server: bytes, 80GiB [with --device cuda: what is free there]")
      ->check(CLI::Validator(
          [](std::string& text) {
            return ParseBytes(text) ? ""
                                    : Quoted(text) + " is not a size; allowed: " + kBytesAllowed;
          },
          "SIZE"));
  command->add_option("--context", plan.context,
                      "positions of every sequence [as many as the model has]");
  command->add_option(
      "--groups", plan.groups,
      "gqa: key/value heads [the model's, or the most with rows no wider than mla's]");
  command->add_option("--rank", plan.rank,
                      "mla: elements of a latent [the model's, or as many as lose nothing]");
  AddChoice(*command, "--dtype", plan.dtype, Names<WeightFormat>(),
            "of the weights [the checkpoint's; on a GPU bfloat16]");
  AddChoice(*command, "--embedding-dtype", plan.embeddings, Names<WeightFormat>(),
            "of the embedding and the output matrix [as --dtype, or else the checkpoint's]");
  AddChoice(*command, "--kv-cache-dtype,--kv-dtype", plan.cache, Names<CacheFormat>(),
            "of the cache [the weights']");
  CLI::Option* machine =
      command
          ->add_option("--machine", plan.machine,
                       "JSON file of what a machine or a GPU can do [--device, measured]")
          ->check(CLI::ExistingFile);
  command->add_option("--device", plan.device, "what is measured here: cpu, cuda or cuda:N")
      ->excludes(machine)
      ->capture_default_str();
  command->add_option("--write-machine", plan.write_machine, "file to write what was measured to")
      ->excludes(machine);
  command->callback([&] {
    action = [&] {
      Plan(plan);
      return kOk;
    };
  });
}

void AddConvert(CLI::App& app, ConvertOptions& convert, Action& action) {
  CLI::App* command =
      app.add_subcommand("convert", "Make a checkpoint of another attention kind out of one");
  AddModel(*command, "--from", convert.from);
  command->add_option("--to", convert.to, "directory of the new checkpoint")->required();
  AddChoice(*command, "--attention", convert.attention, Names<AttentionKind>(),
            "of the new checkpoint")
      ->required();
  command->add_option("--groups", convert.groups, "gqa: key/value heads");
  command->add_option("--rank", convert.rank,
                      "mla: elements of a latent in every layer [as many as lose nothing]");
  command->add_option("--bytes-per-position", convert.bytes_per_position,
                      "mla: the most a position may cost; ranks are chosen for each layer");
  command
      ->add_option("--max-loss-increase", convert.max_loss_increase,
                   "mla: the most nats per token to lose; ranks are chosen for each layer")
      ->check(NumberIn(0.0, 100.0));
  command->add_option("--rope-head-dim", convert.rope_head_dim,
                      "mla of rotated keys: the width of decoupled ones [as many as lose nothing; "
                      "with a budget, the best: up to two heads', or wider where a layer's queries "
                      "stay within its other weights]");
  command->add_option("--fold-frequencies", convert.fold_frequencies,
                      "mla of rotated keys: adjacent frequencies that are mixed as one [1]");
  AddChoice(*command, "--method", convert.method, Names<ConversionMethod>(),
            "gqa, mla: what factors are the best for, or pool, the mean of heads [gqa of rotated "
            "keys: pool; activation with --calibrate, else weight]");
  CLI::Option* calibrate =
      command
          ->add_option(
              "--calibrate", convert.calibrate,
              "text to take inputs from, and losses; gqa: the order of heads is chosen by it")
          ->check(CLI::ExistingFile);
  AddHeldOut(*command, convert.held_out)->needs(calibrate);
  AddChoice(*command, "--dtype", convert.dtype, Names<TensorFormat>(), "to store [the source's]");
  command->callback([&] {
    action = [&] {
      ConvertModel(convert);
      return kOk;
    };
  });
}

void AddQuantize(CLI::App& app, QuantizeOptions& quantize, Action& action) {
  static const std::map<std::string, WeightFormat> kFormats = {{"int8", WeightFormat::kInt8},
                                                               {"int4", WeightFormat::kInt4}};
  CLI::App* command =
      app.add_subcommand("quantize", "Make a checkpoint whose matrices are integers out of one");
  AddModel(*command, "--from", quantize.from);
  command->add_option("--to", quantize.to, "directory of the new checkpoint")->required();
  AddChoice(*command, "--dtype", quantize.format, kFormats, "of the matrices")->required();
  command->add_flag("--keep-embeddings", quantize.keep_embeddings,
                    "the embedding and the output matrix stay as they are");
  CLI::Option* calibrate =
      command
          ->add_option("--calibrate", quantize.calibrate,
                       "int4: text to take inputs from, by which weights are rounded, and losses")
          ->check(CLI::ExistingFile);
  AddHeldOut(*command, quantize.held_out)->needs(calibrate);
  command->callback([&] {
    action = [&] {
      QuantizeModel(quantize);
      return kOk;
    };
  });
}

void AddSize(CLI::App& command, const std::string& flag, int64_t& value, const std::string& help) {
  command.add_option(flag, value, help)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

void AddVerifyReduction(CLI::App& verify, VerifyReductionOptions& reduction, Action& action) {
  CLI::App* command =
      verify.add_subcommand("reduction", "Reduced latent attention against vanilla");
  AddSize(*command, "--x-width", reduction.x_width, "D1, of the attending sequence");
  AddSize(*command, "--y-width", reduction.y_width, "D2, of the attended sequence");
  AddSize(*command, "--heads", reduction.heads, "H");
  AddSize(*command, "--head-dim", reduction.head_dim, "d");
  AddSize(*command, "--rank", reduction.rank, "r");
  AddSize(*command, "--batch", reduction.batch, "B");
  AddSize(*command, "--queries", reduction.queries, "L1");
  AddSize(*command, "--keys", reduction.keys, "L2");
  AddChoice(*command, "--dtype", reduction.dtype, kVerifiedDTypes, "of the computation [both]");
  AddChoice(*command, "--device", reduction.device, kDevices, "to compute on [cpu]");
  command->add_option("--seed", reduction.seed, "of weights and inputs")->capture_default_str();
  command->callback(
      [&] { action = [&] { return VerifyReduction(reduction) ? kOk : kDifferent; }; });
}

void AddVerifyGqaToMla(CLI::App& verify, VerifyGqaToMlaOptions& pair, Action& action) {
  CLI::App* command = verify.add_subcommand("gqa-to-mla", "A stack of copies as a low-rank pair");
  AddSize(*command, "--rows", pair.rows, "G*d of a random matrix");
  AddSize(*command, "--columns", pair.columns, "D of a random matrix");
  AddSize(*command, "--copies", pair.copies, "H/G");
  command->add_option("--seed", pair.seed, "of a random matrix")->capture_default_str();
  CLI::Option* model =
      command->add_option("--model", pair.model, "a real layer instead, of this checkpoint")
          ->check(IsCheckpoint());
  for (const char* random : {"--rows", "--columns", "--copies", "--seed"}) model->excludes(random);
  command->add_option("--layer", pair.layer, "of the model")->needs(model)->capture_default_str();
  command->add_flag("--values", pair.values, "its values' projection, not its keys'")->needs(model);
  command->callback([&] { action = [&] { return VerifyGqaToMla(pair) ? kOk : kDifferent; }; });
}

void AddVerifyNotGqa(CLI::App& verify, VerifyNotGqaOptions& not_gqa, Action& action) {
  CLI::App* command = verify.add_subcommand("not-gqa", "MLA is not GQA: the counter-example");
  AddSize(*command, "--count", not_gqa.count, "random products");
  AddSize(*command, "--width", not_gqa.width, "D");
  AddSize(*command, "--heads", not_gqa.heads, "H");
  AddSize(*command, "--groups", not_gqa.groups, "G");
  AddSize(*command, "--head-dim", not_gqa.head_dim, "d");
  AddSize(*command, "--rank", not_gqa.rank, "r");
  command->add_option("--seed", not_gqa.seed, "of the products")->capture_default_str();
  command->callback([&] { action = [&] { return VerifyNotGqa(not_gqa) ? kOk : kDifferent; }; });
}

void AddVerifyModel(CLI::App& verify, VerifyModelOptions& models, Action& action) {
  CLI::App* command = verify.add_subcommand("model", "Two checkpoints on real text");
  AddModel(*command, "--a", models.a);
  AddModel(*command, "--b", models.b);
  AddText(*command, models.text, models.held_out);
  command->add_option("--tolerance", models.tolerance, "of the largest logit difference")
      ->check(NumberIn(0.0, std::numeric_limits<double>::max()))
      ->capture_default_str();
  command->callback([&] { action = [&] { return VerifyModel(models) ? kOk : kDifferent; }; });
}

// The command as it was typed, for a card: quoted for a shell, with escapes for what no terminal
// shows.
std::string CommandLine(int argc, char** argv) {
  constexpr size_t kMaxArgument = 4096;
  constexpr const char* kSpecial = " \"'\\`$&|;<>()*?#~!{}[]";
  std::string line = std::filesystem::path(argv[0]).filename();
  for (int i = 1; i < argc; ++i) {
    const std::string argument = Printable(argv[i], kMaxArgument);
    if (!argument.empty() && argument.find_first_of(kSpecial) == std::string::npos) {
      line += " " + argument;
      continue;
    }
    line += " '";
    for (const char c : argument) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  return line;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Make, measure and look at Triptych's models. Exit status: 0, or 1 if what was compared "
      "differs, or 2.",
      "triptych-model");
  app.set_version_flag("--version", "triptych-model " + std::string(Version()),
                       "Print the version and exit");
  app.require_subcommand(1);
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  app.add_option("--threads", threads, "compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();

  Action action;
  TrainOptions train;
  train.command = CommandLine(argc, argv);
  AddTrain(app, train, action);
  EvaluateOptions evaluate;
  SweepOptions sweep;
  AddEvaluate(app, evaluate, sweep, action);
  ImportOptions import_options;
  import_options.command = CommandLine(argc, argv);
  AddImport(app, import_options, action);
  std::filesystem::path inspected;
  bool list_tensors = false;
  AddInspect(app, inspected, list_tensors, action);
  PlanOptions plan;
  AddPlan(app, plan, action);
  ConvertOptions convert;
  convert.command = CommandLine(argc, argv);
  AddConvert(app, convert, action);
  QuantizeOptions quantize;
  quantize.command = CommandLine(argc, argv);
  AddQuantize(app, quantize, action);
  CLI::App* verify = app.add_subcommand("verify", "Put a claim of the definitions to the test");
  verify->require_subcommand(1);
  VerifyReductionOptions reduction;
  AddVerifyReduction(*verify, reduction, action);
  VerifyGqaToMlaOptions pair;
  AddVerifyGqaToMla(*verify, pair, action);
  VerifyNotGqaOptions not_gqa;
  AddVerifyNotGqa(*verify, not_gqa, action);
  VerifyModelOptions models;
  AddVerifyModel(*verify, models, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "triptych-model: %s\n", e.what());
    return kTrouble;
  }
  SetComputeThreads(threads);
  plan.threads = threads;
  // Training allocates the same large tensors in every step: keep their pages, or a third of the
  // time goes into faulting them in again.
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_ARENA_MAX, 1);
#endif
  const auto report = [](const char* error) {
    std::fprintf(stderr, "triptych-model: %s\n", error);
    return kTrouble;
  };
  try {
    return action();
  } catch (const c10::Error& e) {  // whose what() is pages of backtrace
    return report(e.what_without_backtrace());
  } catch (const std::exception& e) {
    return report(e.what());
  }
}

}  // namespace
}  // namespace triptych::tools

int main(int argc, char** argv) { return triptych::tools::Main(argc, argv); }
