#include "engine/tools/train.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numbers>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/base/file.h"
#include "engine/base/quantities.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/card.h"
#include "engine/tools/digest.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/gradients.h"
#include "engine/tools/optimizer.h"
#include "engine/tools/progress.h"
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

// A run of training, as its options describe it.
struct Run {
  std::optional<Checkpoint> from;
  ModelConfig config;  // of the new model
  std::map<std::string, std::string> tokenizer_files;
  Corpus corpus;
  int64_t window;  // tokens of a window
  ComputeType compute;
  Teachers teachers;
};

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

// A teacher that fits a student with this config and text. Throws LoadError.
Checkpoint LoadTeacher(const std::filesystem::path& path, const ModelConfig& student,
                       const Corpus& corpus) {
  Checkpoint teacher = LoadCheckpoint(path, TensorFormat::kFloat32);
  const auto refuse = [&](const std::string& what) {
    throw LoadError(path.string() + ": " + what);
  };
  if (teacher.config.vocab_size != student.vocab_size) {
    refuse("vocab_size is " + std::to_string(teacher.config.vocab_size) +
           "; allowed: " + std::to_string(student.vocab_size) + ", that of the model to train");
  }
  if (teacher.config.max_position_embeddings < student.max_position_embeddings) {
    refuse("max_position_embeddings is " + std::to_string(teacher.config.max_position_embeddings) +
           "; allowed: " + std::to_string(student.max_position_embeddings) +
           ", that of the model to train, or more");
  }
  corpus.RequireUnseen(teacher.config, path.string());
  return teacher;
}

// Adds the teachers' training texts to those of `config`. Throws LoadError.
Teachers LoadTeachers(const TrainOptions& options, const Corpus& corpus, ComputeType compute,
                      ModelConfig& config) {
  Teachers teachers{.decoders = {}, .weight = options.teacher_weight};
  for (const std::filesystem::path& path : options.teachers) {
    const Checkpoint teacher = LoadTeacher(path, config, corpus);
    for (const TrainingText& text : teacher.config.training_texts) {
      AddTrainingText(config.training_texts, text);
    }
    teachers.decoders.emplace_back(teacher.config, teacher.weights, compute);
  }
  return teachers;
}

// The config of the new model, without this run's text.
ModelConfig NewConfig(const TrainOptions& options, const std::optional<Checkpoint>& from) {
  ModelConfig config = from ? from->config : checkpoint::ReadModelConfig(options.config);
  // Training uses the engine's own order of heads and pairs, whatever order the file declares.
  config.head_grouping = HeadGrouping::kModular;
  config.rope_interleave = true;
  // --config may name the config of another, trained model.
  if (!from) config.training_texts.clear();
  return config;
}

// Throws std::runtime_error if it is longer than the context.
int64_t WindowOf(const TrainOptions& options, const ModelConfig& config) {
  const int64_t context = config.max_position_embeddings;
  const int64_t window = options.window > 0 ? options.window : context;
  if (window <= context) return window;
  throw std::runtime_error("--window " + std::to_string(window) +
                           " is longer than the context; allowed: 1 to " + std::to_string(context));
}

// Throws LoadError or std::runtime_error.
Run ReadRun(const TrainOptions& options) {
  const std::filesystem::path described =
      options.from.empty() ? options.config.parent_path() : options.from;
  // Not every tokenizer can be written: fail before all weights are read.
  std::map<std::string, std::string> tokenizer_files = checkpoint::TokenizerFiles(described);
  std::optional<Checkpoint> from;
  if (!options.from.empty()) from = LoadCheckpoint(options.from, TensorFormat::kFloat32);
  ModelConfig config = NewConfig(options, from);
  const std::string source = (from ? options.from : options.config).string();
  const std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(described);
  checkpoint::CheckVocabulary(*tokenizer, config, source);
  Corpus corpus(options.text, *tokenizer, options.held_out, config, source);
  const int64_t window = WindowOf(options, config);
  corpus.RequireTraining(window);
  const ComputeType compute = options.compute.value_or(DefaultTrainingType());
  AddTrainingText(config.training_texts, corpus.identity());
  Teachers teachers = LoadTeachers(options, corpus, compute, config);
  if (config.training_texts.size() > kMaxTrainingTexts) {
    throw LoadError(source + ": was trained on too many other texts; allowed: " +
                    std::to_string(kMaxTrainingTexts) + " in all");
  }
  return {.from = std::move(from),
          .config = std::move(config),
          .tokenizer_files = std::move(tokenizer_files),
          .corpus = std::move(corpus),
          .window = window,
          .compute = compute,
          .teachers = std::move(teachers)};
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

RunKey MakeRunKey(const TrainOptions& options, const Run& run) {
  const auto text = [](const auto& value) {
    std::ostringstream out;
    out.precision(17);
    out << value;
    return out.str();
  };
  const auto digest_of = [](const std::vector<std::filesystem::path>& models) {
    std::string digests;
    for (const std::filesystem::path& model : models) {
      for (const std::filesystem::path& file : checkpoint::CheckpointFiles(model)) {
        digests += Sha256OfFile(file);
      }
    }
    return models.empty() ? std::string("none") : Sha256(digests);
  };
  std::vector<std::filesystem::path> from;
  if (!options.from.empty()) from = {options.from};
  std::string tokenizer;
  for (const auto& [name, bytes] : run.tokenizer_files) tokenizer += name + Sha256(bytes);
  RunKey key = {{"--steps", text(options.steps)},
                {"--batch-size", text(options.batch_size)},
                {"--window", text(run.window)},
                {"--learning-rate", text(options.learning_rate)},
                {"--warmup-steps", text(options.warmup_steps)},
                {"--weight-decay", text(options.weight_decay)},
                {"--dropout", text(options.dropout)},
                {"--clip", text(options.clip)},
                {"--seed", text(options.seed)},
                {"--save-every", text(options.save_every)},
                {"--held-out", text(run.corpus.identity().held_out)},
                {"--text", run.corpus.identity().sha256},
                {"--from", digest_of(from)},
                {"--teacher", digest_of(options.teachers)}};
  if (!options.teachers.empty()) key.emplace_back("--teacher-weight", text(options.teacher_weight));
  key.emplace_back("--dtype", Name(run.compute));
  key.emplace_back("--threads", text(at::get_num_threads()));  // sums are divided among them
  key.emplace_back("config", Sha256(checkpoint::ToJson(run.config)));
  key.emplace_back("tokenizer", Sha256(tokenizer));
  return key;
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

std::string LossText(double loss) { return FormatDecimal(loss, 4); }

std::string LossText(const Measurement& point) {
  std::string line =
      "step " + std::to_string(point.steps) + ": training loss " + LossText(point.training_loss);
  if (point.held_out_loss) line += ", held-out loss " + LossText(*point.held_out_loss);
  return line;
}

// The measurement with the lowest held-out loss, or null.
const Measurement* Best(const std::vector<Measurement>& curve) {
  const Measurement* best = nullptr;
  for (const Measurement& point : curve) {
    if (!point.held_out_loss) continue;
    if (best == nullptr || *point.held_out_loss < *best->held_out_loss) best = &point;
  }
  return best;
}

// Markdown. `windows`: words for shorter held-out windows, or empty.
std::string CurveText(const std::vector<Measurement>& curve, const std::string& windows) {
  std::ostringstream text;
  const Measurement* const best = Best(curve);
  if (best == nullptr) {
    text << "Nothing was held out; the weights are the last.";
  } else if (curve.size() > 1) {
    text << "The weights are those after step " << best->steps << ", the best on the held-out part"
         << windows << " of " << curve.size() << " that were measured:";
  }
  text << "\n\n| step | training loss | held-out loss" << windows << " |\n|---:|---:|---:|\n";
  for (const Measurement& point : curve) {
    text << "| " << point.steps << " | " << LossText(point.training_loss) << " | ";
    if (point.held_out_loss) text << LossText(*point.held_out_loss) << " ";
    text << "|\n";
  }
  return text.str();
}

// Rows of a card about a run, besides its text and command.
std::vector<std::pair<std::string, std::string>> CardFacts(const TrainOptions& options,
                                                           ComputeType compute) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"seed", std::to_string(options.seed)},
      {"computed in", std::string(Name(compute)) + " on " + std::to_string(at::get_num_threads()) +
                          (at::get_num_threads() == 1 ? " thread" : " threads")}};
  if (!options.teachers.empty()) {
    char shares[96];
    std::snprintf(shares, sizeof(shares), "%.4g of it against the text, %.4g against ",
                  1 - options.teacher_weight, options.teacher_weight);
    std::string names;
    for (const std::filesystem::path& teacher : options.teachers) {
      names += (names.empty() ? "`" : ", `") + LastName(teacher) + "`";
    }
    const bool several = options.teachers.size() > 1;
    facts.emplace_back("training loss", shares + std::string(several ? "the mean of " : "") +
                                            "what " + names + (several ? " expect" : " expects"));
  }
  return facts;
}

// Length of the windows that a run's held-out losses are measured in.
int64_t MeasuredLength(const Run& run) { return std::min(run.window, HeldOutLength(run.config)); }

// `losses`: sum of the training losses since the last measurement. Throws std::runtime_error if a
// parameter or the loss is not finite.
Measurement Measure(const Run& run, const std::vector<Window>& held_out, double losses,
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
void TakeSteps(const TrainOptions& options, Run& run, const std::filesystem::path& state_file,
               const RunKey& key, TrainingState& state) {
  BatchGradients gradients(run.config, state.parameters, run.compute, std::move(run.teachers),
                           std::min<int64_t>(at::get_num_threads(), options.batch_size));
  const LearningRate rate{options.learning_rate, options.warmup_steps, options.steps};
  const AdamW optimizer{.weight_decay = options.weight_decay};
  Progress progress(state.steps, options.steps, options.batch_size * run.window);
  const int64_t measured = MeasuredLength(run);
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
void SaveTrained(const TrainOptions& options, const Run& run, const TrainingState& state) {
  const Measurement* const best = Best(state.curve);
  const Checkpoint made{run.config, best != nullptr ? state.best : Values(state.parameters)};
  std::optional<double> loss = best != nullptr ? best->held_out_loss : std::nullopt;
  std::string windows;  // if they are shorter than the windows of a card's loss
  if (const int64_t measured = MeasuredLength(run); measured < HeldOutLength(run.config)) {
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

ComputeType DefaultTrainingType() {
  return HasBFloat16Products() ? ComputeType::kBFloat16 : ComputeType::kFloat32;
}

void Train(const TrainOptions& options) {
  const std::filesystem::path state_file = options.output / "training_state.safetensors";
  CheckOutput(options.output, state_file);
  Run run = ReadRun(options);
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
