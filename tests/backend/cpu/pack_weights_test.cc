#include "engine/backend/cpu/pack_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/model/tensor_names.h"
#include "tests/support/random_model.h"

namespace triptych::cpu::pack_weights_test {
namespace {

// Expects that each taken tensor is released before the next is taken. An expert may be taken while
// the one before it is held.
class WatchedSource final : public WeightSource {
 public:
  explicit WatchedSource(Weights weights) : held_(std::move(weights)) {}

  Weights Take(const std::string& prefix) override {
    const int64_t before = live_bytes_;
    Weights taken = held_.Take(prefix);
    int64_t of_expert = 0;
    for (const auto& [name, tensor] : taken) {
      if (IsOfExpert(name)) of_expert += static_cast<int64_t>(tensor.nbytes());
    }
    EXPECT_LE(before, of_expert) << "before " << prefix;
    for (auto& [name, tensor] : taken) tensor = Watched(tensor);
    if (LayerOf(prefix)) most_of_a_layer_ = std::max(most_of_a_layer_, live_bytes_.load());
    return taken;
  }

  // Tensors that were not taken.
  Weights Left() { return held_.Take(""); }
  int64_t live_bytes() const { return live_bytes_; }
  int64_t most_of_a_layer() const { return most_of_a_layer_; }

 private:
  at::Tensor Watched(const at::Tensor& tensor) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    live_bytes_ += bytes;
    return at::from_blob(
        tensor.data_ptr(), tensor.sizes(), [this, tensor, bytes](void*) { live_bytes_ -= bytes; },
        tensor.options());
  }

  WeightsInMemory held_;
  std::atomic<int64_t> live_bytes_ = 0;
  int64_t most_of_a_layer_ = 0;
};

TEST(PackWeightsTest, HoldsOnePartAtATime) {
  for (const NamedConfig& named : EveryOption()) {
    SCOPED_TRACE(named.name);
    const ModelConfig& config = named.config;
    WatchedSource source(Cast(RandomWeights(config, 5), at::kFloat));
    kernels::ThreadPool pool(2);
    std::vector<int64_t> told;
    const CpuWeights packed = PackWeights(config, source, WeightFormat::kInt8, {}, pool,
                                          [&](int64_t layers) { told.push_back(layers); });
    EXPECT_EQ(source.live_bytes(), 0);
    EXPECT_TRUE(source.Left().empty());
    EXPECT_EQ(std::ssize(packed.layers), config.num_hidden_layers);
    std::vector<int64_t> layers(config.num_hidden_layers);
    std::iota(layers.begin(), layers.end(), 1);
    EXPECT_EQ(told, layers);
    EXPECT_GE(UnpackedBytes(config, WeightFormat::kInt8, TensorFormat::kFloat32),
              2 * source.most_of_a_layer());
  }
}

// Token matrices are packed before all layers, and can use the layers' room.
TEST(UnpackedBytesTest, TokenMatricesCountBeyondTheLayers) {
  ModelConfig config = SmallModel(AttentionKind::kMha);
  config.vocab_size = 100;
  const int64_t of_layers = UnpackedBytes(config, WeightFormat::kFloat32, TensorFormat::kFloat32);
  EXPECT_EQ(UnpackedBytes(config, WeightFormat::kBFloat16, TensorFormat::kBFloat16), of_layers / 2);
  // The bytes depend on the read format, not the served one: conversions read float32.
  EXPECT_EQ(UnpackedBytes(config, WeightFormat::kBFloat16, TensorFormat::kFloat32), of_layers);
  const auto tokens = [&](int64_t vocabulary) {
    config.vocab_size = vocabulary;
    return UnpackedBytes(config, WeightFormat::kFloat32, TensorFormat::kFloat32);
  };
  EXPECT_EQ(tokens(300), of_layers);
  EXPECT_EQ(tokens(100'001) - tokens(100'000), 2 * 4 * config.hidden_size);
}

}  // namespace
}  // namespace triptych::cpu::pack_weights_test
