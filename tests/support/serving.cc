#include "tests/support/serving.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/tensors/tensor_model.h"
#include "engine/kv_cache/block_table.h"
#include "tests/support/random_model.h"
#include "tests/support/tokenizer.h"

namespace triptych {

std::unique_ptr<ModelBackend> MakeServingModel(const ModelConfig& config, const Weights& weights,
                                               const BackendOptions& options, WeightFormat format,
                                               int threads) {
  const auto context = std::make_shared<kernels::KernelContext>(threads);
  return std::make_unique<cpu::CpuModel>(
      config,
      cpu::PackWeights(config, Cast(weights, ToScalarType(TensorsFor(format))), format,
                       options.expand_from, context->pool),
      options, context);
}

std::unique_ptr<ModelBackend> MakeTensorModel(const ModelConfig& config, const Weights& weights,
                                              const BackendOptions& options, ComputeType compute) {
  return std::make_unique<TensorModel>(config, Cast(weights, ToScalarType(compute)), compute,
                                       options);
}

std::unique_ptr<ModelBackend> MakeServingModel(const ModelConfig& config, const Weights& weights,
                                               const BackendOptions& options, ComputeType compute,
                                               int threads) {
  if (compute != ComputeType::kFloat64 && weights.begin()->second.is_cpu()) {
    const bool narrow = compute == ComputeType::kBFloat16;
    return MakeServingModel(config, weights, options,
                            narrow ? WeightFormat::kBFloat16 : WeightFormat::kFloat32, threads);
  }
  return MakeTensorModel(config, weights, options, compute);
}

std::unique_ptr<serving::Engine> MakeEngine(const ModelConfig& config, const Weights& weights,
                                            const EngineSetup& setup, WeightFormat format,
                                            int threads) {
  return std::make_unique<serving::Engine>(
      MakeServingModel(config, weights, setup, format, threads), TestTokenizer(), setup,
      serving::EngineClock::now, std::make_shared<kernels::KernelContext>(threads));
}

std::unique_ptr<serving::Engine> MakeEngine(const ModelConfig& config, const Weights& weights,
                                            const EngineSetup& setup, ComputeType compute,
                                            int threads) {
  return std::make_unique<serving::Engine>(
      MakeServingModel(config, weights, setup, compute, threads), TestTokenizer(), setup,
      serving::EngineClock::now, std::make_shared<kernels::KernelContext>(threads));
}

StepRunner::StepRunner(const Served& served, int64_t sequences, int64_t prompt)
    : config_(served.config),
      compute_(served.compute),
      block_positions_(served.block_positions),
      prompt_(prompt),
      blocks_(sequences),
      lengths_(sequences) {
  const CacheGeometry geometry = MakeCacheGeometry(config_, served.cache_format, block_positions_);
  groups_ = geometry.Groups();
  const int64_t of_sequence =
      (config_.max_position_embeddings + block_positions_ - 1) / block_positions_ * groups_.count();
  const int64_t count = sequences * of_sequence + 2;
  BackendOptions options{.block_positions = block_positions_,
                         .cache_format = served.cache_format,
                         .expand_from = served.expand_from};
  options.kv_cache_bytes = count * geometry.BlockBytes();
  model_ = served.on_tensors ? MakeTensorModel(config_, served.weights, options, compute_)
           : served.weight_format
               ? MakeServingModel(config_, served.weights, options, *served.weight_format,
                                  served.threads)
               : MakeServingModel(config_, served.weights, options, compute_, served.threads);

  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(99));
  for (std::vector<int32_t>& blocks : blocks_) {
    blocks.assign(order.end() - of_sequence, order.end());
    order.resize(order.size() - of_sequence);
  }
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    auto* const tensors = dynamic_cast<TensorModel*>(model_.get());
    if (tensors != nullptr && compute_ == ComputeType::kFloat64) {
      tensors->cache(layer) = tensors->cache(layer).to(at::kDouble);
      for (at::Tensor& norms : tensors->inverse_norms()) norms = norms.to(at::kDouble);
    }
    if (tensors == nullptr) {  // makes scales and inverse norms NaN, too
      const kernels::PagedCache& cache = dynamic_cast<cpu::CpuModel&>(*model_).cache(layer);
      std::memset(cache.elements, -1, count * cache.block_bytes());
    } else {
      Cache(layer).fill_(std::nan(""));
    }
  }
}

at::Tensor StepRunner::Step(const std::vector<NewTokens>& all) {
  size_t tokens = 0;
  for (const NewTokens& tokens_of_one : all) tokens += tokens_of_one.ids.size();
  std::vector<int64_t> every(tokens);
  std::iota(every.begin(), every.end(), 0);
  return Step(all, every);
}

at::Tensor StepRunner::Step(const std::vector<NewTokens>& all,
                            const std::vector<int64_t>& logit_rows) {
  StepInput step;
  for (const NewTokens& tokens : all) {
    int64_t& length = lengths_[tokens.sequence];
    const int64_t count = std::ssize(tokens.ids);
    std::vector<int32_t>& blocks = blocks_[tokens.sequence];
    for (int64_t i = 0; i < groups_.Unseen(length, block_positions_); ++i) {
      const auto of_groups = blocks.begin() + i * groups_.count();
      std::fill(of_groups + groups_.full, of_groups + groups_.count(), BlockTable::kNone);
    }
    step.sequences.push_back({.blocks = blocks.data(),
                              .start = length,
                              .count = count,
                              .prompt = prompt_,
                              .scratch = tokens.scratch});
    step.ids.insert(step.ids.end(), tokens.ids.begin(), tokens.ids.end());
    length += count;
  }
  step.logit_rows = logit_rows;
  if (auto* const tensors = dynamic_cast<TensorModel*>(model_.get())) {
    return tensors->Logits(step).cpu();
  }
  const std::span<const float> logits = model_->Step(step);
  at::Tensor copy = at::empty({std::ssize(logit_rows), config_.vocab_size}, at::kFloat);
  std::copy(logits.begin(), logits.end(), copy.data_ptr<float>());
  return copy;
}

at::Tensor StepRunner::CacheRow(int64_t layer, int64_t sequence, int64_t position) {
  const int64_t group = model_->info().geometry.GroupOf(layer);
  const int32_t block = blocks_[sequence][position / block_positions_ * groups_.count() + group];
  return Cache(layer)[block].select(1, position % block_positions_);
}

at::Tensor StepRunner::Cache(int64_t layer) {
  if (auto* const tensors = dynamic_cast<TensorModel*>(model_.get())) return tensors->cache(layer);
  const kernels::PagedCache& cache = dynamic_cast<cpu::CpuModel&>(*model_).cache(layer);
  const at::ScalarType dtype = ToScalarType(cache.format);
  return at::from_blob(cache.elements,
                       {model_->info().blocks, cache.row_width, cache.block_positions},
                       {cache.block_bytes() / static_cast<int64_t>(at::elementSize(dtype)),
                        cache.block_positions, 1},
                       dtype);
}

}  // namespace triptych
