#include "engine/tools/train.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <numbers>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/attention/dropout.h"
#include "engine/base/bfloat16.h"
#include "engine/base/quantities.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/compute_threads.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/corpus.h"
#include "engine/tools/digest.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/gradients.h"
#include "engine/tools/optimizer.h"
#include "tests/support/held_out.h"
#include "tests/support/process.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/small_gguf.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/tokenizer.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::tools::train_test {
namespace {

std::string Rhyme() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the cat sat on the mat and the rat ran. ";
  return text;
}

class TrainTest : public testing::Test {
 protected:
  TrainTest() {
    SetComputeThreads(2);
    WriteFile(text_, Rhyme());
    ModelConfig config = SmallModel(AttentionKind::kGqa);
    config.max_position_embeddings = 32;
    WriteFile(config_, checkpoint::ToJson(config));
  }

  TrainOptions Options(const std::string& output) const {
    return {.config = config_,
            .from = {},
            .text = text_,
            .output = dir_.path() / output,
            .held_out = 0.1,
            .steps = 30,
            .batch_size = 4,
            .learning_rate = 1e-2,
            .warmup_steps = 3,
            .teachers = {}};
  }

  struct CurvePoint {
    int64_t step;
    double training_loss;
    double held_out_loss;
  };
  using Curve = std::vector<CurvePoint>;

  // The rows of a card's curve.
  static Curve ReadCurve(const std::string& card) {
    Curve curve;
    std::istringstream lines(card);
    for (std::string line; std::getline(lines, line);) {
      long long step = 0;
      CurvePoint point{};
      if (std::sscanf(line.c_str(), "| %lld | %lf | %lf |", &step, &point.training_loss,
                      &point.held_out_loss) == 3) {
        point.step = step;
        curve.push_back(point);
      }
    }
    return curve;
  }

  // Compares bits.
  bool SameWeights(const std::string& a, const std::string& b) const {
    return ReadFile(dir_.path() / a / "model.safetensors") ==
           ReadFile(dir_.path() / b / "model.safetensors");
  }

  // Trains with a checkpoint that cannot be written, so that the run's last state stays.
  static void Interrupt(const TrainOptions& options) {
    const std::filesystem::path obstacle = options.output / "config.json";
    std::filesystem::create_directories(obstacle);
    EXPECT_THROW(Train(options), std::runtime_error);
    std::filesystem::remove(obstacle);
    ASSERT_TRUE(std::filesystem::exists(options.output / "training_state.safetensors"));
  }

  TempDir dir_;
  const std::filesystem::path text_ = dir_.path() / "text.txt";
  const std::filesystem::path config_ = dir_.path() / "config.json";
};

TEST_F(TrainTest, LearnsAndLeavesACheckpointAndNothingElse) {
  const TrainOptions options = Options("out");
  Train(options);
  const Checkpoint checkpoint = LoadCheckpoint(options.output, TensorFormat::kFloat32);
  const Decoder decoder(checkpoint.config, checkpoint.weights, ComputeType::kFloat32);
  // An untrained model's loss is log(258) = 5.55; the letters' frequencies alone give about 2.6.
  EXPECT_LT(HeldOutLoss(decoder, TestCorpus(text_, 0.1)), 2.6);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.output)) {
    files.push_back(entry.path().filename());
  }
  EXPECT_THAT(files,
              testing::UnorderedElementsAre("README.md", "config.json", "model.safetensors"));
}

// The config and the card agree with the run and with a second measurement.
// A step may give an expert no token. The correction bias has no gradient and stays.
TEST_F(TrainTest, TrainsExpertsAndTheirRouter) {
  ModelConfig config = SmallExpertsModel(AttentionKind::kGqa);
  config.max_position_embeddings = 32;
  config.experts.n_routed_experts = 24;
  config.experts.topk_method = TopkMethod::kNoauxTc;
  const Weights before = RandomWeights(config, 1);
  SaveCheckpoint(dir_.path() / "before", config, before);
  TrainOptions options = Options("out");
  options.config.clear();
  options.from = dir_.path() / "before";
  options.batch_size = 1;
  Train(options);
  const Checkpoint after = LoadCheckpoint(options.output, TensorFormat::kFloat32);
  const Corpus corpus = TestCorpus(text_, 0.1);
  const Checkpoint source{.config = config, .weights = Cast(before, at::kFloat)};
  EXPECT_LT(HeldOutLoss(after, corpus), HeldOutLoss(source, corpus));
  const auto stays = [&](const std::string& name) {
    return at::equal(after.weights.at(name), before.at(name).to(at::kFloat));
  };
  EXPECT_TRUE(stays(RouterBiasName(0)));
  EXPECT_FALSE(stays(RouterName(0)));
}

TEST_F(TrainTest, RecordsTheTextAndTheLoss) {
  TrainOptions options = Options("out");
  options.held_out = 0.25;
  options.save_every = 12;
  options.seed = 7;
  options.command = "triptych-model train ...";
  options.compute = ComputeType::kFloat32;
  Train(options);
  const Checkpoint model = LoadCheckpoint(options.output, TensorFormat::kFloat32);
  ASSERT_EQ(model.config.training_texts.size(), 1u);
  EXPECT_EQ(model.config.training_texts[0].sha256, Sha256(Rhyme()));
  EXPECT_EQ(model.config.training_texts[0].held_out, 0.25);

  const std::string card = ReadFile(options.output / "README.md");
  EXPECT_THAT(card, testing::StartsWith("# out\n"));
  EXPECT_THAT(card, testing::HasSubstr("\n    triptych-model train ...\n"));
  EXPECT_THAT(card, testing::HasSubstr("| text | `text.txt`, 2400 bytes, sha256 `" +
                                       Sha256(Rhyme()) + "` |\n"));
  EXPECT_THAT(card, testing::HasSubstr("| held out | the last 0.25 of it, 600 of 2400 tokens |\n"));
  EXPECT_THAT(card, testing::HasSubstr("| seed | 7 |\n"));
  EXPECT_THAT(card, testing::HasSubstr("| computed in | float32 on 2 threads |\n"));
  EXPECT_THAT(card, testing::HasSubstr("\n| 12 | "));
  EXPECT_THAT(card, testing::HasSubstr("\n| 24 | "));
  EXPECT_THAT(card, testing::HasSubstr("\n| 30 | "));
  const Curve curve = ReadCurve(card);
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_LT(curve[2].training_loss, curve[0].training_loss);
  const Corpus corpus(text_, *TestTokenizer(), {}, model.config, "out");
  EXPECT_EQ(corpus.held_out_tokens(), 600);
  // Rounded to the four printed decimals.
  EXPECT_NEAR(curve[2].held_out_loss, HeldOutLoss(model, corpus), 1e-4);
}

// A checkpoint's weights are rounded to its dtype, and the card's loss is of the rounded weights.
// The steps are large enough that rounding moves the loss by more than the printed precision.
TEST_F(TrainTest, TheLossIsThatOfTheStoredWeights) {
  ModelConfig config = checkpoint::ReadModelConfig(config_);
  config.torch_dtype = TensorFormat::kBFloat16;
  WriteFile(config_, checkpoint::ToJson(config));
  TrainOptions options = Options("out");
  options.learning_rate = 5e-2;
  Train(options);
  const Checkpoint model = LoadCheckpoint(options.output, TensorFormat::kFloat32);
  const Curve curve = ReadCurve(ReadFile(options.output / "README.md"));
  ASSERT_EQ(curve.size(), 1u);
  EXPECT_NEAR(curve[0].held_out_loss, HeldOutLoss(model, TestCorpus(text_, 0.1)),
              1e-4);  // as printed
}

// Each row has the mean over the steps since the row before, also the last.
TEST_F(TrainTest, ACurvesTrainingLossesAreMeans) {
  TrainOptions options = Options("every");
  options.steps = 5;
  options.save_every = 1;
  Train(options);
  const Curve every = ReadCurve(ReadFile(options.output / "README.md"));
  ASSERT_EQ(every.size(), 5u);
  options.output = dir_.path() / "means";
  options.save_every = 3;
  Train(options);
  const Curve means = ReadCurve(ReadFile(options.output / "README.md"));
  ASSERT_EQ(means.size(), 2u);
  const auto loss = [&](size_t step) { return every[step - 1].training_loss; };
  // Rounded to the four printed decimals.
  EXPECT_NEAR(means[0].training_loss, (loss(1) + loss(2) + loss(3)) / 3, 1.1e-4);
  EXPECT_NEAR(means[1].training_loss, (loss(4) + loss(5)) / 2, 1.1e-4);
}

// The end of this text is unlike the rest: training makes the held-out loss worse.
TEST_F(TrainTest, KeepsTheWeightsThatDoBestOnWhatIsHeldOut) {
  WriteFile(text_, std::string(900, 'a') + std::string(100, 'b'));
  TrainOptions options = Options("out");
  options.save_every = 5;
  Train(options);
  const Curve curve = ReadCurve(ReadFile(options.output / "README.md"));
  ASSERT_EQ(curve.size(), 6u);
  double best = curve[0].held_out_loss;
  for (const CurvePoint& point : curve) best = std::min(best, point.held_out_loss);
  ASSERT_LT(best, curve.back().held_out_loss - 0.1);
  const auto at_best = std::find_if(curve.begin(), curve.end(), [&](const CurvePoint& point) {
    return point.held_out_loss == best;
  });
  EXPECT_THAT(ReadFile(options.output / "README.md"),
              testing::AllOf(testing::HasSubstr("The weights are those after step " +
                                                std::to_string(at_best->step) + ", the best"),
                             testing::HasSubstr("| held-out loss | " + FormatDecimal(best, 4) +
                                                " nats per token |\n")));
  const Checkpoint model = LoadCheckpoint(options.output, TensorFormat::kFloat32);
  EXPECT_NEAR(HeldOutLoss(model, TestCorpus(text_, 0.1)), best, 1e-4);

  // Also if the best weights precede an interruption.
  TrainOptions continued = options;
  continued.output = dir_.path() / "continued";
  Interrupt(continued);
  Train(continued);
  EXPECT_TRUE(SameWeights("continued", "out"));
}

// A run equals its parts: in each step new windows, their clipped gradients, and AdamW at that
// step's rate.
TEST_F(TrainTest, IsMadeOfItsParts) {
  const ModelConfig config = checkpoint::ReadModelConfig(config_);
  TrainOptions options = Options("out");
  options.config.clear();
  options.from = dir_.path() / "start";
  SaveCheckpoint(options.from, config, Cast(RandomWeights(config, 1), at::kFloat));
  options.held_out = 0;
  options.steps = 4;
  options.warmup_steps = 2;
  options.dropout = 0.2;
  options.clip = 0.5;
  options.weight_decay = 0.3;
  options.seed = 5;
  options.compute = ComputeType::kFloat32;
  Train(options);

  std::vector<Parameter> parameters;
  const Checkpoint start = LoadCheckpoint(options.from, TensorFormat::kFloat32);
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const at::Tensor& value = start.weights.at(spec.name);
    parameters.push_back({spec.name, value, {}, at::zeros_like(value), at::zeros_like(value)});
  }
  const Corpus corpus = TestCorpus(text_, 0.0);
  BatchGradients gradients(config, parameters, ComputeType::kFloat32, {}, 2);
  const AdamW optimizer{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.3};
  // Half of the peak, the peak, half a cosine from there.
  const double rates[] = {0.5e-2, 1e-2, 1e-2, 0.5e-2};
  std::vector<at::Tensor> inputs;
  for (int64_t step = 0; step < 4; ++step) {
    std::mt19937_64 generator(5 * 1'000'003 + static_cast<uint64_t>(step));
    const Window windows = corpus.Sample(options.batch_size, 32, generator);
    for (const at::Tensor& others : inputs) EXPECT_FALSE(at::equal(windows.inputs, others));
    inputs.push_back(windows.inputs);
    gradients.Compute(windows, 0.2, generator, parameters);
    EXPECT_GT(ClipGradients(parameters, 0.5), 0.5);  // it is clipped
    optimizer.Step(parameters, step, rates[step]);
  }
  const Checkpoint trained = LoadCheckpoint(options.output, TensorFormat::kFloat32);
  for (const Parameter& p : parameters) {
    EXPECT_EQ(LargestDifference(trained.weights.at(p.name), p.value), 0) << p.name;
  }
}

// After one tiny step. Tolerance: five standard errors of a deviation, and one part in 10,000 for
// the step.
TEST_F(TrainTest, BeginsWithWeightsOfTheirScale) {
  ModelConfig config = checkpoint::ReadModelConfig(config_);
  config.hidden_size = 64;
  config.head_dim = config.hidden_size / config.num_attention_heads;
  config.intermediate_size = 96;
  config.position_embedding = PositionEmbedding::kLearned;
  WriteFile(config_, checkpoint::ToJson(config));
  TrainOptions options = Options("out");
  options.steps = 1;
  options.learning_rate = 1e-9;
  Train(options);
  const Checkpoint model = LoadCheckpoint(options.output, TensorFormat::kFloat32);
  for (const TensorSpec& spec : ExpectedTensors(model.config)) {
    const at::Tensor& value = model.weights.at(spec.name);
    if (spec.shape.size() == 1) {
      const double expected = spec.name.ends_with(".bias") ? 0 : 1;
      EXPECT_LT((value - expected).abs().max().item<double>(), 1e-6) << spec.name;
      continue;
    }
    double deviation = 1 / std::sqrt(static_cast<double>(spec.shape[1]));
    if (spec.name.find("embed") != std::string::npos) deviation = 0.02;
    if (spec.name.ends_with("o_proj.weight") || spec.name.ends_with("down_proj.weight")) {
      deviation /= std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
    }
    if (spec.name == kPositionsName) {  // neighbouring positions start out similar
      const at::Tensor expected =
          SinusoidalPositions(spec.shape[0], spec.shape[1]) * (0.02 * std::numbers::sqrt2);
      EXPECT_LT(LargestDifference(value, expected), 1e-6);
      continue;
    }
    const double error = 5 / std::sqrt(2.0 * static_cast<double>(value.numel())) + 1e-4;
    EXPECT_NEAR(value.square().mean().sqrt().item<double>() / deviation, 1, error) << spec.name;
  }
}

TEST_F(TrainTest, WithoutAHeldOutPartTheLastWeightsAreKept) {
  TrainOptions options = Options("out");
  options.held_out = 0;
  options.save_every = 10;
  Train(options);
  EXPECT_THAT(ReadFile(options.output / "README.md"),
              testing::AllOf(testing::HasSubstr("Nothing was held out; the weights are the last."),
                             testing::Not(testing::HasSubstr("| held-out loss | "))));
  TrainOptions other = Options("other");
  other.held_out = 0;
  other.save_every = 100;
  Train(other);
  EXPECT_TRUE(SameWeights("out", "other"));
  EXPECT_EQ(
      LoadCheckpoint(options.output, TensorFormat::kFloat32).config.training_texts.at(0).held_out,
      0);
}

// A second run keeps the held-out part of the first.
TEST_F(TrainTest, AModelTrainedOnKeepsItsHeldOutPart) {
  TrainOptions options = Options("start");
  options.held_out = 0.25;
  Train(options);
  TrainOptions more = Options("more");
  more.config.clear();
  more.from = options.output;
  more.held_out = 0.3;
  EXPECT_THAT(RefusalOf<LoadError>([&] { Train(more); }), testing::StartsWith("--held-out 0.3: "));
  const auto texts = [&](std::optional<double> held_out, const std::string& text) {
    std::filesystem::remove_all(more.output);
    WriteFile(text_, text);
    more.held_out = held_out;
    Train(more);
    return LoadCheckpoint(more.output, TensorFormat::kFloat32).config.training_texts;
  };
  EXPECT_EQ(texts({}, Rhyme()).at(0).held_out, 0.25);
  EXPECT_EQ(texts({}, Rhyme()).size(), 1u);
  EXPECT_EQ(texts(0.1, Rhyme()).at(0).held_out, 0.1);
  const std::vector<TrainingText> both = texts({}, Rhyme() + Rhyme());
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].sha256, Sha256(Rhyme()));
  EXPECT_EQ(both[0].held_out, 0.25);
  EXPECT_EQ(both[1].sha256, Sha256(Rhyme() + Rhyme()));
  EXPECT_EQ(both[1].held_out, kDefaultHeldOut);
  // Its card includes the card of the first run.
  EXPECT_THAT(ReadFile(more.output / "README.md"), testing::HasSubstr("\n## start\n"));
}

TEST_F(TrainTest, AGgufFileIsTrainedOnAsOthersAre) {
  TrainOptions options = Options("out");
  options.config.clear();
  options.from = dir_.path() / "m.gguf";
  options.steps = 3;
  options.window = 16;
  WriteFile(options.from, SmallGguf());
  Train(options);
  EXPECT_EQ(LoadCheckpoint(options.output, TensorFormat::kFloat32).config.vocab_size,
            kSmallGgufVocabulary);
  EXPECT_EQ(checkpoint::LoadTokenizer(options.output)->Encode(Rhyme()),
            checkpoint::LoadTokenizer(options.from)->Encode(Rhyme()));

  options.output = dir_.path() / "other";
  WriteFile(options.from, UnwritableGguf());
  EXPECT_THAT([&] { Train(options); }, testing::ThrowsMessage<LoadError>(testing::HasSubstr(
                                           "tokenizer.chat_template is 1048577 bytes")));
}

// The student was trained on its teachers' texts too.
TEST_F(TrainTest, AStudentNamesItsTeachersTexts) {
  TrainOptions options = Options("teacher");
  options.held_out = 0.25;
  Train(options);
  WriteFile(text_, Rhyme() + Rhyme());
  TrainOptions taught = Options("out");
  taught.teachers = {options.output};
  taught.teacher_weight = 0.25;
  Train(taught);
  EXPECT_THAT(ReadFile(taught.output / "README.md"),
              testing::HasSubstr("| training loss | 0.75 of it against the text, 0.25 against "
                                 "what `teacher` expects |\n"));
  const std::vector<TrainingText> texts =
      LoadCheckpoint(taught.output, TensorFormat::kFloat32).config.training_texts;
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1].sha256, Sha256(Rhyme()));
  EXPECT_EQ(texts[1].held_out, 0.25);
}

TEST_F(TrainTest, TheProgramTakesSeveralTeachers) {
  Train(Options("one"));
  Train(Options("two"));
  std::vector<std::string> command = {TRIPTYCH_MODEL_PROGRAM,
                                      "train",
                                      "--config",
                                      config_,
                                      "--text",
                                      text_,
                                      "--output",
                                      dir_.path() / "taught",
                                      "--steps",
                                      "1",
                                      "--teacher-weight",
                                      "0.25",
                                      "--teacher",
                                      dir_.path() / "one"};
  std::vector<std::string> loose = command;
  loose.push_back(dir_.path() / "two");
  const Process::Result refused = Process(loose, {}).Wait();
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, testing::HasSubstr("two"));
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "taught"));
  command.insert(command.end(), {"--teacher", dir_.path() / "two"});
  const Process::Result taught = Process(command, {}).Wait();
  EXPECT_EQ(taught.exit_code, 0) << taught.err;
  EXPECT_THAT(ReadFile(dir_.path() / "taught/README.md"),
              testing::HasSubstr("| training loss | 0.75 of it against the text, 0.25 against the "
                                 "mean of what `one`, `two` expect |\n"));
}

TEST_F(TrainTest, RefusesOneTextTooMany) {
  ModelConfig config = SmallModel(AttentionKind::kMha);
  for (int i = 0; i < 64; ++i) config.training_texts.push_back({Sha256(std::to_string(i)), 0.1});
  TrainOptions options = Options("out");
  options.config.clear();
  options.from = dir_.path() / "from";
  SaveCheckpoint(options.from, config, RandomWeights(config, 1));
  EXPECT_EQ(RefusalOf<LoadError>([&] { Train(options); }),
            options.from.string() + ": was trained on too many other texts; allowed: 64 in all");
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

TEST_F(TrainTest, KeepsTheReadmeThatIsThere) {
  const TrainOptions options = Options("out");
  std::filesystem::create_directory(options.output);
  WriteFile(options.output / "README.md", "mine");
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { Train(options); }),
            "--output " + options.output.string() +
                ": holds a README.md, which the model's card would replace; allowed: "
                "a directory without one");
  EXPECT_EQ(ReadFile(options.output / "README.md"), "mine");
}

TEST_F(TrainTest, ATeacherMustNotHaveSeenWhatIsHeldOut) {
  TrainOptions options = Options("teacher");
  options.held_out = 0.05;
  Train(options);
  TrainOptions taught = Options("out");
  taught.teachers = {options.output};
  EXPECT_THAT(RefusalOf<LoadError>([&] { Train(taught); }),
              testing::AllOf(testing::StartsWith("--held-out 0.1: "),
                             testing::HasSubstr("teacher was trained on some")));
  EXPECT_FALSE(std::filesystem::exists(taught.output));
}

// Windows of 8 reach no position past the eighth: the other rows of the table do not change.
TEST_F(TrainTest, WindowsMayBeShorterThanTheContext) {
  Train(Options("start"));
  TrainOptions options = Options("out");
  options.config.clear();
  options.from = dir_.path() / "start";
  options.window = 8;
  options.weight_decay = 0;
  Train(options);
  const auto positions = [&](const std::string& model) {
    return LoadCheckpoint(dir_.path() / model, TensorFormat::kFloat32)
        .weights.at("model.embed_positions.weight");
  };
  EXPECT_TRUE(at::equal(positions("out").narrow(0, 8, 24), positions("start").narrow(0, 8, 24)));
  EXPECT_FALSE(at::equal(positions("out")[7], positions("start")[7]));

  // Weights are therefore measured and chosen in windows of 8; the card's loss has the full
  // context.
  const std::string card = ReadFile(options.output / "README.md");
  EXPECT_THAT(card, testing::HasSubstr("| held-out loss in windows of 8 |"));
  const Checkpoint model = LoadCheckpoint(options.output, TensorFormat::kFloat32);
  const Corpus corpus = TestCorpus(text_, 0.1);
  const Decoder decoder(model.config, model.weights, ComputeType::kFloat32);
  const double measured = ReadCurve(card).front().held_out_loss;  // the source's card follows
  EXPECT_NEAR(measured, MeanLoss(decoder, corpus.HeldOutWindows(1, 8)), 1e-4);  // as printed
  const double whole = HeldOutLoss(decoder, corpus);
  ASSERT_GT(std::abs(measured - whole), 1e-3);
  EXPECT_THAT(card, testing::HasSubstr("| held-out loss | " + FormatDecimal(whole, 4) + " nats"));

  options.output = dir_.path() / "other";
  options.window = 33;
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { Train(options); }),
            "--window 33 is longer than the context; allowed: 1 to 32");
}

TEST_F(TrainTest, TheSameSeedGivesTheSameModel) {
  Train(Options("one"));
  Train(Options("two"));
  EXPECT_TRUE(SameWeights("one", "two"));
  TrainOptions other = Options("three");
  other.seed = 2;
  Train(other);
  EXPECT_FALSE(SameWeights("one", "three"));
}

// A run with any option changed ends differently.
TEST_F(TrainTest, EveryOptionMatters) {
  const TrainOptions options = Options("plain");
  Train(options);
  const auto differs = [&](const std::string& name, const auto& change) {
    TrainOptions other = Options(name);
    change(other);
    Train(other);
    EXPECT_FALSE(SameWeights(name, "plain")) << name;
  };
  differs("steps", [](TrainOptions& o) { o.steps = 31; });
  differs("batch", [](TrainOptions& o) { o.batch_size = 5; });
  differs("window", [](TrainOptions& o) { o.window = 31; });
  differs("rate", [](TrainOptions& o) { o.learning_rate = 0.9e-2; });
  differs("warmup", [](TrainOptions& o) { o.warmup_steps = 4; });
  differs("decay", [](TrainOptions& o) { o.weight_decay = 0.5; });
  differs("dropout", [](TrainOptions& o) { o.dropout = 0.2; });
  differs("clip", [](TrainOptions& o) { o.clip = 0.5; });
}

TEST_F(TrainTest, GoesOnFromACheckpoint) {
  Train(Options("start"));
  TrainOptions more = Options("more");
  more.config.clear();
  more.from = dir_.path() / "start";
  more.learning_rate = 1e-9;
  more.steps = 1;
  Train(more);
  // One step at a tiny learning rate: the initial model, except for the last bits.
  const Checkpoint start = LoadCheckpoint(dir_.path() / "start", TensorFormat::kFloat32);
  const Checkpoint end = LoadCheckpoint(dir_.path() / "more", TensorFormat::kFloat32);
  for (const auto& [name, tensor] : start.weights) {
    EXPECT_LT(LargestDifference(end.weights.at(name), tensor), 1e-7) << name;
  }
}

// A truncated conversion is trained further in all its matrices, also in the decoupled keys and
// their biases.
TEST_F(TrainTest, RotaryLatentsHeal) {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.max_position_embeddings = 32;
  config.position_embedding = PositionEmbedding::kRope;
  config.attention_bias = true;
  WriteFile(config_, checkpoint::ToJson(config));
  Train(Options("source"));
  constexpr int64_t kRank = 4, kWidth = 2;
  const Checkpoint cut =
      Convert(LoadCheckpoint(dir_.path() / "source", TensorFormat::kFloat32),
              {.attention = AttentionKind::kMla, .rank = kRank, .rope_head_dim = kWidth}, "source");
  SaveCheckpoint(dir_.path() / "cut", cut.config, cut.weights);
  TrainOptions heal = Options("healed");
  heal.config.clear();
  heal.from = dir_.path() / "cut";
  Train(heal);

  const Checkpoint healed = LoadCheckpoint(heal.output, TensorFormat::kFloat32);
  EXPECT_EQ(healed.config.kv_lora_rank, cut.config.kv_lora_rank);
  EXPECT_EQ(healed.config.qk_rope_head_dim, kWidth);
  const Corpus corpus = TestCorpus(text_, 0.1);
  EXPECT_LT(HeldOutLoss(healed, corpus), HeldOutLoss(cut, corpus) - 0.1);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const char* part : {"kv_a_proj_with_mqa.weight", "kv_a_proj_with_mqa.bias"}) {
      const std::string name = AttentionPrefix(layer) + part;
      const auto decoupled = [&](const Checkpoint& model) {
        return model.weights.at(name).narrow(0, kRank, kWidth);
      };
      // Weight decay alone moves them by 0.015.
      EXPECT_GT(RelativeError(decoupled(healed), decoupled(cut)), 0.05) << name;
    }
  }
}

// A run resumed after a kill ends with the same bytes, wherever it was killed. A run that ended
// before the signal has nothing to resume.
TEST_F(TrainTest, AKilledRunContinuesWithTheSameResult) {
  const auto command = [&](const std::string& output) {
    return std::vector<std::string>{TRIPTYCH_MODEL_PROGRAM,
                                    "--threads",
                                    "2",
                                    "train",
                                    "--config",
                                    config_,
                                    "--text",
                                    text_,
                                    "--output",
                                    dir_.path() / output,
                                    "--steps",
                                    "200",
                                    "--batch-size",
                                    "4",
                                    "--save-every",
                                    "1"};
  };
  EXPECT_EQ(Process(command("whole"), {}).Wait().exit_code, 0);
  Process killed(command("killed"), {});
  const auto state = dir_.path() / "killed/training_state.safetensors";
  const auto finished = dir_.path() / "killed/model.safetensors";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!std::filesystem::exists(state) && !std::filesystem::exists(finished)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
  killed.Signal(SIGKILL);
  killed.Wait();
  if (std::filesystem::exists(state)) {
    const Process::Result continued = Process(command("killed"), {}).Wait();
    EXPECT_EQ(continued.exit_code, 0) << continued.err;
    EXPECT_THAT(continued.err, testing::HasSubstr("continuing at step"));
  }
  EXPECT_TRUE(SameWeights("killed", "whole"));
  // The curve is the same, too.
  const auto curve = [&](const char* name) {
    const std::string card = ReadFile(dir_.path() / name / "README.md");
    return card.substr(card.find("The weights are those after step"));
  };
  EXPECT_EQ(curve("killed"), curve("whole"));
}

TEST_F(TrainTest, RefusesToContinueAnotherRun) {
  TrainOptions options = Options("out");
  std::filesystem::create_directories(options.output);
  WriteFile(options.output / "training_state.safetensors", "not a state");
  EXPECT_THROW(Train(options), LoadError);
}

// A run that ends before its checkpoint is written keeps its state. A run that differs in anything
// is refused, and leaves the state unchanged.
TEST_F(TrainTest, OnlyTheSameRunIsContinued) {
  Train(Options("teacher"));
  Train(Options("start"));
  TrainOptions options = Options("out");
  options.config.clear();
  options.from = dir_.path() / "start";
  options.teachers = {dir_.path() / "teacher"};
  options.save_every = 10;
  WriteFile(options.from / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  Interrupt(options);
  const std::filesystem::path state = options.output / "training_state.safetensors";
  const std::string bytes = ReadFile(state);

  const auto expect_refused = [&](const TrainOptions& other, const std::string& what) {
    EXPECT_THAT(RefusalOf<LoadError>([&] { Train(other); }),
                testing::AllOf(testing::StartsWith(state.string() +
                                                   ": not the state of a run with "
                                                   "these options: " +
                                                   what),
                               testing::EndsWith("; delete it to start again")));
    EXPECT_EQ(ReadFile(state), bytes);
  };
  const auto refused = [&](const std::string& what, const auto& change) {
    TrainOptions other = options;
    change(other);
    expect_refused(other, what);
  };
  refused("--steps is 31, and was 30", [](TrainOptions& o) { o.steps = 31; });
  refused("--batch-size is 5, and was 4", [](TrainOptions& o) { o.batch_size = 5; });
  refused("--window is 31, and was 32", [](TrainOptions& o) { o.window = 31; });
  refused("--learning-rate is ", [](TrainOptions& o) { o.learning_rate = 2e-2; });
  refused("--warmup-steps is 4, and was 3", [](TrainOptions& o) { o.warmup_steps = 4; });
  refused("--weight-decay is 0, and was 0.1", [](TrainOptions& o) { o.weight_decay = 0; });
  refused("--dropout is 0, and was 0.1", [](TrainOptions& o) { o.dropout = 0; });
  refused("--clip is 2, and was 1", [](TrainOptions& o) { o.clip = 2; });
  refused("--seed is 2, and was 1", [](TrainOptions& o) { o.seed = 2; });
  refused("--save-every is 11, and was 10", [](TrainOptions& o) { o.save_every = 11; });
  refused("--held-out is 0.05", [](TrainOptions& o) { o.held_out = 0.05; });
  refused("--teacher is none, and was ", [](TrainOptions& o) { o.teachers.clear(); });
  refused("--teacher is ", [](TrainOptions& o) { o.teachers.push_back(o.from); });
  refused("--teacher-weight is 0.25, and was 0.5",
          [](TrainOptions& o) { o.teacher_weight = 0.25; });
  refused("--dtype is ", [](TrainOptions& o) {
    o.compute = HasBFloat16Products() ? ComputeType::kFloat32 : ComputeType::kBFloat16;
  });
  for (const int threads : {5, 1}) {  // more than windows, and fewer
    SetComputeThreads(threads);
    expect_refused(options, "--threads is " + std::to_string(threads) + ", and was 2");
  }
  SetComputeThreads(2);
  // Files with the same names and other content.
  const auto while_file_is = [&](const std::filesystem::path& file, const std::string& changed,
                                 const std::string& what) {
    const bool there = std::filesystem::exists(file);
    const std::string before = there ? ReadFile(file) : "";
    WriteFile(file, changed);
    expect_refused(options, what);
    std::filesystem::remove(file);
    if (there) WriteFile(file, before);
  };
  std::string text = Rhyme();
  text[5] = 'k';
  while_file_is(text_, text, "--text is ");
  while_file_is(options.from / "tokenizer.json", ByteLevelJson().dump(), "tokenizer is ");
  for (const auto& [model, flag] :
       {std::pair(options.from, "--from"), {options.teachers[0], "--teacher"}}) {
    std::string weights = ReadFile(model / "model.safetensors");
    weights.back() = static_cast<char>(weights.back() ^ 1);
    while_file_is(model / "model.safetensors", weights, std::string(flag) + " is ");
  }
  ModelConfig another = checkpoint::ReadModelConfig(options.from / "config.json");
  another.norm_eps *= 2;
  while_file_is(options.from / "config.json", checkpoint::ToJson(another), "--from is ");

  Train(options);
  TrainOptions whole = options;
  whole.output = dir_.path() / "whole";
  Train(whole);
  EXPECT_TRUE(SameWeights("out", "whole"));
}

TEST_F(TrainTest, OnlyTheSameConfigIsContinued) {
  TrainOptions options = Options("out");
  options.save_every = 10;
  Interrupt(options);
  ModelConfig another = checkpoint::ReadModelConfig(config_);
  another.norm_eps *= 2;
  WriteFile(config_, checkpoint::ToJson(another));
  EXPECT_THAT([&] { Train(options); },
              testing::ThrowsMessage<LoadError>(testing::HasSubstr("these options: config is ")));
}

// The teacher's distribution is the only loss, on a text that neither would write.
TEST_F(TrainTest, AStudentComesToWriteAsItsTeacherDoes) {
  Train(Options("teacher"));
  std::string other;
  for (int i = 0; i < 60; ++i) other += "we dug up six wild figs, bob; how come? ";
  WriteFile(text_, other);
  TrainOptions untrained = Options("untrained");
  untrained.seed = 2;
  TrainOptions alone = untrained, taught = untrained;
  untrained.steps = 1;
  untrained.learning_rate = 1e-9;
  alone.output = dir_.path() / "alone";
  taught.output = dir_.path() / "taught";
  taught.teachers = {dir_.path() / "teacher"};
  taught.teacher_weight = 1;
  const auto logits = [&](const std::string& name) {
    const Checkpoint model = LoadCheckpoint(dir_.path() / name, TensorFormat::kFloat32);
    const Corpus corpus = TestCorpus(text_, 0.1);
    return Decoder(model.config, model.weights, ComputeType::kFloat32)
        .Forward(corpus.HeldOutWindows(8, model.config.max_position_embeddings)[0].inputs)
        .flatten(0, 1);
  };
  const auto divergence = [&](const TrainOptions& options) {
    Train(options);
    return KlDivergence(logits("teacher"), logits(options.output.filename())).mean().item<double>();
  };
  const double reached = divergence(taught);
  EXPECT_LT(reached, 0.3 * divergence(untrained));
  EXPECT_LT(reached, 0.3 * divergence(alone));
}

TEST_F(TrainTest, RefusesATeacherOfAnotherVocabularyOrAShorterContext) {
  TrainOptions options = Options("out");
  const std::filesystem::path teacher = dir_.path() / "teacher";
  options.teachers = {teacher};
  ModelConfig config = SmallModel(AttentionKind::kMha);
  const auto refusal = [&] {
    SaveCheckpoint(teacher, config, RandomWeights(config, 1));
    return RefusalOf<LoadError>([&] { Train(options); });
  };
  config.vocab_size = 300;
  EXPECT_EQ(refusal(),
            teacher.string() + ": vocab_size is 300; allowed: 258, that of the model to train");
  config.vocab_size = 258;
  config.max_position_embeddings = 31;
  EXPECT_EQ(refusal(), teacher.string() +
                           ": max_position_embeddings is 31; allowed: 32, that of the model to "
                           "train, or more");
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

TEST_F(TrainTest, RefusesAModelThatHasNotEveryByte) {
  ModelConfig config = SmallModel(AttentionKind::kMha);
  config.vocab_size = 257;
  WriteFile(config_, checkpoint::ToJson(config));
  SaveCheckpoint(dir_.path() / "model", config, RandomWeights(config, 1));
  EXPECT_THROW(Train(Options("out")), LoadError);
  EXPECT_THROW(Evaluate({.model = dir_.path() / "model", .text = text_}), LoadError);
}

TEST_F(TrainTest, RefusesATextShorterThanAContext) {
  for (const char* text : {"", "short"}) {
    WriteFile(text_, text);
    EXPECT_THROW(Train(Options("out")), std::runtime_error);
    EXPECT_FALSE(std::filesystem::exists(dir_.path() / "out"));
  }
}

TEST_F(TrainTest, KeepsTheModelThatIsThere) {
  const TrainOptions options = Options("out");
  Train(options);
  const std::string weights = ReadFile(options.output / "model.safetensors");
  TrainOptions other = options;
  other.seed = 2;
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { Train(other); }),
            "--output " + options.output.string() +
                ": holds a model already; allowed: a directory without one");
  EXPECT_EQ(ReadFile(options.output / "model.safetensors"), weights);
}

// A container's volume is usually an empty directory that cannot be replaced by a rename.
TEST_F(TrainTest, WritesInsideADirectoryThatIsThere) {
  std::filesystem::create_directory(dir_.path() / "volume");
  std::filesystem::create_directory_symlink(dir_.path() / "volume", dir_.path() / "link");
  const TrainOptions options = Options("link");
  Train(options);
  EXPECT_TRUE(std::filesystem::is_symlink(options.output));
  LoadCheckpoint(dir_.path() / "volume", TensorFormat::kFloat32);
}

TEST_F(TrainTest, NeverSavesWhatIsNotFinite) {
  TrainOptions options = Options("out");
  options.learning_rate = std::nan("");
  options.save_every = 1;
  // Without a held-out part, the weights have no loss.
  for (const auto& [steps, held_out] : {std::pair{1, 0.1}, {30, 0.1}, {1, 0.0}}) {
    options.steps = steps;
    options.held_out = held_out;
    EXPECT_THAT(
        RefusalOf<std::runtime_error>([&] { Train(options); }),
        testing::AllOf(testing::HasSubstr("step 1"), testing::HasSubstr("is not finite; a lower")));
    EXPECT_TRUE(std::filesystem::is_empty(options.output));
  }
}

// A run that diverges fails at the step of its first bad loss, not at the end.
TEST_F(TrainTest, StopsWhenTheLossIsNotFinite) {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.max_position_embeddings = 32;
  Checkpoint huge{.config = config, .weights = RandomWeights(config, 1)};
  for (auto& [name, tensor] : huge.weights) tensor = at::full_like(tensor, 3e38);
  SaveCheckpoint(dir_.path() / "huge", huge.config, huge.weights);
  TrainOptions options = Options("out");
  options.config.clear();
  options.from = dir_.path() / "huge";
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { Train(options); }),
            "step 1: the loss is not finite; a lower --learning-rate may help");
}

// An output matrix of zeros hides values of 1e25: the loss is finite, but the squares of that
// matrix's gradient overflow float32.
TEST_F(TrainTest, StopsWhenTheGradientIsNotFinite) {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.max_position_embeddings = 32;
  Checkpoint huge{.config = config, .weights = RandomWeights(config, 1)};
  huge.weights.at("model.layers.0.self_attn.v_proj.weight").fill_(1e25);
  huge.weights.at("model.layers.0.self_attn.o_proj.weight").zero_();
  SaveCheckpoint(dir_.path() / "huge", huge.config, huge.weights);
  TrainOptions options = Options("out");
  options.config.clear();
  options.from = dir_.path() / "huge";
  EXPECT_EQ(RefusalOf<std::runtime_error>([&] { Train(options); }),
            "step 1: the gradient is not finite; a lower --learning-rate may help");
}

TEST_F(TrainTest, NumbersOfFlagsAreNumbers) {
  const std::string config = config_, text = text_, output = dir_.path() / "out",
                    model = dir_.path();
  const std::vector<std::string> train = {"train", "--config", config, "--text",
                                          text,    "--output", output};
  const std::vector<std::string> evaluate = {"evaluate", "--model", model, "--text", text};
  const std::vector<std::string> convert = {"convert", "--from",      model, "--to",
                                            output,    "--attention", "mla"};
  const std::vector<std::string> verify = {"verify", "model", "--a",    model,
                                           "--b",    model,   "--text", text};
  for (const auto& [command, flags] :
       std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{
           {train,
            {"--held-out", "--learning-rate", "--weight-decay", "--dropout", "--clip",
             "--teacher-weight"}},
           {evaluate, {"--held-out"}},
           {convert, {"--held-out", "--max-loss-increase"}},
           {verify, {"--held-out", "--tolerance"}}}) {
    for (const std::string& flag : flags) {
      for (const char* value : {"nan", "-nan", "inf", "x", "-1"}) {
        std::vector<std::string> argv = command;
        argv.insert(argv.begin(), TRIPTYCH_MODEL_PROGRAM);
        argv.insert(argv.end(), {flag + "=" + value});
        const Process::Result result = Process(argv, {}).Wait();
        EXPECT_EQ(result.exit_code, 2) << flag << " " << value;
        EXPECT_THAT(result.err, testing::AllOf(testing::HasSubstr(flag + ": \"" + value +
                                                                  "\" is not a number that is"),
                                               testing::HasSubstr("allowed: ")));
      }
    }
  }
}

// The dropped share of a million draws has a standard deviation of 0.0003.
TEST(DropoutTest, DropsTheShareAndKeepsTheMean) {
  const at::Tensor x = at::ones({1'000'001});
  Dropout dropout(0.1, 5);
  const at::Tensor first = dropout.Apply(x);
  EXPECT_NEAR((first == 0).to(at::kDouble).mean().item<double>(), 0.1, 0.002);
  EXPECT_NEAR(first.mean().item<double>(), 1.0, 0.002);
  EXPECT_FALSE(at::equal(first, dropout.Apply(x)));
  Dropout again(0.1, 5);
  EXPECT_TRUE(at::equal(first, again.Apply(x)));
}

}  // namespace
}  // namespace triptych::tools::train_test
