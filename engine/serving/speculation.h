// Speculation: which drafted tokens a decode step verifies.
//
// Changes the speed of the output, never its bits: a drafted token is accepted only if the sampler
// chooses it, and ModelBackend gives its row the bits of a decode row.
#ifndef TRIPTYCH_ENGINE_SERVING_SPECULATION_H_
#define TRIPTYCH_ENGINE_SERVING_SPECULATION_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/serving/drafter.h"
#include "engine/serving/moving_median.h"

namespace triptych::serving {

struct NgramIndices;

enum class Speculation {
  kOff,
  kWherePays,  // by the measured cost of rows and the acceptance so far
  kAlways,     // every draft, whatever it costs: for tests and measurements
};

// Most drafted tokens of a sequence in a step.
inline constexpr int32_t kMostDrafted = 32;

// Measured time of steps that only decode, by their number of rows.
class StepCosts {
 public:
  using Duration = MovingMedian::Duration;

  void Record(int64_t rows, Duration took);
  // True if steps of about `rows` rows were measured several times lately.
  bool Measured(int64_t rows) const;
  // Seconds of a step of `rows` rows: interpolated between measured steps, and an optimistic guess
  // up to 4 times the most rows of these. Absent beyond that.
  std::optional<double> Of(int64_t rows) const;

 private:
  static constexpr int kBuckets = 32;  // 1 row, 2, 3 to 4, 5 to 8, ...
  // Measurements of other contexts and loads are forgotten after this number of steps.
  static constexpr int64_t kRemembered = 512;
  struct Bucket {
    MovingMedian time;
    double rows = 0;     // moving mean
    int64_t latest = 0;  // step that was recorded last
  };

  static int IndexOf(int64_t rows);
  bool Fresh(const Bucket& bucket) const {
    return bucket.time.count() > 0 && steps_ - bucket.latest < kRemembered;
  }

  std::array<Bucket, kBuckets> buckets_;
  int64_t steps_ = 0;
};

// Share of the drafted tokens that are accepted, of those whose predecessors were. The latest weigh
// most.
class Acceptance {
 public:
  Acceptance(double rate, double weight) : tried_(weight), accepted_(rate * weight) {}

  void Record(int64_t accepted, bool rejected);
  double rate() const { return accepted_ / tried_; }

 private:
  static constexpr double kMostTried = 32;

  double tried_, accepted_;
};

// Speculation of one sequence.
struct SequenceSpeculation {
  std::unique_ptr<Drafter> drafter;         // made for its first draft
  std::shared_ptr<NgramIndices> predicted;  // of the prediction, shared by the request's choices
  Draft draft;                              // in the present step; empty between steps
  // Tokens that the draft model may draft instead in the present step; 0: none.
  int64_t most_by_draft_model = 0;
  std::vector<Acceptance> rates;      // by Draft::strength
  int64_t passed_over = 0;            // drafts since the last one that was verified
  int64_t drafted = 0, accepted = 0;  // tokens, of the whole output
};

// Chooses how many tokens of each draft a step verifies. Has no clock of its own. Not thread-safe.
class SpeculationPolicy {
 public:
  explicit SpeculationPolicy(Speculation speculation) : speculation_(speculation) {}

  bool on() const { return speculation_ != Speculation::kOff; }
  // Prepares a sequence for its first draft.
  void Begin(SequenceSpeculation& sequence) const;
  // The number of tokens to verify of each sequence's draft, all together at most `most`. The
  // sequences are all those of a step, which only decodes. Maximizes the expected tokens per
  // second. With several sequences, each is expected to keep at least 1 / kMaxSlowdown of its rate.
  // `others`: as of PrefillThrottle::PromptRows; drafts are expected to take no longer.
  //
  // Replaces drafts by tokens that the draft model has yet to draft, of strength kByDraftModel,
  // where they are expected to be right more often and pay for the time of its steps, too.
  std::span<int64_t> Choose(std::span<SequenceSpeculation* const> sequences, int64_t most,
                            StepCosts::Duration others = {});
  // The most rows of earlier tokens that the draft model computes in a step of `decoding`
  // sequences, so that these and `others` keep their pace.
  int64_t MostCaughtUp(int64_t decoding, StepCosts::Duration others) const;
  // Records the step's result for one of them.
  void RecordResult(SequenceSpeculation& sequence, int64_t drafted, int64_t accepted);
  // Records a step that only decoded, without the time of the draft model's steps.
  void Record(int64_t rows, StepCosts::Duration took) { costs_.Record(rows, took); }
  // Records a step of the draft model.
  void RecordDrafting(int64_t rows, StepCosts::Duration took) { draft_costs_.Record(rows, took); }

 private:
  static constexpr double kMaxSlowdown = 1.1;
  static constexpr double kLeastGain = 1.02;  // of tokens per second
  static constexpr int64_t kMostRows = 128;   // of all drafts in a step
  // A sequence whose drafts did not pay verifies one token again after passing over this many.
  static constexpr int64_t kPassedOver = 64;
  static constexpr double kPriorWeight = 4;
  static constexpr int64_t kMostCaughtUp = 128, kLeastCaughtUp = 8;

  struct Proposal {
    int64_t tokens;
    int strength;
  };

  // The sequence's draft, or what the draft model may draft instead if that is likelier right.
  static Proposal Best(const SequenceSpeculation& sequence);
  // Fills proposals_: Best of each sequence, or the drafters' own. True if some are by the draft
  // model.
  bool Propose(std::span<SequenceSpeculation* const> sequences, bool by_draft_model);
  // Chooses a token of one sequence that was passed over for long.
  void Probe(std::span<SequenceSpeculation* const> sequences, int64_t most);
  // Fills counts_ by the expected gain of proposals_. Returns the expected tokens per second.
  double ChooseByGain(std::span<SequenceSpeculation* const> sequences, int64_t most,
                      StepCosts::Duration others);
  // Seconds of a draft model's step: as of StepCosts, but 0 before the first.
  std::optional<double> DraftingTime(int64_t rows) const;

  const Speculation speculation_;
  StepCosts costs_;
  StepCosts draft_costs_;
  // By Draft::strength, of all sequences.
  std::vector<Acceptance> rates_{{0.3, kPriorWeight},
                                 {0.5, kPriorWeight},
                                 {0.7, kPriorWeight},
                                 {0.9, kPriorWeight},
                                 {0.7, kPriorWeight}};
  // Buffers of one call.
  struct Row {
    double probability;  // that the row's token is accepted
    size_t sequence;
  };
  std::vector<Proposal> proposals_;  // of each sequence
  std::vector<Row> rows_;
  std::vector<int64_t> depths_;      // of each sequence: tokens that the draft model drafts
  std::vector<int64_t> draft_rows_;  // of each of the draft model's steps
  std::vector<int64_t> counts_, drafters_counts_;
  std::vector<double> expected_;  // tokens of each sequence
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_SPECULATION_H_
