#include "engine/tools/train.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/card.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/gradients.h"
#include "engine/tools/optimizer.h"
#include "engine/tools/progress.h"
#include "engine/tools/training_report.h"
#include "engine/tools/training_run.h"
#include "engine/tools/training_state.h"

namespace triptych::tools {
namespace {

// Matrices: N(0, 1 / fan_in), divided by sqrt(2 * layers) if they feed the residual stream.
// Embeddings: N(0, 0.02^2). Position embeddings of an even width: sinusoids of the same energy, so
// that neighbouring positions start out similar. Norms: 1. Biases: 0.
at::Tensor InitialValue(const TensorSpec& spec, int64_t layers) {
  if (spec.name.ends_with("bias")) return at::zeros(spec.shape);
  if (spec.shape.size() == 1) return at::ones(spec.shape);
  if (spec.name == kPositionsName && spec.shape[1] % 2 == 0) {
    return (SinusoidalPositions(spec.shape[0], spec.shape[1]) * (0.02 * std::numbers::sqrt2))
        .to(at::kFloat);
  }
  if (spec.name.find("embed") != std::string::npos) return at::randn(spec.shape) * 0.02;
  double deviation = 1.0 / std::sqrt(static_cast<double>(spec.shape[1]));
  if (spec.name.ends_with("o_proj.weight") || spec.name.ends_with("down_proj.weight")) {
    deviation /= std::sqrt(2.0 * static_cast<double>(layers));
  }
  return at::randn(spec.shape) * deviation;
}

// Random values, or those of `from` unless it is null.
std::vector<Parameter> InitialParameters(const ModelConfig& config, const Checkpoint* from,
                                         uint64_t seed) {
  at::manual_seed(seed);
  std::vector<Parameter> parameters;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const at::Tensor value = from != nullptr ? from->weights.at(spec.name)
                                             : InitialValue(spec, config.num_hidden_layers);
    parameters.push_back({spec.name, value, {}, at::zeros_like(value), at::zeros_like(value)});
  }
  return parameters;
}

// Throws std::runtime_error if `output` holds a model or a card and no state to resume from.
void CheckOutput(const std::filesystem::path& output, const std::filesystem::path& state_file) {
  if (Exists(state_file)) return;
  if (HoldsModel(output)) {
    throw std::runtime_error("--output " + output.string() +
                             ": holds a model already; allowed: a directory without one");
  }
  if (Exists(output / kCardFile)) {
    throw std::runtime_error("--output " + output.string() + ": holds a " + kCardFile +
                             ", which the model's card would replace; allowed: a directory "
                             "without one");
  }
}

// `steps`: steps done, with the one that made the value.
void RequireFinite(bool finite, const std::string& what, int64_t steps) {
  if (finite) return;
  throw std::runtime_error("step " + std::to_string(steps) + ": " + what +
                           " is not finite; a lower --learning-rate may help");
}

// Throws std::runtime_error for parameters that a run could not resume from.
void RequireFinite(const std::vector<Parameter>& parameters, int64_t steps) {
  for (const Parameter& p : parameters) {
    RequireFinite(at::isfinite(p.value).all().item<bool>(), "tensor " + p.name, steps);
  }
}

Weights Values(const std::vector<Parameter>& parameters) {
  Weights values;
  for (const Parameter& p : parameters) values.emplace(p.name, p.value);
  return values;
}

Weights Copy(const Weights& weights) {
  Weights copies;
  for (const auto& [name, tensor] : weights) copies.emplace(name, tensor.clone());
  return copies;
}

// `losses`: sum of the training losses since the last measurement. Throws std::runtime_error if a
// parameter or the loss is not finite.
Measurement Measure(const TrainingRun& run, const std::vector<Window>& held_out, double losses,
                    const TrainingState& state) {
  RequireFinite(state.parameters, state.steps);
  Measurement point{.steps = state.steps, .training_loss = losses, .held_out_loss = {}};
  point.training_loss /=
      static_cast<double>(state.steps - (state.curve.empty() ? 0 : state.curve.back().steps));
  if (run.corpus.held_out_tokens() > 0) {
    point.held_out_loss = MeanLoss(AsStored({run.config, Values(state.parameters)}), held_out);
    RequireFinite(std::isfinite(*point.held_out_loss), "the held-out loss", state.steps);
  }
  return point;
}

// Takes the steps that are left, and saves the state after each measurement but the last.
void TakeSteps(const TrainOptions& options, TrainingRun& run,
               const std::filesystem::path& state_file, const RunKey& key, TrainingState& state) {
  BatchGradients gradients(run.config, state.parameters, run.compute, std::move(run.teachers),
                           std::min<int64_t>(at::get_num_threads(), options.batch_size));
  const LearningRate rate{options.learning_rate, options.warmup_steps, options.steps};
  const AdamW optimizer{.weight_decay = options.weight_decay};
  Progress progress(state.steps, options.steps, options.batch_size * run.window);
  const int64_t measured = run.measured_length();
  const std::vector<Window> held_out =
      run.corpus.HeldOutWindows(HeldOutLength(run.config) / measured, measured);
  double losses = 0;  // sum since the last measurement
  while (state.steps < options.steps) {
    const int64_t step = state.steps;
    // Every step seeds its own generators, so that a resumed run draws the same windows.
    std::mt19937_64 generator(options.seed * 1'000'003 + static_cast<uint64_t>(step));
    const double loss =
        gradients.Compute(run.corpus.Sample(options.batch_size, run.window, generator),
                          options.dropout, generator, state.parameters);
    RequireFinite(std::isfinite(loss), "the loss", step + 1);
    RequireFinite(std::isfinite(ClipGradients(state.parameters, options.clip)), "the gradient",
                  step + 1);
    optimizer.Step(state.parameters, step, rate.At(step));
    losses += loss;
    progress.Show(++state.steps, loss);
    if (state.steps % options.save_every != 0 && state.steps != options.steps) continue;

    state.curve.push_back(Measure(run, held_out, losses, state));
    losses = 0;
    progress.Say(LossText(state.curve.back()));
    if (Best(state.curve) == &state.curve.back()) state.best = Copy(Values(state.parameters));
    if (state.steps < options.steps) SaveTrainingState(state_file, key, state);
  }
}

// Writes the best weights, or the last without a held-out part, and the card.
void SaveTrained(const TrainOptions& options, const TrainingRun& run, const TrainingState& state) {
  const Measurement* const best = Best(state.curve);
  const Checkpoint made{run.config, best != nullptr ? state.best : Values(state.parameters)};
  std::optional<double> loss = best != nullptr ? best->held_out_loss : std::nullopt;
  std::string windows;  // if they are shorter than the windows of a card's loss
  if (const int64_t measured = run.measured_length(); measured < HeldOutLength(run.config)) {
    windows = " in windows of " + std::to_string(measured);
    if (loss) loss = HeldOutLoss(AsStored(made), run.corpus);
  }
  SaveCheckpoint(options.output, run.config, made.weights,
                 ToMarkdown({.directory = options.output,
                             .config = run.config,
                             .corpus = &run.corpus,
                             .held_out_loss = loss,
                             .facts = CardFacts(options, run.compute),
                             .command = options.command,
                             .report = CurveText(state.curve, windows),
                             .source = options.from}),
                 run.tokenizer_files);
}

}  // namespace

void Train(const TrainOptions& options) {
  const std::filesystem::path state_file = options.output / "training_state.safetensors";
  CheckOutput(options.output, state_file);
  TrainingRun run = ReadTrainingRun(options);
  CheckOutputDirectory(options.output);
  std::filesystem::create_directories(options.output);

  TrainingState state;
  state.parameters = InitialParameters(run.config, run.from ? &*run.from : nullptr, options.seed);
  const RunKey key = MakeRunKey(options, run);
  if (Exists(state_file)) {
    LoadTrainingState(state_file, key, options.steps, state);
    std::fprintf(stderr, "continuing at step %lld\n", static_cast<long long>(state.steps));
  }
  TakeSteps(options, run, state_file, key, state);
  SaveTrained(options, run, state);
  std::filesystem::remove(state_file);
}

}  // namespace triptych::tools
