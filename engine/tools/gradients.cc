#include "engine/tools/gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/decoder/compute_threads.h"

namespace triptych::tools {
namespace {

Weights Handles(const std::vector<Parameter>& parameters) {
  Weights weights;
  for (const Parameter& p : parameters) {
    weights.emplace(p.name, p.value.detach().requires_grad_());
  }
  return weights;
}

// logits: [tokens, vocab]   targets: [tokens] of ids, or [tokens, vocab] of probabilities
at::Tensor SummedLoss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
}

// The mean of the decoders' distributions of the next token.
//   ids: [batch, length]; returns [batch * length, vocab]
at::Tensor MeanDistribution(const std::vector<Decoder>& decoders, const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  at::Tensor mean;
  for (const Decoder& decoder : decoders) {
    const at::Tensor expected = at::softmax(decoder.Forward(ids).flatten(0, 1), -1);
    mean = mean.defined() ? mean.add_(expected) : expected;
  }
  return mean.div_(static_cast<double>(decoders.size()));
}

}  // namespace

BatchGradients::Worker::Worker(const ModelConfig& config, const std::vector<Parameter>& parameters,
                               ComputeType compute)
    : weights_(Handles(parameters)), decoder_(config, weights_, compute) {}

double BatchGradients::Worker::Accumulate(const Window& window, int64_t tokens,
                                          const Teachers& teachers, Dropout& dropout) {
  const int64_t rows = std::max<int64_t>(1, kTokensAtOnce / window.inputs.size(1));
  const std::vector<at::Tensor> inputs = window.inputs.split(rows);
  const std::vector<at::Tensor> targets = window.targets.split(rows);
  double sum = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor logits = decoder_.Forward(inputs[i], &dropout).flatten(0, 1);
    at::Tensor loss = SummedLoss(logits, targets[i].flatten());
    if (!teachers.decoders.empty()) {
      const at::Tensor expected = MeanDistribution(teachers.decoders, inputs[i]);
      loss = (1 - teachers.weight) * loss + teachers.weight * SummedLoss(logits, expected);
    }
    loss = loss / static_cast<double>(tokens);
    loss.backward();
    sum += loss.item<double>();
  }
  return sum;
}

void BatchGradients::Worker::Collect(std::vector<Parameter>& parameters) {
  for (Parameter& p : parameters) {
    at::Tensor& gradient = weights_.at(p.name).mutable_grad();
    // Absent for an expert without tokens, and for a router's correction bias, which only chooses.
    if (!gradient.defined()) gradient = at::zeros_like(p.value);
    p.gradient = p.gradient.defined() ? p.gradient + gradient : gradient;
    gradient = at::Tensor();
  }
}

BatchGradients::BatchGradients(const ModelConfig& config, const std::vector<Parameter>& parameters,
                               ComputeType compute, Teachers teachers, int64_t parts)
    : teachers_(std::move(teachers)) {
  for (int64_t i = 0; i < parts; ++i) workers_.emplace_back(config, parameters, compute);
}

double BatchGradients::Compute(const Window& window, double dropout, std::mt19937_64& generator,
                               std::vector<Parameter>& parameters) {
  const auto parts = static_cast<int64_t>(workers_.size());
  const std::vector<at::Tensor> inputs = window.inputs.chunk(parts);
  const std::vector<at::Tensor> targets = window.targets.chunk(parts);
  std::vector<Dropout> dropped;
  for (size_t i = 0; i < inputs.size(); ++i) dropped.emplace_back(dropout, generator());
  std::vector<double> losses(inputs.size());
  RunOnComputeThreads(std::ssize(inputs), [&](int64_t i) {
    losses[i] = workers_[i].Accumulate({inputs[i], targets[i]}, window.inputs.numel(), teachers_,
                                       dropped[i]);
  });
  for (Parameter& p : parameters) p.gradient = at::Tensor();
  for (size_t i = 0; i < inputs.size(); ++i) workers_[i].Collect(parameters);
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

}  // namespace triptych::tools
