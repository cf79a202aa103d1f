// Outcomes of requests, and their counters.
#ifndef TRIPTYCH_SERVER_CORE_STATS_OUTCOME_H_
#define TRIPTYCH_SERVER_CORE_STATS_OUTCOME_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace triptych::server {

enum class Outcome {
  kStop,        // every choice ended by its end token or a stop
  kLength,      // a choice ended by its length
  kScored,      // a Score succeeded
  kCancelled,   // by the client or by the end of the server
  kSlowReader,  // cancelled because the client did not read
  kFailed,      // a step failed
  kRefused,     // for lack of room, or by a limit of the client
  kInvalid,     // invalid argument
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

// Counters by outcome. Thread-safe.
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
