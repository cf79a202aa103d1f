#include "engine/decoder/decoupled_keys.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/decoder/normed_keys.h"
#include "engine/decoder/tensor_specs.h"

namespace triptych {
namespace {

// rows: [heads * d, ...] -> [heads, d / 2, 2, columns] float64
at::Tensor AsPairs(const at::Tensor& rows, int64_t pairs) {
  const at::Tensor wide = rows.to(at::kDouble);
  return wide.reshape({-1, pairs, 2, wide.dim() == 1 ? 1 : wide.size(1)});
}

// The mean of 1 - cos(frequency * distance) over the distances of a context.
double Turning(double frequency, int64_t context) {
  const at::Tensor distances = at::arange(context, at::kDouble);
  return 1 - (distances * frequency).cos().mean().item<double>();
}

// The second moments of the key elements at pairs first to first + fold, summed over the two
// elements of a pair: [fold * G, fold * G].
at::Tensor KeyMoments(const at::Tensor& keys, int64_t first, int64_t fold,
                      const at::Tensor& covariance) {
  at::Tensor moments;
  for (int64_t element = 0; element < 2; ++element) {
    // [fold * G, D]
    const at::Tensor rows =
        keys.narrow(1, first, fold).select(2, element).transpose(0, 1).flatten(0, 1);
    const at::Tensor products =
        at::mm(covariance.defined() ? at::mm(rows, covariance) : rows, rows.t());
    moments = moments.defined() ? moments + products : products;
  }
  return moments;
}

}  // namespace

MixedPairs::MixedPairs(const Checkpoint& from, int64_t fold,
                       const std::vector<at::Tensor>& covariances)
    : pairs_(from.config.head_dim / 2), groups_(from.config.num_key_value_heads), fold_(fold) {
  const ModelConfig& config = from.config;
  const int64_t layers = config.num_hidden_layers;
  const auto frequency = [&](int64_t pair) {
    const double factor = config.rope_factors.empty() ? 1 : config.rope_factors[pair];
    return std::pow(config.rope_theta, -static_cast<double>(pair) / static_cast<double>(pairs_)) /
           factor;
  };
  for (int64_t first = 0; first < pairs_; first += fold) {
    double logs = 0;
    for (int64_t pair = first; pair < first + fold; ++pair) logs += std::log(frequency(pair));
    const double mean = std::exp(logs / static_cast<double>(fold));
    folds_.push_back({.frequency = mean, .turning = Turning(mean, config.max_position_embeddings)});
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = AttentionPrefix(layer);
    const at::Tensor keys = AsPairs(KeysToFactor(from, layer), pairs_);
    const auto bias = from.weights.find(prefix + "k_proj.bias");
    double all = 0;  // the effect of rotation on this layer's keys
    for (size_t i = 0; i < folds_.size(); ++i) {
      const auto first = static_cast<int64_t>(i) * fold;
      at::Tensor moments =
          KeyMoments(keys, first, fold, covariances.empty() ? at::Tensor() : covariances[layer]);
      if (bias != from.weights.end()) {
        moments = moments + KeyMoments(AsPairs(bias->second, pairs_), first, fold, {});
      }
      const auto [values, vectors] = at::linalg_eigh(moments);  // ascending, columns
      folds_[i].vectors.push_back(vectors.flip(1).t().contiguous());
      folds_[i].shares.push_back(values.flip(0).clamp_min(0) * folds_[i].turning);
      all += folds_[i].shares.back().sum().item<double>();
    }
    if (all == 0) continue;
    for (Fold& one : folds_) one.shares.back() /= all;
  }
  // The slots of a fold are strongest first in every layer, and so in the sum.
  for (size_t i = 0; i < folds_.size(); ++i) {
    for (int64_t slot = 0; slot < fold * groups_; ++slot) {
      double share = 0;
      for (const at::Tensor& shares : folds_[i].shares) share += shares[slot].item<double>();
      slots_.push_back({.share = share, .fold = i, .slot = slot});
    }
  }
  std::stable_sort(slots_.begin(), slots_.end(),
                   [](const Slot& a, const Slot& b) { return a.share > b.share; });
}

DecoupledKeys MixedPairs::Strongest(int64_t width) const {
  std::vector<Slot> kept(slots_.begin(), slots_.begin() + width / 2);
  std::sort(kept.begin(), kept.end(), [](const Slot& a, const Slot& b) {
    return std::tie(a.fold, a.slot) < std::tie(b.fold, b.slot);
  });
  DecoupledKeys keys;
  for (const Slot& slot : kept) keys.frequencies.push_back(folds_[slot.fold].frequency);
  for (size_t layer = 0; layer < folds_.front().vectors.size(); ++layer) {
    at::Tensor mix = at::zeros({width / 2, pairs_, groups_}, at::kDouble);
    double share = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      const Fold& fold = folds_[kept[i].fold];
      mix[static_cast<int64_t>(i)]
          .narrow(0, static_cast<int64_t>(kept[i].fold) * fold_, fold_)
          .copy_(fold.vectors[layer][kept[i].slot].view({fold_, groups_}));
      share += fold.shares[layer][kept[i].slot].item<double>();
    }
    keys.mixes.push_back(mix);
    keys.energy_kept.push_back(share);
  }
  return keys;
}

at::Tensor DecoupledRows(const at::Tensor& rows, const at::Tensor& mix) {
  const at::Tensor pairs = AsPairs(rows, mix.size(1));  // [G, d / 2, 2, columns]
  const at::Tensor made = at::einsum("kpg,gpec->kec", {mix, pairs}).flatten(0, 1);
  return rows.dim() == 1 ? made.squeeze(1) : made;
}

at::Tensor AsKeyRows(const at::Tensor& decoupled, const at::Tensor& mix) {
  const at::Tensor made = decoupled.to(at::kDouble).reshape({mix.size(0), 2, -1});
  const at::Tensor keys = at::einsum("kpg,kec->gpec", {mix, made}).flatten(0, 2);
  return decoupled.dim() == 1 ? keys.squeeze(1) : keys;
}

at::Tensor RestOfRows(const at::Tensor& rows, const at::Tensor& mix) {
  return rows.to(at::kDouble) - AsKeyRows(DecoupledRows(rows, mix), mix);
}

at::Tensor DecoupledQueryRows(const at::Tensor& rows, const at::Tensor& mix) {
  const int64_t groups = mix.size(2);
  // [H / G, G, d / 2, 2, columns]: head h reads group h mod G
  const at::Tensor pairs = AsPairs(rows, mix.size(1)).unflatten(0, {-1, groups});
  const at::Tensor made = at::einsum("kpg,sgpec->sgkec", {mix, pairs}).flatten(0, 3);
  return rows.dim() == 1 ? made.squeeze(1) : made;
}

}  // namespace triptych
