// Simulation on small models with experts. Their tokens and log-probabilities must have the bits of
// a cold run.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "tests/simulation/driver.h"
#include "tests/support/random_model.h"
#include "tests/support/serving.h"

namespace triptych::simulation {
namespace {

// The number of models' weights.
constexpr int64_t kWeights = 4;

AttentionKind KindOf(const ModelShape& shape, Random& random) {
  if (shape.expand_from) return AttentionKind::kMla;
  if (shape.windowed_layers > 0) return AttentionKind::kGqa;
  return random.Among<AttentionKind>(
      {AttentionKind::kMha, AttentionKind::kGqa, AttentionKind::kMla});
}

void AddExpertsModel(ModelShape& shape, Random& random) {
  const AttentionKind kind = KindOf(shape, random);
  ModelConfig config = SmallExpertsModel(kind);
  config.vocab_size = kVocabSize;
  config.max_position_embeddings = shape.max_positions;
  if (shape.windowed_layers > 0) {
    // A window of the whole context is none.
    shape.window = std::min(shape.window, shape.max_positions - 1);
    config.num_hidden_layers = shape.full_layers + shape.windowed_layers;
    config.sliding_window = shape.window;
    config.layer_types.assign(shape.full_layers, LayerType::kFull);
    config.layer_types.resize(config.num_hidden_layers, LayerType::kSliding);
  }
  // With this rank, expanding pays.
  if (kind == AttentionKind::kMla) config.kv_lora_rank.assign(config.num_hidden_layers, 40);
  const auto format = random.Among<WeightFormat>(
      {WeightFormat::kFloat32, WeightFormat::kBFloat16, WeightFormat::kInt8, WeightFormat::kInt4});
  BackendOptions options{.block_positions = shape.block_positions,
                         .cache_format = DefaultCacheFormat(format),
                         .expand_from = shape.expand_from.value_or(kNeverExpand)};
  options.kv_cache_bytes =
      MakeCacheGeometry(config, options.cache_format, options.block_positions).BlockBytes();
  shape.real = MakeServingModel(config, RandomWeights(config, random.Between(1, kWeights)), options,
                                format, /*threads=*/1);
  shape.real_name = std::string(Name(kind)) + " with experts in " + std::string(Name(format));
}

}  // namespace
}  // namespace triptych::simulation

int main(int argc, char** argv) {
  using namespace triptych::simulation;
  return Main(argc, argv, "small models with experts", AddExpertsModel);
}
