// Expected output of a request: each choice computed by itself, on a model with an empty cache.
#ifndef TRIPTYCH_TESTS_SIMULATION_COLD_RUN_H_
#define TRIPTYCH_TESTS_SIMULATION_COLD_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/serving/request.h"
#include "engine/serving/sampler.h"
#include "engine/text/text_stream.h"
#include "tests/support/fake_model.h"

namespace triptych::simulation {

// Small, so that a step is cheap. Some tokens are parts of a character; the last is the end token.
inline constexpr int32_t kVocabSize = 40;
inline constexpr int32_t kEndToken = kVocabSize - 1;
std::string TextOf(int32_t token);

// A fake model, and optionally a real one of the same shape.
struct ModelShape : FakeModel::Shape {
  // Computes the logits in a cache of its own, while the fake model checks the steps; null: the
  // fake model computes them.
  std::shared_ptr<const ModelBackend> real = {};
  std::string real_name = {};
};

// The logits of a sequence that is alone on a model with an empty cache: its prompt is one step,
// and so is each token after it.
class ColdModel {
 public:
  // The prompt must outlive it.
  ColdModel(const ModelShape& shape, std::span<const int32_t> prompt)
      : shape_(shape), prompt_(prompt) {}

  // The logits after `tokens`, which are a part of the prompt, or the prompt and the tokens of an
  // earlier call with at most one more.
  std::vector<float> Logits(std::span<const int32_t> tokens);

 private:
  // Adds the logits of the next positions.
  void Step(std::span<const int32_t> tokens);

  const ModelShape shape_;
  const std::span<const int32_t> prompt_;
  std::unique_ptr<ModelBackend> real_;
  std::vector<int32_t> blocks_;
  std::vector<float> logits_;  // of real_: [positions so far, vocab]
};

// A cold run of one choice. The request must outlive it. Copies share the model, as they continue
// with the same tokens.
class ColdRun {
 public:
  ColdRun(const ModelShape& shape, const serving::Request& request, int32_t choice);

  // The next delta. REQUIRES: the run has not ended.
  serving::Delta Next();
  // Why the run has ended; absent before its end.
  std::optional<serving::FinishReason> ended() const { return ended_; }
  std::optional<std::string> stop() const { return stops_.matched(); }
  ColdModel& model() const { return *model_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // the prompt's, then its own
  int64_t generated() const { return std::ssize(tokens_) - std::ssize(request_.prompt); }

 private:
  const std::shared_ptr<ColdModel> model_;
  const int64_t max_positions_;
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
