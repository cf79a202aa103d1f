// Requests and arrival times of a load test.
#ifndef TRIPTYCH_CLIENT_WORKLOAD_H_
#define TRIPTYCH_CLIENT_WORKLOAD_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/length_distribution.h"
#include "triptych/v1/inference.pb.h"

namespace triptych::client {

struct WorkloadOptions {
  std::string model;
  int32_t vocabulary = 0;  // token ids of prompts are below it
  int32_t context = 0;     // maximum tokens of prompt and output together
  LengthDistribution prompt_tokens{128};
  LengthDistribution output_tokens{128};
  // Each prompt begins with one of `prefixes` shared prefixes of this many tokens, in addition to
  // prompt_tokens.
  int32_t shared_prefix_tokens = 0;
  int32_t prefixes = 1;
  double cancel_ratio = 0;  // 0 to 1
  double stall_ratio = 0;   // 0 to 1
  std::optional<LengthDistribution> deadline_ms;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  bool bypass_prefix_cache = false;
  uint64_t seed = 0;
};

// Time at which a request is cancelled: after this many tokens or, if 0, after the share
// `before_first_token` of the mean time to first token.
struct CancelPoint {
  int32_t tokens = 0;
  double before_first_token = 0;  // in [0, 1)
};

struct PlannedRequest {
  v1::GenerateRequest request;
  std::optional<CancelPoint> cancel;
  bool shortened = false;  // to fit the context
  bool stalls = false;     // its client stops reading after the first message
  std::optional<std::chrono::milliseconds> deadline;
};

// Requests of a load: random tokens, with outputs generated to their full length. The same options
// give the same requests, whatever the order of Make. Thread-safe.
class Workload {
 public:
  // REQUIRES: vocabulary >= 1, context >= 2, 0 <= shared_prefix_tokens <= context - 2,
  // prefixes >= 1.
  explicit Workload(const WorkloadOptions& options);

  PlannedRequest Make(int64_t index) const;

  const WorkloadOptions& options() const { return options_; }

 private:
  const WorkloadOptions options_;
  std::vector<std::vector<int32_t>> prefixes_;
};

// The times at which requests arrive, in seconds from the start: a Poisson process.
class Arrivals {
 public:
  // `rate`: mean arrivals per second. REQUIRES: rate > 0.
  Arrivals(double rate, uint64_t seed);

  double Next() { return time_ += DrawExponential(rate_, random_); }

 private:
  const double rate_;
  Random random_;
  double time_ = 0;
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_WORKLOAD_H_
