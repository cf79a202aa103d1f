// What became of a request, in one word.
#ifndef TRIPTYCH_SERVER_CORE_STATS_OUTCOME_H_
#define TRIPTYCH_SERVER_CORE_STATS_OUTCOME_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace triptych::server {

enum class Outcome {
  kStop,        // every choice by its end or stop string
  kLength,      // a choice by its length
  kScored,      // a Score
  kCancelled,   // by its client, or at the server's end
  kSlowReader,  // cut off
  kFailed,      // the model could not be computed
  kRefused,     // for lack of room or of the client's share
  kInvalid,     // what it asks for is not possible
};

inline constexpr std::array kOutcomes = {
    Outcome::kStop,       Outcome::kLength, Outcome::kScored,  Outcome::kCancelled,
    Outcome::kSlowReader, Outcome::kFailed, Outcome::kRefused, Outcome::kInvalid};

constexpr std::string_view Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kStop:
      return "stop";
    case Outcome::kLength:
      return "length";
    case Outcome::kScored:
      return "scored";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kSlowReader:
      return "slow_reader";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kInvalid:
      return "invalid";
  }
  return "";
}

// Thread-safe.
class OutcomeCounts {
 public:
  void Add(Outcome outcome) {
    counts_[static_cast<size_t>(outcome)].fetch_add(1, std::memory_order_relaxed);
  }
  // In the order of kOutcomes.
  std::array<int64_t, kOutcomes.size()> counts() const {
    std::array<int64_t, kOutcomes.size()> counts;
    for (size_t i = 0; i < counts.size(); ++i) {
      counts[i] = counts_[i].load(std::memory_order_relaxed);
    }
    return counts;
  }

 private:
  std::array<std::atomic<int64_t>, kOutcomes.size()> counts_{};
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_OUTCOME_H_
