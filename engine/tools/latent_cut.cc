#include "engine/tools/latent_cut.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/format_text.h"

namespace triptych::tools {
namespace {

constexpr std::chrono::seconds kBetweenLines{5};  // of progress
// The least sensitivity, as a share of the largest: no layer is given up.
constexpr double kLeastSensitivity = 0.01;
// Less energy than this is rounding.
constexpr double kEnergyRounding = 1e-8;
// The rounding of float32 products in a mean loss.
constexpr double kLossRounding = 1e-5;

// The fewest ranks in all whose loss on training text, as stored, is at most `most`. Found by
// bisection, which assumes that the loss falls with the ranks. Throws std::runtime_error if the
// full ranks lose more.
std::vector<int64_t> RanksForLoss(const Checkpoint& from, const std::vector<KeyValueSvd>& svds,
                                  const DecoupledKeys& decoupled,
                                  const std::vector<double>& weights,
                                  const Calibration& calibration, double most) {
  const auto loss_at = [&](int64_t total) {
    const double loss = calibration.ChoosingLoss(
        AsStored(ToLatent(from, svds, AllocateRanks(svds, weights, total), decoupled)));
    std::fprintf(stderr, "%lld elements per position: loss on training text %.4f, %s\n",
                 static_cast<long long>(total), loss, loss <= most ? "enough" : "too few");
    return loss;
  };
  int64_t too_few = static_cast<int64_t>(svds.size()) - 1;  // less than one in each layer
  int64_t enough = 0;
  for (const KeyValueSvd& svd : svds) enough += svd.full_rank();
  if (const double loss = loss_at(enough); loss > most + kLossRounding) {
    const std::string keys = decoupled.defined()
                                 ? FormatText(" with decoupled keys of width %lld",
                                              static_cast<long long>(decoupled.width()))
                                 : "";
    throw std::runtime_error(FormatText(
        "--max-loss-increase: a loss of at most %.6f is allowed; stored in %s%s, even the full "
        "ranks have %.6f",
        most, std::string(Name(from.config.torch_dtype)).c_str(), keys.c_str(), loss));
  }
  while (enough - too_few > 1) {
    const int64_t total = std::midpoint(too_few, enough);
    (loss_at(total) <= most ? enough : too_few) = total;
  }
  return AllocateRanks(svds, weights, enough);
}

// Elements of all layers' latents that --bytes-per-position leaves after decoupled keys of this
// width and inverse norms of keys. Throws std::runtime_error if that is less than one for each
// layer.
int64_t LatentElements(int64_t bytes_per_position, const ModelConfig& from, int64_t width) {
  const int64_t layers = from.num_hidden_layers;
  const int64_t norms = from.qk_norm ? layers * from.num_key_value_heads * kInverseNormBytes : 0;
  const int64_t left = std::max<int64_t>(bytes_per_position - norms, 0) /
                           RowBytes(DefaultCacheFormat(from.torch_dtype), 1) -
                       layers * width;
  if (left >= layers) return left;
  throw std::runtime_error(
      FormatText("--bytes-per-position %lld leaves no latent next to decoupled keys of width %lld",
                 static_cast<long long>(bytes_per_position), static_cast<long long>(width)));
}

// `latent_elements`: those of LatentElements, if --bytes-per-position is given. Throws
// std::runtime_error if the loss cannot be met.
std::vector<int64_t> ChooseRanks(const ConvertOptions& options, const Checkpoint& from,
                                 const LatentCut& cut, std::optional<int64_t> latent_elements,
                                 const std::optional<Calibration>& calibration) {
  const auto layers = static_cast<int64_t>(cut.svds.size());
  if (!latent_elements && !options.max_loss_increase) {
    return std::vector<int64_t>(
        layers, options.rank.value_or(FullRank(from.config, cut.decoupled.width())));
  }
  const std::vector<double> weights =
      calibration ? Sensitivities(from, cut.svds, calibration->corpus(), cut.decoupled)
                  : std::vector<double>(layers, 1.0);
  if (options.max_loss_increase) {
    return RanksForLoss(from, cut.svds, cut.decoupled, weights, *calibration,
                        calibration->ChoosingLossBefore() + *options.max_loss_increase);
  }
  return AllocateRanks(cut.svds, weights, *latent_elements);
}

// Parameters of the model that this cut makes.
int64_t Parameters(const Checkpoint& from, const LatentCut& cut) {
  ModelConfig config = ConvertedShape(from.config, {.rope_head_dim = cut.decoupled.width()});
  config.kv_lora_rank = cut.ranks;
  return ParameterCount(config);
}

// Elements of a layer's W_Q with queries of this width in each head.
int64_t QueryElements(const ModelConfig& config, int64_t width) {
  return config.num_attention_heads * width * config.hidden_size;
}

// Elements of a layer's other weights.
int64_t ElementsBesideQueries(ModelConfig config) {
  config.num_hidden_layers = 1;
  const int64_t with_layer = ParameterCount(config);
  config.num_hidden_layers = 0;
  return with_layer - ParameterCount(config) - QueryElements(config, config.head_dim);
}

}  // namespace

int64_t LatentCut::elements() const {
  return std::accumulate(ranks.begin(), ranks.end(), std::ssize(ranks) * decoupled.width());
}

std::vector<int64_t> DecoupledWidths(const ModelConfig& config) {
  const int64_t most = config.num_key_value_heads * config.head_dim;
  std::vector<int64_t> widths;
  for (int64_t width = std::max<int64_t>(2, config.head_dim / 4); width < most; width *= 2) {
    if (width % 2 == 0) widths.push_back(width);
  }
  widths.push_back(most);
  const int64_t others = ElementsBesideQueries(config);
  std::erase_if(widths, [&](int64_t width) {
    return width > 2 * config.head_dim && QueryElements(config, config.head_dim + width) > others;
  });
  return widths;
}

std::vector<double> Sensitivities(const Checkpoint& from, const std::vector<KeyValueSvd>& svds,
                                  const Corpus& corpus, const DecoupledKeys& decoupled) {
  const at::NoGradGuard no_grad;
  std::mt19937_64 generator(2);
  const at::Tensor inputs =
      corpus.Sample(kCalibrationBatch, CalibrationLength(from.config), generator).inputs;
  const auto logits = [&](const Checkpoint& model) {
    return Decoder(model.config, model.weights, ComputeType::kFloat32)
        .Forward(inputs)
        .flatten(0, 1);
  };
  std::vector<int64_t> full;
  for (const KeyValueSvd& svd : svds) full.push_back(svd.full_rank());
  // No rank recovers what decoupled keys have lost: compare with the model that has them.
  const at::Tensor exact =
      logits(decoupled.defined() ? ToLatent(from, svds, full, decoupled) : from);
  std::vector<double> sensitivities;
  using Clock = std::chrono::steady_clock;
  Clock::time_point next_line = Clock::now() + kBetweenLines;
  for (size_t layer = 0; layer < svds.size(); ++layer) {
    if (Clock::now() >= next_line) {
      std::fprintf(stderr, "measured the sensitivity of %zu of %zu layers\n", layer, svds.size());
      next_line = Clock::now() + kBetweenLines;
    }
    std::vector<int64_t> ranks = full;
    ranks[layer] = std::max<int64_t>(1, ranks[layer] / 4);
    const double lost = 1 - svds[layer].energy()[ranks[layer] - 1].item<double>();
    const double divergence =
        KlDivergence(exact, logits(ToLatent(from, svds, ranks, decoupled))).mean().item<double>();
    sensitivities.push_back(lost > kEnergyRounding ? divergence / lost : 0);
  }
  const double most = *std::max_element(sensitivities.begin(), sensitivities.end());
  const double least = most > 0 ? kLeastSensitivity * most : 1;
  for (double& sensitivity : sensitivities) sensitivity = std::max(sensitivity, least);
  return sensitivities;
}

std::vector<int64_t> AllocateRanks(const std::vector<KeyValueSvd>& svds,
                                   const std::vector<double>& weights, int64_t total) {
  std::vector<int64_t> ranks(svds.size(), 1);
  // The gain of one more rank in each layer, the largest first. A layer's gains fall with its rank,
  // so taking the largest at each turn is optimal.
  std::priority_queue<std::pair<double, size_t>> gains;
  const auto offer = [&](size_t layer) {
    const int64_t rank = ranks[layer];
    if (rank == svds[layer].full_rank()) return;
    const at::Tensor& energy = svds[layer].energy();
    gains.emplace(weights[layer] * (energy[rank] - energy[rank - 1]).item<double>(), layer);
  };
  for (size_t layer = 0; layer < svds.size(); ++layer) offer(layer);
  for (auto left = total - static_cast<int64_t>(svds.size()); left > 0 && !gains.empty(); --left) {
    const size_t layer = gains.top().second;
    gains.pop();
    ++ranks[layer];
    offer(layer);
  }
  return ranks;
}

bool ChoosesWidth(const ConvertOptions& options, const ModelConfig& from) {
  const bool budget = options.bytes_per_position || options.max_loss_increase;
  if (options.attention != AttentionKind::kMla || !budget || options.rope_head_dim ||
      from.attention == AttentionKind::kMla || from.RotatesInPart() ||
      from.position_embedding != PositionEmbedding::kRope) {
    return false;
  }
  if (!options.calibrate.empty()) return true;
  throw std::runtime_error(options.from.string() +
                           ": position_embedding is \"rope\": --bytes-per-position needs "
                           "--rope-head-dim, or --calibrate TEXT to choose it");
}

LatentCut CutLatents(const ConvertOptions& options, const Checkpoint& from, DecoupledKeys decoupled,
                     const std::vector<at::Tensor>& covariances,
                     const std::optional<Calibration>& calibration) {
  std::optional<int64_t> latent_elements;
  if (options.bytes_per_position) {
    latent_elements = LatentElements(*options.bytes_per_position, from.config, decoupled.width());
  }
  LatentCut cut;
  cut.decoupled = std::move(decoupled);
  cut.svds = DecomposeLayers(from, covariances, cut.decoupled);
  cut.ranks = ChooseRanks(options, from, cut, latent_elements, calibration);
  return cut;
}

LatentCut BestCut(const ConvertOptions& options, const Checkpoint& from,
                  const std::vector<at::Tensor>& covariances,
                  const std::optional<Calibration>& calibration) {
  const MixedPairs pairs(from, options.fold_frequencies, covariances);
  std::optional<LatentCut> best;
  double best_cost = 0;
  std::string last_error;
  for (const int64_t width : DecoupledWidths(from.config)) {
    const int64_t least = from.config.num_hidden_layers * (width + 1);  // elements
    if (best && options.max_loss_increase && static_cast<double>(least) >= best_cost) break;
    try {
      LatentCut cut = CutLatents(options, from, pairs.Strongest(width), covariances, calibration);
      const double cost = options.max_loss_increase
                              ? static_cast<double>(cut.elements())
                              : calibration->ChoosingLoss(
                                    AsStored(ToLatent(from, cut.svds, cut.ranks, cut.decoupled)));
      std::fprintf(
          stderr, "decoupled keys of width %lld: %lld elements per position, %lld parameters%s\n",
          static_cast<long long>(width), static_cast<long long>(cut.elements()),
          static_cast<long long>(Parameters(from, cut)),
          options.max_loss_increase ? ""
                                    : FormatText(", loss on training text %.4f", cost).c_str());
      if (!best || cost < best_cost) best = std::move(cut), best_cost = cost;
    } catch (const std::runtime_error& e) {
      last_error = e.what();
      if (options.bytes_per_position) break;  // wider keys leave less for latents
    }
  }
  if (!best) throw std::runtime_error(last_error);
  return std::move(*best);
}

}  // namespace triptych::tools
