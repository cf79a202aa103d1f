#include <CLI/CLI.hpp>
#include <memory>

#include "engine/base/formats.h"
#include "engine/base/names.h"
#include "engine/model/config.h"
#include "engine/tools/commands.h"
#include "engine/tools/convert.h"
#include "engine/tools/flags.h"

namespace triptych::tools {
namespace {

void AddLatentOptions(CLI::App& command, ConvertOptions& options) {
  command.add_option("--rank", options.rank,
                     "MLA: elements of a latent in every layer [the exact rank]");
  command.add_option("--bytes-per-position", options.bytes_per_position,
                     "MLA: maximum cache bytes of a position; ranks then differ between layers");
  command
      .add_option("--max-loss-increase", options.max_loss_increase,
                  "MLA: maximum increase of the loss, in nats per token; ranks then differ between "
                  "layers")
      ->check(NumberIn(0.0, 100.0));
  command.add_option("--rope-head-dim", options.rope_head_dim,
                     "MLA of rotated keys: width of the decoupled keys [the exact width; with a "
                     "budget the best, up to two heads', or wider in a layer whose queries stay "
                     "smaller than its other weights]");
  command.add_option("--fold-frequencies", options.fold_frequencies,
                     "MLA of rotated keys: number of adjacent frequencies mixed as one [1]");
}

}  // namespace

void AddConvertCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("convert", "Convert a checkpoint to another attention kind");
  const auto options = std::make_shared<ConvertOptions>();
  AddModel(*command, "--from", options->from);
  command->add_option("--to", options->to, "directory of the new checkpoint")->required();
  AddChoice(*command, "--attention", options->attention, Names<AttentionKind>(),
            "attention kind of the new checkpoint")
      ->required();
  command->add_option("--groups", options->groups, "GQA: key/value heads");
  AddLatentOptions(*command, *options);
  AddChoice(*command, "--method", options->method, Names<ConversionMethod>(),
            "GQA and MLA: what factors fit, inputs or weights; GQA: pool, the mean of heads "
            "[activation with --calibrate, else weight; GQA of rotated keys: pool]");
  CLI::Option* calibrate =
      command
          ->add_option("--calibrate", options->calibrate,
                       "text file for inputs of the layers and for losses; GQA: also for the "
                       "order of heads")
          ->check(CLI::ExistingFile);
  AddHeldOut(*command, options->held_out)->needs(calibrate);
  AddChoice(*command, "--format", options->format, Names<checkpoint::ConfigForm>(),
            "form of the new checkpoint; deepseek: deepseek_v3 without experts, as transformers "
            "reads it; a source of MLA is then written as it is [triptych]");
  AddChoice(*command, "--dtype", options->dtype, Names<TensorFormat>(),
            "format of the stored weights [the source's]");
  command->callback([&invocation, options] {
    options->command = invocation.command_line;
    invocation.run = [options] {
      ConvertModel(*options);
      return kOk;
    };
  });
}

}  // namespace triptych::tools
