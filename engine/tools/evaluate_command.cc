#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "engine/base/formats.h"
#include "engine/base/names.h"
#include "engine/tools/commands.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/flags.h"
#include "engine/tools/research/sweep.h"

namespace triptych::tools {
namespace {

struct EvaluateFlags {
  EvaluateOptions evaluate;
  SweepOptions sweep;  // with --sweep
};

// --sweep and its options, which exclude the formats of a single evaluation.
void AddSweep(CLI::App& command, SweepOptions& sweep, const std::vector<CLI::Option*>& formats) {
  CLI::Option* csv = command.add_option(
      "--sweep", sweep.csv,
      "CSV file of the losses of an MHA or GQA model's conversions; resumes a sweep");
  for (CLI::Option* format : formats) csv->excludes(format);
  command
      .add_option("--heal-steps", sweep.heal_steps,
                  "training steps after each conversion, with --model as the teacher")
      ->needs(csv)
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  command
      .add_option("--heal-seeds", sweep.heal_seeds,
                  "seeds of the training after each conversion; none that the model was trained "
                  "with")
      ->needs(csv)
      ->delimiter(',')
      ->capture_default_str();
  for (const char* flag : {"--sweep", "--heal-steps", "--heal-seeds"}) {
    command.get_option(flag)->group("Research");
  }
}

}  // namespace

void AddEvaluateCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("evaluate", "Measure the held-out loss, in nats per token");
  const auto flags = std::make_shared<EvaluateFlags>();
  EvaluateOptions& evaluate = flags->evaluate;
  AddModel(*command, "--model", evaluate.model);
  AddText(*command, evaluate.text, evaluate.held_out);
  CLI::Option* dtype = AddChoice(*command, "--dtype", evaluate.weights.layers,
                                 Names<WeightFormat>(), "format of the served weights [float32]");
  CLI::Option* embeddings =
      AddChoice(*command, "--embedding-dtype", evaluate.weights.embeddings, Names<WeightFormat>(),
                "format of the embedding and the output matrix [as --dtype]");
  CLI::Option* experts =
      AddChoice(*command, "--expert-dtype", evaluate.weights.experts, Names<WeightFormat>(),
                "format of the routed experts [as --dtype]");
  CLI::Option* cache = AddChoice(*command, "--kv-cache-dtype", evaluate.cache, Names<CacheFormat>(),
                                 "format of the KV cache [float32]");
  AddSweep(*command, flags->sweep, {dtype, embeddings, experts, cache});
  command->callback([&invocation, flags] {
    invocation.run = [flags] {
      if (flags->sweep.csv.empty()) {
        Evaluate(flags->evaluate);
        return kOk;
      }
      flags->sweep.model = flags->evaluate.model;
      flags->sweep.text = flags->evaluate.text;
      flags->sweep.held_out = flags->evaluate.held_out;
      Sweep(flags->sweep);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
