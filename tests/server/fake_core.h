// A core with a model without weights, which computes only the steps that a test allows.
#ifndef TRIPTYCH_TESTS_SERVER_FAKE_CORE_H_
#define TRIPTYCH_TESTS_SERVER_FAKE_CORE_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/serving/engine.h"
#include "engine/text/tokenizer.h"
#include "server/core/server_core.h"
#include "tests/server/core/model_info.h"
#include "tests/support/fake_model.h"

namespace triptych::server {

// The body of a streamed completion of `tokens` tokens.
inline nlohmann::json Stream(int tokens) {
  return {
      {"prompt", "a"}, {"max_tokens", tokens}, {"stream", true}, {"logit_bias", {{"257", -1000}}}};
}

class FakeCore {
 public:
  static constexpr int64_t kPositions = 100'000;

  explicit FakeCore(int64_t max_message_bytes = TransportLimits().max_message_bytes) {
    ModelInfo model = SmallModelInfo();
    model.tokenizer = std::make_shared<HeldTokenizer>(*this, model.tokenizer);
    model.config.max_position_embeddings = kPositions;
    model.info.geometry.block_positions = 1000;
    model.info.blocks = kPositions / 1000;
    model.chat_template = std::make_shared<const ChatTemplate>(
        *BuiltInTemplate("plain"), *model.tokenizer, ChatTemplate::SpecialTexts());
    auto fake = std::make_unique<FakeModel>(
        FakeModel::Shape{.max_positions = kPositions, .blocks = 100, .block_positions = 1000});
    fake->before_step = [this](const StepInput&) {
      ++begun_steps_;
      steps_.acquire();
    };
    std::vector<ModelEntry> served;
    auto engine = std::make_unique<serving::Engine>(std::move(fake), model.tokenizer,
                                                    serving::EngineOptions{});
    served.push_back({std::move(model), std::move(engine)});
    core_ = std::make_unique<ServerCore>(std::move(served), AdmissionLimits{}, max_message_bytes);
  }
  ~FakeCore() {
    LetGo();
    core_.reset();
  }

  ServerCore& core() { return *core_; }
  void LetCompute(int steps) { steps_.release(steps); }
  int begun_steps() const { return begun_steps_; }
  // Texts wait for LetGo before they are tokenized.
  void HoldTexts() { holds_texts_ = true; }
  int held_texts() const { return held_texts_; }
  void LetEncode(int texts) { texts_.release(texts); }
  // From now on as many steps and texts as it likes.
  void LetGo() {
    steps_.release(std::numeric_limits<int>::max() / 4);
    texts_.release(std::numeric_limits<int>::max() / 4);
  }

 private:
  class HeldTokenizer final : public Tokenizer {
   public:
    HeldTokenizer(FakeCore& core, std::shared_ptr<const Tokenizer> tokenizer)
        : core_(core), tokenizer_(std::move(tokenizer)) {}
    std::vector<int32_t> Encode(std::span<const TextPart> parts) const override {
      if (core_.holds_texts_) {
        ++core_.held_texts_;
        core_.texts_.acquire();
      }
      return tokenizer_->Encode(parts);
    }
    std::string Decode(int32_t token) const override { return tokenizer_->Decode(token); }
    std::string_view kind() const override { return tokenizer_->kind(); }
    int32_t vocab_size() const override { return tokenizer_->vocab_size(); }
    std::optional<int32_t> begin_token() const override { return tokenizer_->begin_token(); }
    std::span<const int32_t> end_tokens() const override { return tokenizer_->end_tokens(); }

   private:
    FakeCore& core_;
    const std::shared_ptr<const Tokenizer> tokenizer_;
  };

  std::counting_semaphore<> steps_{0}, texts_{0};
  std::atomic<int> begun_steps_ = 0;
  std::atomic<bool> holds_texts_ = false;
  std::atomic<int> held_texts_ = 0;
  std::unique_ptr<ServerCore> core_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_FAKE_CORE_H_
