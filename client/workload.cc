#include "client/workload.h"

#include <algorithm>

namespace triptych::client {
namespace {

// Streams of random numbers. Those of the arrivals, each prefix and each request depend only on the
// seed and the stream.
constexpr uint64_t kArrivals = uint64_t{1} << 62;
constexpr uint64_t kPrefixes = uint64_t{1} << 63;

Random MakeRandom(uint64_t seed, uint64_t stream) {
  std::seed_seq sequence{seed, seed >> 32, stream, stream >> 32};
  return Random(sequence);
}

}  // namespace

Workload::Workload(const WorkloadOptions& options) : options_(options) {
  if (options_.shared_prefix_tokens == 0) return;
  for (int32_t i = 0; i < options_.prefixes; ++i) {
    Random random = MakeRandom(options_.seed, kPrefixes + i);
    std::vector<int32_t>& prefix = prefixes_.emplace_back();
    for (int32_t t = 0; t < options_.shared_prefix_tokens; ++t) {
      prefix.push_back(static_cast<int32_t>(DrawUniform(0, options_.vocabulary - 1, random)));
    }
  }
}

PlannedRequest Workload::Make(int64_t index) const {
  Random random = MakeRandom(options_.seed, static_cast<uint64_t>(index));
  PlannedRequest planned;
  const int32_t prefix = options_.shared_prefix_tokens;
  const int32_t drawn_prompt = options_.prompt_tokens.Draw(random);
  const int32_t drawn_output = options_.output_tokens.Draw(random);
  const int32_t prompt = std::min(drawn_prompt, options_.context - 1 - prefix);
  const int32_t output = std::min(drawn_output, options_.context - prefix - prompt);
  planned.shortened = prompt < drawn_prompt || output < drawn_output;

  v1::GenerateRequest& request = planned.request;
  request.set_model(options_.model);
  request.set_max_new_tokens(output);
  request.set_ignore_eos(true);
  request.set_priority(options_.priority);
  request.set_bypass_prefix_cache(options_.bypass_prefix_cache);
  request.mutable_sampling()->set_seed(random());
  auto& ids = *request.mutable_tokens()->mutable_ids();
  ids.Reserve(prefix + prompt);
  if (prefix > 0) {
    const std::vector<int32_t>& shared = prefixes_[DrawUniform(0, options_.prefixes - 1, random)];
    ids.Add(shared.begin(), shared.end());
  }
  for (int32_t t = 0; t < prompt; ++t) {
    ids.Add(static_cast<int32_t>(DrawUniform(0, options_.vocabulary - 1, random)));
  }
  if (DrawUnit(random) < options_.cancel_ratio) {
    planned.cancel.emplace();
    if (DrawUnit(random) < 0.5) {
      planned.cancel->before_first_token = DrawUnit(random);
    } else {
      planned.cancel->tokens = static_cast<int32_t>(DrawUniform(1, output, random));
    }
  }
  planned.stalls = DrawUnit(random) < options_.stall_ratio;
  if (options_.deadline_ms) {
    planned.deadline = std::chrono::milliseconds(options_.deadline_ms->Draw(random));
  }
  return planned;
}

Arrivals::Arrivals(double rate, uint64_t seed)
    : rate_(rate), random_(MakeRandom(seed, kArrivals)) {}

}  // namespace triptych::client
