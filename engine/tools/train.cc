#include "engine/tools/train.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/file.h"
#include "engine/checkpoint/config_file.h"
#include "engine/checkpoint/load_tokenizer.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/decoder/compute_threads.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/dropout.h"
#include "engine/decoder/weights.h"
#include "engine/tools/corpus.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

// One trained tensor with AdamW's moments, all float32.
struct Parameter {
  std::string name;
  at::Tensor value;
  at::Tensor gradient;
  at::Tensor first_moment;
  at::Tensor second_moment;
};

// Matrices: N(0, 1 / fan_in), divided by sqrt(2 * layers) where they feed the residual stream.
// Embeddings: N(0, 0.02^2). Norms: 1. Biases: 0.
at::Tensor InitialValue(const TensorSpec& spec, int64_t layers) {
  if (spec.name.ends_with(".bias")) return at::zeros(spec.shape);
  if (spec.shape.size() == 1) return at::ones(spec.shape);
  if (spec.name.find("embed") != std::string::npos) return at::randn(spec.shape) * 0.02;
  double deviation = 1.0 / std::sqrt(static_cast<double>(spec.shape[1]));
  if (spec.name.ends_with("o_proj.weight") || spec.name.ends_with("down_proj.weight")) {
    deviation /= std::sqrt(2.0 * static_cast<double>(layers));
  }
  return at::randn(spec.shape) * deviation;
}

double LearningRate(const TrainOptions& options, int64_t step) {
  if (step < options.warmup_steps) {
    return options.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(options.warmup_steps);
  }
  const double progress =
      static_cast<double>(step - options.warmup_steps) /
      static_cast<double>(std::max<int64_t>(1, options.steps - options.warmup_steps));
  return options.learning_rate * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * progress)));
}

// AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) after clipping the global gradient norm.
void Update(std::vector<Parameter>& parameters, const TrainOptions& options, int64_t step) {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 1e-8;
  const at::NoGradGuard no_grad;
  double squared_norm = 0;
  for (const Parameter& p : parameters) squared_norm += p.gradient.square().sum().item<double>();
  if (!std::isfinite(squared_norm)) {
    throw std::runtime_error("step " + std::to_string(step + 1) +
                             ": the gradient is not finite; a lower --learning-rate may help");
  }
  const double scale = std::min(1.0, options.clip / (std::sqrt(squared_norm) + 1e-6));
  const double rate = LearningRate(options, step);
  const double correction1 = 1 - std::pow(kBeta1, static_cast<double>(step + 1));
  const double correction2 = 1 - std::pow(kBeta2, static_cast<double>(step + 1));
  for (Parameter& p : parameters) {
    const at::Tensor gradient = p.gradient * scale;
    p.first_moment.mul_(kBeta1).add_(gradient, 1 - kBeta1);
    p.second_moment.mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
    if (p.value.dim() > 1) p.value.mul_(1 - rate * options.weight_decay);
    const at::Tensor denominator = (p.second_moment / correction2).sqrt_().add_(kEpsilon);
    p.value.addcdiv_(p.first_moment, denominator, -rate / correction1);
  }
}

// A decoder over the trained values with gradients of its own, so that several can work on parts
// of one batch at once. Each computes on one thread: splitting single operations over threads
// loses far more to waiting, above all beside other work.
class Worker {
 public:
  // `teacher` may be null.
  Worker(const ModelConfig& config, const std::vector<Parameter>& parameters,
         const Decoder* teacher, double teacher_weight)
      : weights_(Handles(parameters)),
        decoder_(config, weights_, ComputeType::kBFloat16),
        teacher_(teacher),
        teacher_weight_(teacher_weight) {}

  // Adds the gradients of the summed loss over `window`, divided by `tokens`, to those kept here.
  // Returns that loss.
  double Accumulate(const Window& window, int64_t tokens, Dropout& dropout) {
    const at::Tensor logits = decoder_.Forward(window.inputs, &dropout).flatten(0, 1);
    at::Tensor loss = SummedLoss(logits, window.targets.flatten());
    if (teacher_ != nullptr) {
      loss = (1 - teacher_weight_) * loss +
             teacher_weight_ * SummedLoss(logits, TeacherDistribution(window.inputs));
    }
    loss = loss / static_cast<double>(tokens);
    loss.backward();
    return loss.item<double>();
  }

  // Moves the gradients into `parameters`.
  void Collect(std::vector<Parameter>& parameters) {
    for (Parameter& p : parameters) {
      at::Tensor& gradient = weights_.at(p.name).mutable_grad();
      p.gradient = p.gradient.defined() ? p.gradient + gradient : gradient;
      gradient = at::Tensor();
    }
  }

 private:
  static Weights Handles(const std::vector<Parameter>& parameters) {
    Weights weights;
    for (const Parameter& p : parameters) {
      weights.emplace(p.name, p.value.detach().requires_grad_());
    }
    return weights;
  }

  // targets: [tokens] of ids, or [tokens, vocab] of probabilities
  static at::Tensor SummedLoss(const at::Tensor& logits, const at::Tensor& targets) {
    return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
  }

  // [tokens, vocab]
  at::Tensor TeacherDistribution(const at::Tensor& inputs) const {
    const at::NoGradGuard no_grad;
    return at::softmax(teacher_->Forward(inputs).flatten(0, 1), -1);
  }

  Weights weights_;
  Decoder decoder_;
  const Decoder* teacher_;
  double teacher_weight_;
};

// The teacher that the options name, fit for a student with this config. Throws LoadError.
std::optional<Decoder> LoadTeacher(const TrainOptions& options, const ModelConfig& student) {
  if (options.teacher.empty()) return std::nullopt;
  const Checkpoint teacher = LoadCheckpoint(options.teacher, WeightFormat::kBFloat16);
  const auto refuse = [&](const std::string& what) {
    throw LoadError(options.teacher.string() + ": " + what);
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
  return Decoder(teacher.config, teacher.weights, ComputeType::kBFloat16);
}

// Throws unless every value is a number: what is saved can be gone on from.
void CheckFinite(const std::vector<Parameter>& parameters, int64_t steps) {
  for (const Parameter& p : parameters) {
    if (at::isfinite(p.value).all().item<bool>()) continue;
    throw std::runtime_error("step " + std::to_string(steps) + ": tensor " + p.name +
                             " is not finite; a lower --learning-rate may help");
  }
}

std::filesystem::path StateFile(const TrainOptions& options) {
  return options.output / "training_state.safetensors";
}

// What must be equal for a state to be continued.
std::string RunKey(const TrainOptions& options, const ModelConfig& config, int64_t threads) {
  char text[256];
  std::snprintf(text, sizeof(text), "%lld %lld %g %lld %g %g %g %llu %g ",
                static_cast<long long>(options.steps), static_cast<long long>(options.batch_size),
                options.learning_rate, static_cast<long long>(options.warmup_steps),
                options.weight_decay, options.dropout, options.clip,
                static_cast<unsigned long long>(options.seed), options.held_out);
  std::string teacher;
  if (!options.teacher.empty()) {
    teacher = options.teacher.string() + " " + std::to_string(options.teacher_weight);
  }
  return text + std::to_string(threads) + "\n" + options.from.string() + "\n" + teacher + "\n" +
         options.text.string() + "\n" + ToJson(config);
}

void SaveState(const TrainOptions& options, const std::string& run_key, int64_t next_step,
               const std::vector<Parameter>& parameters) {
  std::vector<SafetensorsTensor> tensors;
  const auto add = [&](const std::string& name, const std::string& dtype,
                       std::vector<int64_t> shape, const void* data, size_t bytes) {
    tensors.push_back(
        {name, dtype, std::move(shape), {static_cast<const std::byte*>(data), bytes}});
  };
  add("run", "U8", {static_cast<int64_t>(run_key.size())}, run_key.data(), run_key.size());
  add("next_step", "I64", {1}, &next_step, sizeof(next_step));
  for (const Parameter& p : parameters) {
    for (const auto& [suffix, tensor] :
         {std::pair("", p.value), {".m", p.first_moment}, {".v", p.second_moment}}) {
      add(p.name + suffix, "F32", tensor.sizes().vec(), tensor.data_ptr(), tensor.nbytes());
    }
  }
  WriteSafetensors(StateFile(options), tensors);
}

// The step to continue from; 0, with nothing changed, if there is no state.
int64_t LoadState(const TrainOptions& options, const std::string& run_key,
                  std::vector<Parameter>& parameters) {
  if (!std::filesystem::exists(StateFile(options))) return 0;
  const SafetensorsFile file(StateFile(options));
  const auto refuse = [&] {
    throw LoadError(file.name() +
                    ": not the state of a run with these options; delete it to start anew");
  };
  const auto read = [&](const std::string& name, void* to, size_t bytes) {
    const StoredTensor* const stored = file.Find(name);
    if (stored == nullptr || stored->bytes != bytes) refuse();
    file.Read(name, {static_cast<std::byte*>(to), bytes});
  };
  std::string stored_key(run_key.size(), '\0');
  read("run", stored_key.data(), stored_key.size());
  if (stored_key != run_key) refuse();
  int64_t next_step = 0;
  read("next_step", &next_step, sizeof(next_step));
  const at::NoGradGuard no_grad;
  for (Parameter& p : parameters) {
    for (const auto& [suffix, tensor] :
         {std::pair("", p.value), {".m", p.first_moment}, {".v", p.second_moment}}) {
      read(p.name + suffix, tensor.data_ptr(), tensor.nbytes());
    }
  }
  return next_step;
}

// One line on stderr: rewritten in place on a terminal, now and then elsewhere.
class Progress {
 public:
  Progress(int64_t first_step, int64_t steps, int64_t tokens_per_step)
      : first_(first_step), steps_(steps), tokens_per_step_(tokens_per_step) {}

  void Show(int64_t done, double loss) {
    smoothed_loss_ = done == first_ + 1 ? loss : 0.95 * smoothed_loss_ + 0.05 * loss;
    if (!terminal_ && done % 50 != 0 && done != steps_) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const double rate = static_cast<double>(done - first_) / seconds;
    constexpr int kWidth = 24;
    const auto filled = static_cast<int>(done * kWidth / steps_);
    const auto left = static_cast<int64_t>(static_cast<double>(steps_ - done) / rate);
    std::fprintf(stderr, "%s[%s%s] %lld/%lld  loss %.4f  %.0f tokens/s  %lld:%02lld left%s",
                 terminal_ ? "\r" : "", std::string(filled, '#').c_str(),
                 std::string(kWidth - filled, '.').c_str(), static_cast<long long>(done),
                 static_cast<long long>(steps_), smoothed_loss_,
                 rate * static_cast<double>(tokens_per_step_), static_cast<long long>(left / 60),
                 static_cast<long long>(left % 60), terminal_ && done != steps_ ? "  " : "\n");
  }

 private:
  int64_t first_;
  int64_t steps_;
  int64_t tokens_per_step_;
  double smoothed_loss_ = 0;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

void Train(const TrainOptions& options) {
  if (HoldsModel(options.output) && !std::filesystem::exists(StateFile(options))) {
    throw std::runtime_error("--output " + options.output.string() +
                             ": holds a model already; allowed: a directory without one");
  }
  const int all_threads = at::get_num_threads();
  const int64_t threads = std::min<int64_t>(all_threads, options.batch_size);
  std::optional<Checkpoint> from;
  if (!options.from.empty()) from = LoadCheckpoint(options.from, WeightFormat::kFloat32);
  ModelConfig config = from ? from->config : ReadModelConfig(options.config);
  // What is trained is in the engine's own order, whatever order the file would load from.
  config.head_grouping = HeadGrouping::kModular;
  config.rope_interleave = true;
  const std::shared_ptr<const Tokenizer> tokenizer =
      LoadTokenizer(from ? options.from : options.config.parent_path());
  CheckVocabulary(*tokenizer, config, (from ? options.from : options.config).string());
  const std::optional<Decoder> teacher = LoadTeacher(options, config);
  const Corpus corpus(options.text, *tokenizer, options.held_out);
  const int64_t context = config.max_position_embeddings;
  corpus.RequireTraining(context);
  CheckOutputDirectory(options.output);
  std::filesystem::create_directories(options.output);

  at::manual_seed(options.seed);
  std::vector<Parameter> parameters;
  Weights weights;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const at::Tensor value =
        from ? from->weights.at(spec.name) : InitialValue(spec, config.num_hidden_layers);
    weights.emplace(spec.name, value);
    parameters.push_back({spec.name, value, {}, at::zeros_like(value), at::zeros_like(value)});
  }
  const std::string run_key = RunKey(options, config, threads);
  const int64_t first_step = LoadState(options, run_key, parameters);
  if (first_step > 0) {
    std::fprintf(stderr, "continuing at step %lld\n", static_cast<long long>(first_step));
  }

  SetComputeThreads(1);  // of one operation; the workers are threads themselves
  std::vector<Worker> workers;
  for (int64_t i = 0; i < threads; ++i) {
    workers.emplace_back(config, parameters, teacher ? &*teacher : nullptr, options.teacher_weight);
  }
  const int64_t tokens = options.batch_size * context;
  Progress progress(first_step, options.steps, tokens);
  for (int64_t step = first_step; step < options.steps; ++step) {
    // Every step seeds its own generators, so that a continued run draws the same.
    std::mt19937_64 generator(options.seed * 1'000'003 + static_cast<uint64_t>(step));
    const Window window = corpus.Sample(options.batch_size, context, generator);
    const std::vector<at::Tensor> inputs = window.inputs.chunk(threads);
    const std::vector<at::Tensor> targets = window.targets.chunk(threads);
    std::vector<double> losses(inputs.size());
    std::vector<std::exception_ptr> failures(inputs.size());
    std::vector<std::jthread> running;
    for (size_t i = 0; i < inputs.size(); ++i) {
      running.emplace_back([&, i, seed = generator()] {
        SetComputeThreads(1);
        Dropout dropout(options.dropout, seed);
        try {
          losses[i] = workers[i].Accumulate({inputs[i], targets[i]}, tokens, dropout);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
    running.clear();  // joins
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
    const double loss = std::accumulate(losses.begin(), losses.end(), 0.0);
    if (!std::isfinite(loss)) {
      throw std::runtime_error("step " + std::to_string(step + 1) +
                               ": the loss is not finite; a lower --learning-rate may help");
    }
    for (Parameter& p : parameters) p.gradient = at::Tensor();
    for (size_t i = 0; i < inputs.size(); ++i) workers[i].Collect(parameters);
    Update(parameters, options, step);
    progress.Show(step + 1, loss);
    if ((step + 1) % options.save_every == 0 && step + 1 < options.steps) {
      CheckFinite(parameters, step + 1);
      SaveState(options, run_key, step + 1, parameters);
    }
  }

  SetComputeThreads(all_threads);
  CheckFinite(parameters, options.steps);
  SaveCheckpoint(options.output, config, weights);
  std::filesystem::remove(StateFile(options));
}

}  // namespace triptych
