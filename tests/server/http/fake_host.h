// A host of a model without weights, which computes no more steps than a test lets it.
#ifndef TRIPTYCH_TESTS_SERVER_HTTP_FAKE_HOST_H_
#define TRIPTYCH_TESTS_SERVER_HTTP_FAKE_HOST_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <semaphore>
#include <utility>
#include <vector>

#include "engine/serving/engine.h"
#include "server/core/model_host.h"
#include "tests/server/core/served_model.h"
#include "tests/support/fake_model.h"

namespace triptych {

class FakeHost {
 public:
  static constexpr int64_t kPositions = 100'000;

  FakeHost() {
    ServedModel model = SmallServedModel();
    model.config.max_position_embeddings = kPositions;
    model.pool_positions = kPositions;
    model.chat_template = ChatTemplate::kPlain;
    auto fake = std::make_unique<FakeModel>(
        FakeModel::Shape{.max_positions = kPositions, .blocks = 100, .block_positions = 1000});
    fake->before_step = [this](const StepInput&) { steps_.acquire(); };
    std::vector<ServedEngine> served;
    auto engine = std::make_unique<Engine>(std::move(fake), model.tokenizer, EngineOptions{});
    served.push_back({std::move(model), std::move(engine)});
    host_ = std::make_unique<ModelHost>(std::move(served), AdmissionLimits{});
  }
  ~FakeHost() {
    LetGo();
    host_.reset();
  }

  ModelHost& host() { return *host_; }
  void LetCompute(int steps) { steps_.release(steps); }
  // From now on as many as it likes.
  void LetGo() { steps_.release(std::numeric_limits<int>::max() / 4); }

 private:
  std::counting_semaphore<> steps_{0};
  std::unique_ptr<ModelHost> host_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SERVER_HTTP_FAKE_HOST_H_
