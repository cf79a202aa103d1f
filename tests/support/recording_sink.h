// Request sink that records its calls.
#ifndef TRIPTYCH_TESTS_SUPPORT_RECORDING_SINK_H_
#define TRIPTYCH_TESTS_SUPPORT_RECORDING_SINK_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/serving/request.h"

namespace triptych {

// Not thread-safe. Read it on the engine's thread, or after the engine has stopped.
class RecordingSink final : public serving::RequestSink {
 public:
  void OnRejected(serving::SubmitStatus status) override {
    rejected = status;
    ++final_calls;
  }
  void OnScheduled() override { ++scheduled; }
  void OnPromptLogprobs(std::vector<serving::TokenLogprobs> tokens_of_prompt) override {
    for (const serving::TokenLogprobs& token : tokens_of_prompt) {
      prompt_logprobs.push_back(token.chosen.logprob);
    }
  }
  void OnDelta(serving::Delta delta) override {
    if (final_calls > 0) ++late_deltas;
    text += delta.text;
    tokens.push_back(delta.token);
    if (delta.logprobs) logprobs.push_back(*delta.logprobs);
  }
  void OnFinish(serving::Completion result) override {
    completion = std::move(result);
    ++final_calls;
  }

  std::string text;
  std::vector<int32_t> tokens;
  std::vector<serving::TokenLogprobs> logprobs;
  std::vector<float> prompt_logprobs;  // of prompt[1:]
  int scheduled = 0;
  std::optional<serving::SubmitStatus> rejected;
  std::optional<serving::Completion> completion;
  int final_calls = 0;  // must become 1
  int late_deltas = 0;  // must stay 0
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_RECORDING_SINK_H_
