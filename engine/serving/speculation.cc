#include "engine/serving/speculation.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "engine/serving/prefill_throttle.h"

namespace triptych::serving {
namespace {

// Guess for rows that were not measured: a step of twice the rows takes a quarter longer.
constexpr double kGuessedRow = 0.25;
constexpr double kMostGuessed = 4;  // times the rows that were measured
// Fewer measurements may all be of steps that other work delayed.
constexpr size_t kSureMeasurements = 3;

}  // namespace

int StepCosts::IndexOf(int64_t rows) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(rows - 1)));
}

bool StepCosts::Measured(int64_t rows) const {
  const Bucket& bucket = buckets_[IndexOf(rows)];
  return Fresh(bucket) && bucket.time.count() >= kSureMeasurements;
}

void StepCosts::Record(int64_t rows, Duration took) {
  Bucket& bucket = buckets_[IndexOf(rows)];
  if (!Fresh(bucket)) bucket = {};
  const double weight = bucket.time.count() == 0 ? 1 : 0.2;
  bucket.rows += weight * (static_cast<double>(rows) - bucket.rows);
  bucket.time.Add(took);
  bucket.latest = ++steps_;
}

std::optional<double> StepCosts::Of(int64_t rows) const {
  const auto wanted = static_cast<double>(rows);
  double below = 0, below_rows = 0;  // the last bucket with fewer rows
  for (const Bucket& bucket : buckets_) {
    if (!Fresh(bucket)) continue;
    double time = bucket.time.value().count();
    if (below_rows > 0 && bucket.time.count() < kSureMeasurements) {
      time = std::min(time, below * (1 + kGuessedRow * (bucket.rows / below_rows - 1)));
    }
    if (bucket.rows >= wanted) {
      if (below_rows == 0) return time;
      const double share = (wanted - below_rows) / (bucket.rows - below_rows);
      return below + share * (time - below);
    }
    below = time;
    below_rows = bucket.rows;
  }
  if (below_rows == 0 || wanted > kMostGuessed * below_rows) return std::nullopt;
  return below * (1 + kGuessedRow * (wanted / below_rows - 1));
}

void Acceptance::Record(int64_t accepted, bool rejected) {
  accepted_ += static_cast<double>(accepted);
  tried_ += static_cast<double>(accepted + (rejected ? 1 : 0));
  if (tried_ > kMostTried) {
    accepted_ *= kMostTried / tried_;
    tried_ = kMostTried;
  }
}

void SpeculationPolicy::Begin(SequenceSpeculation& sequence) const {
  for (const Acceptance& rate : rates_) sequence.rates.emplace_back(rate.rate(), kPriorWeight);
}

SpeculationPolicy::Proposal SpeculationPolicy::Best(const SequenceSpeculation& sequence) {
  const Draft& draft = sequence.draft;
  const Proposal own{std::ssize(draft.tokens), draft.strength};
  if (sequence.most_by_draft_model == 0) return own;
  const std::vector<Acceptance>& rates = sequence.rates;
  if (own.tokens > 0 && rates[own.strength].rate() >= rates[Draft::kByDraftModel].rate()) {
    return own;
  }
  return {sequence.most_by_draft_model, Draft::kByDraftModel};
}

bool SpeculationPolicy::Propose(std::span<SequenceSpeculation* const> sequences,
                                bool by_draft_model) {
  proposals_.clear();
  bool any = false;
  for (const SequenceSpeculation* const sequence : sequences) {
    const Draft& draft = sequence->draft;
    proposals_.push_back(by_draft_model ? Best(*sequence)
                                        : Proposal{std::ssize(draft.tokens), draft.strength});
    any |= proposals_.back().strength == Draft::kByDraftModel;
  }
  return any;
}

std::span<int64_t> SpeculationPolicy::Choose(std::span<SequenceSpeculation* const> sequences,
                                             int64_t most, StepCosts::Duration others) {
  if (speculation_ == Speculation::kAlways) {
    Propose(sequences, true);
    counts_.clear();
    for (const Proposal& proposal : proposals_) {
      counts_.push_back(std::min(most, proposal.tokens));
      most -= counts_.back();
    }
  } else {
    const int64_t most_rows = std::min(most, kMostRows);
    Propose(sequences, false);
    const double by_drafters = ChooseByGain(sequences, most_rows, others);
    if (Propose(sequences, true)) {
      drafters_counts_ = counts_;
      if (ChooseByGain(sequences, most_rows, others) <= by_drafters) {
        counts_ = drafters_counts_;
        Propose(sequences, false);
      }
    }
    Probe(sequences, most);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (counts_[i] == 0 || proposals_[i].strength != Draft::kByDraftModel) continue;
    sequences[i]->draft.tokens.assign(counts_[i], 0);
    sequences[i]->draft.strength = Draft::kByDraftModel;
  }
  return counts_;
}

void SpeculationPolicy::Probe(std::span<SequenceSpeculation* const> sequences, int64_t most) {
  bool probes = false;
  for (size_t i = 0; i < sequences.size(); ++i) {
    SequenceSpeculation& sequence = *sequences[i];
    const Proposal best = Best(sequence);
    if (best.tokens == 0) continue;
    ++sequence.passed_over;
    if (counts_[i] == 0 && sequence.passed_over > kPassedOver && !probes && most > 0) {
      counts_[i] = 1;
      proposals_[i] = best;
      probes = true;
    }
    if (counts_[i] > 0) sequence.passed_over = 0;
  }
}

std::optional<double> SpeculationPolicy::DraftingTime(int64_t rows) const {
  if (rows == 0 || !draft_costs_.Of(1)) return 0;
  return draft_costs_.Of(rows);
}

int64_t SpeculationPolicy::MostCaughtUp(int64_t decoding, StepCosts::Duration others) const {
  const double plain = costs_.Of(decoding).value_or(0), unfelt = PrefillThrottle::kUnfelt.count();
  double longest = std::max(plain, unfelt);
  if (decoding > 1) longest = std::max((kMaxSlowdown - 1) * plain, unfelt - plain);
  if (others.count() > 0) longest = std::min(longest, std::max(others.count(), unfelt));
  for (int64_t rows = kMostCaughtUp; rows > kLeastCaughtUp; rows /= 2) {
    const std::optional<double> time = draft_costs_.Of(rows);
    if (time && *time <= longest) return rows;
  }
  return kLeastCaughtUp;
}

double SpeculationPolicy::ChooseByGain(std::span<SequenceSpeculation* const> sequences,
                                       int64_t most, StepCosts::Duration others) {
  const auto decoding = std::ssize(sequences);
  counts_.assign(sequences.size(), 0);
  if (!costs_.Measured(decoding)) return 0;  // this step measures it
  const std::optional<double> plain = costs_.Of(decoding);
  rows_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Proposal& proposal = proposals_[i];
    if (proposal.tokens == 0) continue;
    const double rate = sequences[i]->rates[proposal.strength].rate();
    double probability = 1;
    for (int64_t row = 0; row < proposal.tokens; ++row) {
      probability *= rate;
      rows_.push_back({probability, i});
    }
  }
  // In a total order: std::stable_sort takes memory from the heap.
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    if (a.probability != b.probability) return a.probability > b.probability;
    return a.sequence < b.sequence;
  });
  const auto most_rows = std::min<int64_t>(most, std::ssize(rows_));
  double longest = std::numeric_limits<double>::infinity();
  if (others.count() > 0) longest = *plain + std::max(others, PrefillThrottle::kUnfelt).count();

  expected_.assign(sequences.size(), 1);
  depths_.assign(sequences.size(), 0);
  draft_rows_.assign(kMostDrafted, 0);
  double drafting = 0;
  auto sum = static_cast<double>(decoding);
  double best = kLeastGain * sum / *plain;
  int64_t chosen = 0;
  for (int64_t count = 1; count <= most_rows; ++count) {
    const Row& row = rows_[count - 1];
    sum += row.probability;
    expected_[row.sequence] += row.probability;
    if (proposals_[row.sequence].strength == Draft::kByDraftModel) {
      int64_t& rows = draft_rows_[depths_[row.sequence]++];
      const std::optional<double> before = DraftingTime(rows), after = DraftingTime(++rows);
      if (!after) break;
      drafting += *after - before.value_or(0);
    }
    const std::optional<double> verifying = costs_.Of(decoding + count);
    if (!verifying) break;
    const double time = *verifying + drafting;
    if (time > longest || sum / time <= best) continue;
    const double least = *std::min_element(expected_.begin(), expected_.end());
    if (decoding > 1 && time > kMaxSlowdown * least * *plain) continue;
    best = sum / time;
    chosen = count;
  }
  for (int64_t i = 0; i < chosen; ++i) ++counts_[rows_[i].sequence];
  return best;
}

void SpeculationPolicy::RecordResult(SequenceSpeculation& sequence, int64_t drafted,
                                     int64_t accepted) {
  const bool rejected = accepted < drafted;
  sequence.rates[sequence.draft.strength].Record(accepted, rejected);
  rates_[sequence.draft.strength].Record(accepted, rejected);
}

}  // namespace triptych::serving
