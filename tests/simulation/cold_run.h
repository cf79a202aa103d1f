// Expected output of a request: each choice computed by itself, on a model with an empty cache.
#ifndef TRIPTYCH_TESTS_SIMULATION_COLD_RUN_H_
#define TRIPTYCH_TESTS_SIMULATION_COLD_RUN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/serving/request.h"
#include "engine/serving/sampler.h"
#include "engine/text/text_stream.h"
#include "tests/support/fake_model.h"

namespace triptych::simulation {

// Small, so that a step is cheap. Some tokens are parts of a character; the last is the end token.
inline constexpr int32_t kVocabSize = 40;
inline constexpr int32_t kEndToken = kVocabSize - 1;
std::string TextOf(int32_t token);

// The model's logits after `tokens`, whose first `prompt` tokens are the prompt.
std::vector<float> ColdLogits(std::span<const int32_t> tokens, const FakeModel::Shape& shape,
                              int64_t prompt);

// A cold run of one choice. The request must outlive it.
class ColdRun {
 public:
  ColdRun(const FakeModel::Shape& shape, const serving::Request& request, int32_t choice);

  // The next delta. REQUIRES: the run has not ended.
  serving::Delta Next();
  // Why the run has ended; absent before its end.
  std::optional<serving::FinishReason> ended() const { return ended_; }
  std::optional<std::string> stop() const { return stops_.matched(); }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // the prompt's, then its own
  int64_t generated() const { return std::ssize(tokens_) - std::ssize(request_.prompt); }

 private:
  const FakeModel::Shape shape_;
  const serving::Request& request_;
  const int32_t choice_;
  std::vector<int32_t> tokens_;
  serving::Sampler sampler_;
  Utf8Stream utf8_;
  StopStrings stops_;
  std::optional<serving::FinishReason> ended_;
};

}  // namespace triptych::simulation

#endif  // TRIPTYCH_TESTS_SIMULATION_COLD_RUN_H_
