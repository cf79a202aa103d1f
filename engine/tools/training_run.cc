#include "engine/tools/training_run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/read_weights.h"
#include "engine/tools/digest.h"
#include "engine/tools/evaluate.h"

namespace triptych::tools {
namespace {

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

}  // namespace

int64_t TrainingRun::measured_length() const { return std::min(window, HeldOutLength(config)); }

TrainingRun ReadTrainingRun(const TrainOptions& options) {
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

RunKey MakeRunKey(const TrainOptions& options, const TrainingRun& run) {
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

}  // namespace triptych::tools
