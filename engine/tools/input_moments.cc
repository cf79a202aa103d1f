#include "engine/tools/input_moments.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string_view>

#include "engine/decoder/decoder.h"
#include "engine/decoder/tensor_specs.h"

namespace triptych::tools {
namespace {

// Number of windows of the sums.
constexpr int64_t kCalibrationWindows = 64;

// Sums x x^T over the inputs of linear layers during its lifetime, on its thread, by the hooks of
// LibTorch's profilers. REQUIRES: no other instance on this thread.
class ObservedInputs {
 public:
  // `sums`: sums of x x^T, by the address of the weights that multiply x. Layers with the same x
  // share one sum.
  explicit ObservedInputs(std::map<const void*, at::Tensor>& sums) : sums_(sums) {
    current_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(Observe).needsInputs(true));
  }
  ~ObservedInputs() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  ObservedInputs(const ObservedInputs&) = delete;
  ObservedInputs& operator=(const ObservedInputs&) = delete;

 private:
  static std::unique_ptr<at::ObserverContext> Observe(const at::RecordFunction& function) {
    if (std::string_view(function.name()) != "aten::linear") return nullptr;
    const auto found = current_->sums_.find(function.inputs()[1].toTensor().data_ptr());
    if (found != current_->sums_.end()) {
      current_->Add(function.inputs()[0].toTensor(), found->second);
    }
    return nullptr;
  }

  void Add(const at::Tensor& x, at::Tensor& sum) {
    if (last_.is_same(x)) {
      sum = last_sum_;
      return;
    }
    const at::Tensor rows = x.reshape({-1, x.size(-1)}).to(at::kDouble);  // [tokens, inputs]
    if (!sum.defined()) sum = at::zeros({rows.size(1), rows.size(1)}, at::kDouble);
    sum.addmm_(rows.t(), rows);
    last_ = x;
    last_sum_ = sum;
  }

  static thread_local ObservedInputs* current_;
  std::map<const void*, at::Tensor>& sums_;
  at::Tensor last_;      // the last x; held so that its address is not reused
  at::Tensor last_sum_;  // the sum that it was added to
  at::CallbackHandle handle_;
};

thread_local ObservedInputs* ObservedInputs::current_ = nullptr;

}  // namespace

std::map<std::string, at::Tensor> InputMoments(const Checkpoint& model,
                                               const std::set<std::string>& names,
                                               const Corpus& corpus) {
  const at::NoGradGuard no_grad;
  const Decoder decoder(model.config, model.weights, ComputeType::kFloat32);
  std::map<const void*, at::Tensor> sums;
  for (const std::string& name : names) {
    sums.emplace(model.weights.at(name).data_ptr(), at::Tensor());
  }
  {
    const ObservedInputs observed(sums);
    std::mt19937_64 generator(1);
    for (int64_t done = 0; done < kCalibrationWindows; done += kCalibrationBatch) {
      decoder.Forward(
          corpus.Sample(kCalibrationBatch, CalibrationLength(model.config), generator).inputs);
    }
  }
  std::map<std::string, at::Tensor> moments;
  for (const std::string& name : names) {
    const at::Tensor& sum = sums.at(model.weights.at(name).data_ptr());
    if (sum.defined()) moments[name] = sum;
  }
  return moments;
}

std::vector<at::Tensor> InputCovariances(const Checkpoint& model, const Corpus& corpus) {
  const int64_t layers = model.config.num_hidden_layers;
  const auto keys_of = [](int64_t layer) { return AttentionPrefix(layer) + "k_proj.weight"; };
  std::set<std::string> names;
  for (int64_t layer = 0; layer < layers; ++layer) names.insert(keys_of(layer));
  const std::map<std::string, at::Tensor> sums = InputMoments(model, names, corpus);
  const auto tokens = static_cast<double>(kCalibrationWindows * CalibrationLength(model.config));
  std::vector<at::Tensor> covariances;
  for (int64_t layer = 0; layer < layers; ++layer) {
    covariances.push_back(sums.at(keys_of(layer)) / tokens);
  }
  return covariances;
}

}  // namespace triptych::tools
