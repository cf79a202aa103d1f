#include "tests/simulation/cold_run.h"

#include <algorithm>

namespace triptych::simulation {

std::string TextOf(int32_t token) {
  if (token == kEndToken) return "";
  if (token == kEndToken - 1) return "\xc3";  // C3 A9 is one character
  if (token == kEndToken - 2) return "\xa9";
  return std::string(1, static_cast<char>('a' + token % 8));
}

std::vector<float> ColdLogits(std::span<const int32_t> tokens, const FakeModel::Shape& shape,
                              int64_t prompt) {
  std::vector<float> logits(shape.vocab_size, 0.0f);
  logits[FakeModel::Next(tokens, shape, prompt)] = FakeModel::kLikely;
  return logits;
}

ColdRun::ColdRun(const FakeModel::Shape& shape, const serving::Request& request, int32_t choice)
    : shape_(shape),
      request_(request),
      choice_(choice),
      tokens_(request.prompt),
      sampler_(request.sampling, serving::ChoiceSeed(request.seed, choice), request.prompt),
      stops_(request.stop) {
  if (request.max_new_tokens == 0) ended_ = serving::FinishReason::kLength;
}

serving::Delta ColdRun::Next() {
  std::vector<int32_t> ends = request_.stop_tokens;
  if (!request_.ignore_eos) ends.push_back(kEndToken);
  const std::vector<float> logits = ColdLogits(tokens_, shape_, std::ssize(request_.prompt));
  const bool may_end = generated() >= request_.min_new_tokens;
  serving::Delta delta;
  delta.choice = choice_;
  delta.token = sampler_.Sample(logits, may_end ? std::span<const int32_t>() : ends);
  if (request_.logprobs)
    delta.logprobs = serving::Logprobs(logits, delta.token, *request_.logprobs);
  tokens_.push_back(delta.token);
  stops_.SetActive(generated() > request_.min_new_tokens);
  delta.text = stops_.Push(utf8_.Push(TextOf(delta.token)));

  const bool stops = std::find(ends.begin(), ends.end(), delta.token) != ends.end();
  const bool full =
      generated() == request_.max_new_tokens || std::ssize(tokens_) >= shape_.max_positions;
  if (stops || full) {
    delta.text += stops_.Push(utf8_.Flush());
    delta.text += stops_.Flush();
  }
  if (stops_.matched() && request_.include_stop) delta.text += *stops_.matched();
  if (stops || stops_.matched()) {
    ended_ = serving::FinishReason::kStop;
  } else if (full) {
    ended_ = serving::FinishReason::kLength;
  }
  return delta;
}

}  // namespace triptych::simulation
