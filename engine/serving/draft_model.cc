#include "engine/serving/draft_model.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/kernels/logits.h"

namespace triptych::serving {

DraftModel::DraftModel(std::unique_ptr<ModelBackend> model, int64_t vocab_size)
    : model_(std::move(model)),
      drafted_vocab_(std::min(vocab_size, info().vocab_size)),
      maxima_(CeilDiv(drafted_vocab_, kernels::kLogitBlock)) {
  assert(info().likely_tokens == 0);
}

void DraftModel::Begin() {
  step_.ids.clear();
  step_.sequences.clear();
  step_.logit_rows.clear();
}

void DraftModel::Add(const int32_t* blocks, int64_t start, std::span<const int32_t> tokens,
                     bool drafts) {
  // Without a prompt, every row has the same bits in steps of any size.
  step_.sequences.push_back(
      {.blocks = blocks, .start = start, .count = std::ssize(tokens), .prompt = 0});
  for (const int32_t token : tokens) {
    step_.ids.push_back(token < info().vocab_size ? token : 0);  // it lacks ids of padding only
  }
  if (drafts) step_.logit_rows.push_back(rows() - 1);
}

std::span<const int32_t> DraftModel::Step() {
  const std::span<const float> logits = model_->Step(step_);
  tokens_.clear();
  for (size_t row = 0; row < step_.logit_rows.size(); ++row) {
    tokens_.push_back(Likeliest(logits.data() + row * static_cast<size_t>(info().vocab_size)));
  }
  return tokens_;
}

int32_t DraftModel::Likeliest(const float* logits) {
  kernels::LogitMaxima(logits, drafted_vocab_, maxima_.data());
  const auto most = std::max_element(maxima_.begin(), maxima_.end());
  const int64_t begin = (most - maxima_.begin()) * kernels::kLogitBlock;
  const float* const end = logits + std::min(begin + kernels::kLogitBlock, drafted_vocab_);
  const float* const found = std::find_if(
      logits + begin, end, [largest = *most](float logit) { return logit >= largest; });
  return found == end ? 0 : static_cast<int32_t>(found - logits);  // 0: no logit is finite
}

}  // namespace triptych::serving
