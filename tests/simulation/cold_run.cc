#include "tests/simulation/cold_run.h"

#include <algorithm>
#include <numeric>

#include "engine/base/ceil_div.h"

namespace triptych::simulation {

std::string TextOf(int32_t token) {
  if (token == kEndToken) return "";
  if (token == kEndToken - 1) return "\xc3";  // C3 A9 is one character
  if (token == kEndToken - 2) return "\xa9";
  return std::string(1, static_cast<char>('a' + token % 8));
}

std::vector<float> ColdModel::Logits(std::span<const int32_t> tokens) {
  if (!shape_.real) {
    std::vector<float> logits(shape_.vocab_size, 0.0f);
    logits[FakeModel::Next(tokens, shape_, std::ssize(prompt_))] = FakeModel::kLikely;
    return logits;
  }
  if (std::ssize(logits_) < std::ssize(tokens) * shape_.vocab_size) Step(tokens);
  const auto end = logits_.begin() + std::ssize(tokens) * shape_.vocab_size;
  return {end - shape_.vocab_size, end};
}

void ColdModel::Step(std::span<const int32_t> tokens) {
  if (!real_) {
    const int64_t blocks = CeilDiv(shape_.max_positions, shape_.block_positions) *
                           shape_.real->info().geometry.Groups().count();
    real_ = shape_.real->WithOwnCache(blocks);
    blocks_.resize(blocks);
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }
  const int64_t start = std::ssize(logits_) / shape_.vocab_size;
  const auto ids = start == 0 ? prompt_ : tokens.subspan(start);
  StepInput step;
  step.ids.assign(ids.begin(), ids.end());
  step.sequences = {{blocks_.data(), start, std::ssize(ids), std::ssize(prompt_)}};
  step.logit_rows.resize(ids.size());
  std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
  const std::span<const float> logits = real_->Step(step);
  logits_.insert(logits_.end(), logits.begin(), logits.end());
}

ColdRun::ColdRun(const ModelShape& shape, const serving::Request& request, int32_t choice)
    : model_(std::make_shared<ColdModel>(shape, request.prompt)),
      max_positions_(shape.max_positions),
      request_(request),
      choice_(choice),
      tokens_(request.prompt),
      sampler_(request.sampling, serving::ChoiceSeed(request.seed, choice), request.prompt),
      stops_(request.stop) {
  // A real model computes no prompt that is too long.
  const bool computes = !shape.real || std::ssize(request.prompt) <= max_positions_;
  if (request.max_new_tokens == 0 || !computes) ended_ = serving::FinishReason::kLength;
}

serving::Delta ColdRun::Next() {
  std::vector<int32_t> ends = request_.stop_tokens;
  if (!request_.ignore_eos) ends.push_back(kEndToken);
  const std::vector<float> logits = model_->Logits(tokens_);
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
  const bool full = generated() == request_.max_new_tokens || std::ssize(tokens_) >= max_positions_;
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
