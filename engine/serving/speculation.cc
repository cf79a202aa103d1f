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

std::span<const int64_t> SpeculationPolicy::Choose(std::span<SequenceSpeculation* const> sequences,
                                                   int64_t most, StepCosts::Duration others) {
  counts_.assign(sequences.size(), 0);
  if (speculation_ == Speculation::kAlways) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      counts_[i] = std::min(most, std::ssize(sequences[i]->draft.tokens));
      most -= counts_[i];
    }
    return counts_;
  }
  ChooseByGain(sequences, std::min(most, kMostRows), others);
  bool probes = false;
  for (size_t i = 0; i < sequences.size(); ++i) {
    SequenceSpeculation& sequence = *sequences[i];
    if (sequence.draft.tokens.empty()) continue;
    ++sequence.passed_over;
    if (counts_[i] == 0 && sequence.passed_over > kPassedOver && !probes && most > 0) {
      counts_[i] = 1;
      probes = true;
    }
    if (counts_[i] > 0) sequence.passed_over = 0;
  }
  return counts_;
}

void SpeculationPolicy::ChooseByGain(std::span<SequenceSpeculation* const> sequences, int64_t most,
                                     StepCosts::Duration others) {
  const auto decoding = std::ssize(sequences);
  if (!costs_.Measured(decoding)) return;  // this step measures it
  const std::optional<double> plain = costs_.Of(decoding);
  rows_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Draft& draft = sequences[i]->draft;
    if (draft.tokens.empty()) continue;
    const double rate = sequences[i]->rates[draft.strength].rate();
    double probability = 1;
    for (size_t row = 0; row < draft.tokens.size(); ++row) {
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
  auto sum = static_cast<double>(decoding);
  double best = kLeastGain * sum / *plain;
  int64_t chosen = 0;
  for (int64_t count = 1; count <= most_rows; ++count) {
    const Row& row = rows_[count - 1];
    sum += row.probability;
    expected_[row.sequence] += row.probability;
    const std::optional<double> time = costs_.Of(decoding + count);
    if (!time) break;
    if (*time > longest || sum / *time <= best) continue;
    const double least = *std::min_element(expected_.begin(), expected_.end());
    if (decoding > 1 && *time > kMaxSlowdown * least * *plain) continue;
    best = sum / *time;
    chosen = count;
  }
  for (int64_t i = 0; i < chosen; ++i) ++counts_[rows_[i].sequence];
}

void SpeculationPolicy::RecordResult(SequenceSpeculation& sequence, int64_t drafted,
                                     int64_t accepted) {
  const bool rejected = accepted < drafted;
  sequence.rates[sequence.draft.strength].Record(accepted, rejected);
  rates_[sequence.draft.strength].Record(accepted, rejected);
}

}  // namespace triptych::serving
