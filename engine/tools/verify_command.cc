#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "engine/tools/commands.h"
#include "engine/tools/flags.h"
#include "engine/tools/research/verify.h"

namespace triptych::tools {
namespace {

const std::map<std::string, at::ScalarType> kVerifiedTypes = {{"float32", at::kFloat},
                                                              {"float64", at::kDouble}};
const std::map<std::string, at::DeviceType> kDevices = {{"cpu", at::kCPU}, {"cuda", at::kCUDA}};

// If the command is selected, runs `verify`, which returns whether the claim holds.
template <typename Options>
void OnSelection(CLI::App& command, Invocation& invocation, std::shared_ptr<Options> options,
                 bool (*verify)(const Options&)) {
  command.callback([&invocation, options, verify] {
    invocation.run = [options, verify] { return verify(*options) ? kOk : kDifferent; };
  });
}

void AddSize(CLI::App& command, const std::string& flag, int64_t& value, const std::string& help) {
  command.add_option(flag, value, help)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

void AddVerifyReduction(CLI::App& verify, Invocation& invocation) {
  CLI::App* command = verify.add_subcommand("reduction", "Compare reduced MLA with vanilla MLA");
  const auto options = std::make_shared<VerifyReductionOptions>();
  AddSize(*command, "--x-width", options->x_width, "D1, width of the attending sequence");
  AddSize(*command, "--y-width", options->y_width, "D2, width of the attended sequence");
  AddSize(*command, "--heads", options->heads, "H, heads");
  AddSize(*command, "--head-dim", options->head_dim, "d, width of a head");
  AddSize(*command, "--rank", options->rank, "r, elements of a latent");
  AddSize(*command, "--batch", options->batch, "B, batch size");
  AddSize(*command, "--queries", options->queries, "L1, length of the attending sequence");
  AddSize(*command, "--keys", options->keys, "L2, length of the attended sequence");
  AddChoice(*command, "--dtype", options->dtype, kVerifiedTypes,
            "format of the computation [both]");
  AddChoice(*command, "--device", options->device, kDevices, "device of the computation [cpu]");
  command->add_option("--seed", options->seed, "seed of weights and inputs")->capture_default_str();
  OnSelection(*command, invocation, options, VerifyReduction);
}

void AddVerifyGqaToMla(CLI::App& verify, Invocation& invocation) {
  CLI::App* command =
      verify.add_subcommand("gqa-to-mla", "Factor a stack of copied heads into a low-rank pair");
  const auto options = std::make_shared<VerifyGqaToMlaOptions>();
  AddSize(*command, "--rows", options->rows, "G*d, rows of a random matrix");
  AddSize(*command, "--columns", options->columns, "D, columns of a random matrix");
  AddSize(*command, "--copies", options->copies, "H/G, copies in the stack");
  command->add_option("--seed", options->seed, "seed of a random matrix")->capture_default_str();
  CLI::Option* model = command
                           ->add_option("--model", options->model,
                                        "checkpoint with the matrix, instead of a random one")
                           ->check(IsCheckpoint());
  for (const char* random : {"--rows", "--columns", "--copies", "--seed"}) model->excludes(random);
  command->add_option("--layer", options->layer, "layer of the model, from 0")
      ->needs(model)
      ->capture_default_str();
  command
      ->add_flag("--values", options->values, "the layer's value projection, instead of the keys'")
      ->needs(model);
  OnSelection(*command, invocation, options, VerifyGqaToMla);
}

void AddVerifyNotGqa(CLI::App& verify, Invocation& invocation) {
  CLI::App* command =
      verify.add_subcommand("not-gqa", "Show by a counter-example that MLA is not GQA");
  const auto options = std::make_shared<VerifyNotGqaOptions>();
  AddSize(*command, "--count", options->count, "number of random products");
  AddSize(*command, "--width", options->width, "D, width of the model");
  AddSize(*command, "--heads", options->heads, "H, heads");
  AddSize(*command, "--groups", options->groups, "G, groups");
  AddSize(*command, "--head-dim", options->head_dim, "d, width of a head");
  AddSize(*command, "--rank", options->rank, "r, elements of a latent");
  command->add_option("--seed", options->seed, "seed of the products")->capture_default_str();
  OnSelection(*command, invocation, options, VerifyNotGqa);
}

void AddVerifyNormedKeys(CLI::App& verify, Invocation& invocation) {
  CLI::App* command =
      verify.add_subcommand("normed-keys", "Compare normed keys with latents and inverse norms");
  const auto options = std::make_shared<VerifyNormedKeysOptions>();
  AddSize(*command, "--width", options->width, "D, width of the model");
  AddSize(*command, "--heads", options->heads, "H, heads");
  AddSize(*command, "--groups", options->groups, "G, groups");
  AddSize(*command, "--head-dim", options->head_dim, "d, width of a head, a multiple of 8");
  AddSize(*command, "--length", options->length, "L, length of the sequence");
  command->add_option("--seed", options->seed, "seed of weights and inputs")->capture_default_str();
  OnSelection(*command, invocation, options, VerifyNormedKeys);
}

void AddVerifyModel(CLI::App& verify, Invocation& invocation) {
  CLI::App* command = verify.add_subcommand("model", "Compare two checkpoints on a text");
  const auto options = std::make_shared<VerifyModelOptions>();
  AddModel(*command, "--a", options->a);
  AddModel(*command, "--b", options->b);
  AddText(*command, options->text, options->held_out);
  command->add_option("--tolerance", options->tolerance, "largest logit difference of equal models")
      ->check(NumberIn(0.0, std::numeric_limits<double>::max()))
      ->capture_default_str();
  OnSelection(*command, invocation, options, VerifyModel);
}

void AddVerifyDevice(CLI::App& verify, Invocation& invocation) {
  CLI::App* command =
      verify.add_subcommand("device", "Compare a checkpoint on a GPU with the CPU, in bfloat16");
  const auto options = std::make_shared<VerifyDeviceOptions>();
  AddModel(*command, "--model", options->model);
  command->add_option("--text", options->text, "UTF-8 text that begins with the prompt")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--device", options->device, "GPU: cuda or cuda:N")->capture_default_str();
  AddSize(*command, "--prompt-tokens", options->prompt, "most tokens of the prompt");
  AddSize(*command, "--max-new-tokens", options->generated, "tokens of greedy text");
  command
      ->add_option("--tolerance", options->tolerance,
                   "root mean square difference of log-probabilities, and margin of the first "
                   "other token of greedy text, in nats")
      ->check(NumberIn(0.0, std::numeric_limits<double>::max()))
      ->capture_default_str();
  command->callback([&invocation, options] {
    invocation.run = [&invocation, options] {
      options->threads = invocation.threads;
      return VerifyDevice(*options) ? kOk : kDifferent;
    };
  });
}

}  // namespace

void AddVerifyCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* verify = app.add_subcommand("verify", "Test a claim of the definitions numerically");
  verify->require_subcommand(1);
  AddVerifyReduction(*verify, invocation);
  AddVerifyGqaToMla(*verify, invocation);
  AddVerifyNotGqa(*verify, invocation);
  AddVerifyNormedKeys(*verify, invocation);
  AddVerifyModel(*verify, invocation);
  AddVerifyDevice(*verify, invocation);
  verify->group("Research");
}

}  // namespace triptych::tools
