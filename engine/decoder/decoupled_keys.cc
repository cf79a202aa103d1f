#include "engine/decoder/decoupled_keys.h"

#include <algorithm>
#include <cmath>
#include <tuple>

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

// Frequencies that are mixed together, and what mixes them in each layer.
struct Fold {
  double frequency;
  double turning;
  std::vector<at::Tensor> vectors;  // of each layer [slots, slots]: rows, the strongest first
  std::vector<at::Tensor> energy;   // of each layer [slots], descending
};

// The second moments of the key elements at pairs first to first + fold, summed over the two
// elements of a pair: [fold * G, fold * G].
at::Tensor Moments(const at::Tensor& keys, int64_t first, int64_t fold,
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

DecoupledKeys FindDecoupledKeys(const Checkpoint& from, int64_t width, int64_t fold,
                                const std::vector<at::Tensor>& covariances) {
  const ModelConfig& config = from.config;
  const int64_t layers = config.num_hidden_layers, groups = config.num_key_value_heads;
  const int64_t pairs = config.head_dim / 2, slots = fold * groups;
  const auto frequency = [&](int64_t pair) {
    const double factor = config.rope_factors.empty() ? 1 : config.rope_factors[pair];
    return std::pow(config.rope_theta, -static_cast<double>(pair) / static_cast<double>(pairs)) /
           factor;
  };
  std::vector<Fold> folds;
  for (int64_t first = 0; first < pairs; first += fold) {
    double logs = 0;
    for (int64_t pair = first; pair < first + fold; ++pair) logs += std::log(frequency(pair));
    const double mean = std::exp(logs / static_cast<double>(fold));
    folds.push_back({.frequency = mean,
                     .turning = Turning(mean, config.max_position_embeddings),
                     .vectors = {},
                     .energy = {}});
  }
  std::vector<double> positional(layers);  // of each layer, all that rotation does
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = AttentionPrefix(layer);
    const at::Tensor keys = AsPairs(from.weights.at(prefix + "k_proj.weight"), pairs);
    const auto bias = from.weights.find(prefix + "k_proj.bias");
    for (size_t i = 0; i < folds.size(); ++i) {
      const auto first = static_cast<int64_t>(i) * fold;
      at::Tensor moments =
          Moments(keys, first, fold, covariances.empty() ? at::Tensor() : covariances[layer]);
      if (bias != from.weights.end()) {
        moments = moments + Moments(AsPairs(bias->second, pairs), first, fold, {});
      }
      const auto [values, vectors] = at::linalg_eigh(moments);  // ascending, columns
      folds[i].vectors.push_back(vectors.flip(1).t().contiguous());
      folds[i].energy.push_back(values.flip(0).clamp_min(0).contiguous());
      positional[layer] += folds[i].turning * folds[i].energy.back().sum().item<double>();
    }
  }
  const auto share = [&](const Fold& one, int64_t slot, int64_t layer) {
    return positional[layer] > 0
               ? one.turning * one.energy[layer][slot].item<double>() / positional[layer]
               : 0;
  };

  // Of each fold the strongest slots come first in every layer, and so they do in the sum.
  std::vector<std::tuple<double, size_t, int64_t>> ranked;  // minus the share, the fold, the slot
  for (size_t i = 0; i < folds.size(); ++i) {
    for (int64_t slot = 0; slot < slots; ++slot) {
      double sum = 0;
      for (int64_t layer = 0; layer < layers; ++layer) sum += share(folds[i], slot, layer);
      ranked.emplace_back(-sum, i, slot);
    }
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(width / 2);
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<1>(a), std::get<2>(a)) < std::tie(std::get<1>(b), std::get<2>(b));
  });

  DecoupledKeys keys;
  keys.energy_kept.resize(layers);
  for (const auto& [minus_share, i, slot] : ranked) keys.frequencies.push_back(folds[i].frequency);
  for (int64_t layer = 0; layer < layers; ++layer) {
    at::Tensor mix = at::zeros({width / 2, pairs, groups}, at::kDouble);
    for (size_t kept = 0; kept < ranked.size(); ++kept) {
      const auto& [minus_share, i, slot] = ranked[kept];
      mix[static_cast<int64_t>(kept)]
          .narrow(0, static_cast<int64_t>(i) * fold, fold)
          .copy_(folds[i].vectors[layer][slot].view({fold, groups}));
      keys.energy_kept[layer] += share(folds[i], slot, layer);
    }
    keys.mixes.push_back(mix);
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
