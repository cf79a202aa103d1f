#include "tests/backend/cuda/model_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "tests/backend/cuda/cuda_test.h"

namespace triptych {
namespace {

constexpr int64_t kBlockPositions = 16;

// Rounding to bfloat16 moves each input of a product by up to 2^-9, one part in 500; over a few
// layers these errors add up to as much as 1e-2 of the logits.
constexpr double kTolerance = 2e-2;

// `count` copies of the sequences, round-robin.
std::vector<ReferenceSequence> Copies(const std::vector<ReferenceSequence>& sequences,
                                      size_t count) {
  std::vector<ReferenceSequence> copies;
  for (size_t i = 0; i < count; ++i) copies.push_back(sequences[i % sequences.size()]);
  return copies;
}

std::vector<ReferenceSequence> CrowdOf(const Reference& reference) {
  return Copies(ShortSequencesOf(reference), kEmulated ? 4 : 70);
}

// Rounding can change the choice of a token's experts if two are nearly equal. That changes the
// token's logits by less than their size. Models with experts are therefore compared without this
// part of their tokens, those with the largest errors, whose relative errors have a bound of their
// own.
constexpr double kNearTies = 0.25;
constexpr double kNearTieTolerance = 1;

// Relative error of tokens of several sequences.
class RelativeError {
 public:
  // Adds tokens [begin, end) of a sequence.
  void Add(const std::vector<float>& logits, const std::vector<float>& exact, int64_t vocab,
           int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      Squares& squares = tokens_.emplace_back();
      for (int64_t i = token * vocab; i < (token + 1) * vocab; ++i) {
        const double difference = double{logits[i]} - double{exact[i]};
        squares.error += std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                                : difference * difference;
        squares.exact += double{exact[i]} * double{exact[i]};
      }
    }
  }

  // That of the token with the largest.
  double Worst() const {
    double worst = 0;
    for (const Squares& token : tokens_) {
      if (token.error > 0) worst = std::max(worst, std::sqrt(token.error / token.exact));
    }
    return worst;
  }

  double WithoutWorst(double part) const {
    std::vector<Squares> tokens = tokens_;
    std::sort(tokens.begin(), tokens.end(),
              [](const Squares& a, const Squares& b) { return a.error < b.error; });
    tokens.resize(tokens.size() - static_cast<size_t>(part * static_cast<double>(tokens.size())));
    Squares sum;
    for (const Squares& squares : tokens) {
      sum.error += squares.error;
      sum.exact += squares.exact;
    }
    return sum.exact > 0 ? std::sqrt(sum.error / sum.exact) : 0;
  }

 private:
  struct Squares {
    double error = 0;
    double exact = 0;
  };
  std::vector<Squares> tokens_;
};

}  // namespace

BackendOptions CudaOptions(const ModelConfig& config, int64_t blocks, int64_t max_step_tokens) {
  BackendOptions options{.kv_cache_bytes = 0,
                         .block_positions = kBlockPositions,
                         .max_step_tokens = max_step_tokens,
                         .cache_format = CacheFormat::kBFloat16,
                         .expand_from = {}};
  options.kv_cache_bytes =
      blocks * MakeCacheGeometry(config, options.cache_format, kBlockPositions).BlockBytes();
  return options;
}

std::unique_ptr<CudaModel> MakeModel(const Reference& reference, const BackendOptions& options) {
  HeldCudaWeights weights = reference.weights;
  return std::make_unique<CudaModel>(reference.config, weights, options);
}

std::unique_ptr<CudaModel> MakeModel(const Reference& reference,
                                     std::optional<int64_t> expand_from) {
  constexpr int64_t kMostTogether = 1024;  // RunTogether and RunInCrowd use smaller steps
  const std::vector<ReferenceSequence> sequences = SequencesOf(reference);
  const int64_t groups =
      MakeCacheGeometry(reference.config, CacheFormat::kBFloat16, kBlockPositions).Groups().count();
  const int64_t blocks = std::max(BlocksFor(sequences, kBlockPositions, groups),
                                  BlocksFor(CrowdOf(reference), kBlockPositions, groups));
  int64_t longest = kMostTogether;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.length());
  BackendOptions options = CudaOptions(reference.config, blocks + 2 * groups, longest);
  options.expand_from = expand_from;
  return MakeModel(reference, options);
}

std::vector<ReferenceSequence> SequencesOf(const Reference& reference) {
  constexpr int64_t kMostEmulated = 1030;  // reaches one more split size than short contexts
  std::vector<ReferenceSequence> sequences;
  for (const ReferenceSequence& sequence : reference.sequences) {
    if (!kEmulated || sequence.length() <= kMostEmulated) sequences.push_back(sequence);
  }
  return sequences;
}

std::vector<ReferenceSequence> ShortSequencesOf(const Reference& reference) {
  constexpr int64_t kMostEmulated = 136, kGenerated = 8;  // more than one split and tile
  std::vector<ReferenceSequence> sequences = reference.sequences;
  for (ReferenceSequence& sequence : sequences) {
    if (!kEmulated || sequence.length() <= kMostEmulated) continue;
    sequence.ids.resize(kMostEmulated);
    sequence.logits.resize(kMostEmulated * reference.config.vocab_size);
    sequence.prompt = std::min(sequence.prompt, kMostEmulated - kGenerated);
  }
  return sequences;
}

SequenceLogits LogitsAlone(ModelBackend& model, const std::vector<ReferenceSequence>& sequences) {
  SequenceRunner runner(model, sequences);
  runner.RunAlone({std::numeric_limits<int64_t>::max()}, 1);
  return runner.logits();
}

void ExpectLogitsCloseToFloat64(ModelBackend& model,
                                const std::vector<ReferenceSequence>& sequences) {
  const SequenceLogits logits = LogitsAlone(model, sequences);
  RelativeError prompts, generated;
  const int64_t vocab = model.info().vocab_size;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const ReferenceSequence& sequence = sequences[i];
    prompts.Add(logits[i], sequence.logits, vocab, 0, sequence.prompt);
    generated.Add(logits[i], sequence.logits, vocab, sequence.prompt, sequence.length());
  }
  const double left_out = model.expert_load() ? kNearTies : 0;
  for (const RelativeError& error : {prompts, generated}) {
    EXPECT_LT(error.WithoutWorst(left_out), kTolerance);
    if (left_out > 0) {
      EXPECT_LT(error.Worst(), kNearTieTolerance);
    }
  }
}

void ExpectSameBitsInEveryBatchAndChunking(ModelBackend& model, const Reference& reference) {
  const std::vector<ReferenceSequence> sequences = ShortSequencesOf(reference);
  const SequenceLogits alone = LogitsAlone(model, sequences);
  const auto expect_same = [&](const char* how, const auto& run) {
    SequenceRunner runner(model, sequences);
    run(runner);
    EXPECT_TRUE(SameBits(runner.logits(), alone)) << how;
  };
  expect_same("in pieces", [](auto& runner) { runner.RunAlone({5, 4, 33, 1, 64, 17}, 1); });
  expect_same("recomputed after a preemption", [](auto& runner) { runner.RunAlone({13, 64}, 3); });
  expect_same("joined by others", [](auto& runner) { runner.RunTogether(1); });
  if (!kEmulated) {
    expect_same("joined by others in other chunks", [](auto& runner) { runner.RunTogether(2); });
    EXPECT_TRUE(SameBits(LogitsAlone(model, sequences), alone)) << "alone again";
  }
  const std::vector<ReferenceSequence> crowd = CrowdOf(reference);
  SequenceRunner runner(model, crowd);
  runner.RunInCrowd(3);
  for (size_t i = 0; i < crowd.size(); ++i) {
    ASSERT_TRUE(SameBits(runner.logits()[i], alone[i % alone.size()])) << "in a crowd, " << i;
  }
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}
bool SameBits(const SequenceLogits& a, const SequenceLogits& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](const auto& one, const auto& other) { return SameBits(one, other); });
}

}  // namespace triptych
