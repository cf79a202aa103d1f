#include "engine/tools/convert.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <queue>
#include <random>
#include <utility>

#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/card.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/input_moments.h"
#include "engine/tools/output_directory.h"

namespace triptych::tools {
namespace {

// Batches of windows that ranks are chosen by, the same for every choice.
constexpr int64_t kChoosingBatches = 16;
// Of those that say how far a long conversion is.
constexpr std::chrono::seconds kBetweenLines{5};
// What all sensitivities are at least, as a share of the largest: no layer is given up.
constexpr double kLeastSensitivity = 0.01;
// Less energy than this is rounding: a layer that loses it has lost nothing.
constexpr double kEnergyRounding = 1e-8;
// What float32 products of equal models may differ by in a mean loss.
constexpr double kLossRounding = 1e-5;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

// Throws unless the options go together, before anything is computed.
void CheckOptions(const ConvertOptions& options) {
  const bool mla = options.attention == AttentionKind::kMla;
  const int budgets = (options.rank ? 1 : 0) + (options.bytes_per_position ? 1 : 0) +
                      (options.max_loss_increase ? 1 : 0);
  const auto refuse = [](const std::string& what) { throw std::runtime_error(what); };
  const bool gqa = options.attention == AttentionKind::kGqa;
  if (!mla && budgets > 0) {
    refuse("--rank, --bytes-per-position and --max-loss-increase go with --attention mla");
  }
  if (!mla && !gqa && options.method) {
    refuse("--method goes with --attention gqa or mla: heads are repeated in one way only");
  }
  if (!mla && (options.rope_head_dim || options.fold_frequencies != 1)) {
    refuse("--rope-head-dim and --fold-frequencies go with --attention mla");
  }
  if (!gqa && options.method == ConversionMethod::kPool) {
    refuse("--method pool goes with --attention gqa; allowed with mla: activation, weight");
  }
  if (options.groups.has_value() != gqa) {
    refuse("--groups goes with --attention gqa, and that with --groups");
  }
  if (budgets > 1) {
    refuse("only one of --rank, --bytes-per-position and --max-loss-increase may be given");
  }
  if (options.rank && *options.rank < 1) {
    refuse("--rank " + std::to_string(*options.rank) + " is out of range; allowed: 1 and more");
  }
  if (options.max_loss_increase && !std::isfinite(*options.max_loss_increase)) {
    refuse("--max-loss-increase is not a number");
  }
  if (options.calibrate.empty()) {
    if (options.method == ConversionMethod::kActivation) {
      refuse("--method activation needs --calibrate TEXT");
    }
    if (options.max_loss_increase) refuse("--max-loss-increase needs --calibrate TEXT");
  }
  CheckNewDirectory("--to", options.to);
}

// Throws unless a position can cost so little: one element in each layer.
void CheckBudget(const ConvertOptions& options, const ModelConfig& config) {
  const int64_t element = RowBytes(DefaultCacheFormat(config.torch_dtype), 1);
  if (options.bytes_per_position.value_or(config.num_hidden_layers * element) >=
      config.num_hidden_layers * element) {
    return;
  }
  throw std::runtime_error("--bytes-per-position " + std::to_string(*options.bytes_per_position) +
                           " is less than one element of " + std::to_string(element) +
                           " bytes in each of " + std::to_string(config.num_hidden_layers) +
                           " layers");
}

// The text and what is measured on it.
class Calibration {
 public:
  Calibration(const ConvertOptions& options, const Checkpoint& from)
      : name_(options.calibrate.filename().string()),
        corpus_(options.calibrate, *FittingTokenizer(options, from), options.held_out, from.config,
                options.from.string()),
        decoder_(from.config, from.weights, ComputeType::kFloat32) {}

  const Corpus& corpus() const { return corpus_; }
  double HeldOutLossBefore() const { return HeldOutLoss(decoder_, corpus_); }
  // On windows of the training part: what a model is chosen by.
  double ChoosingLossBefore() const { return ChoosingLoss(decoder_); }
  double ChoosingLoss(const Checkpoint& model) const {
    return ChoosingLoss(Decoder(model.config, model.weights, ComputeType::kFloat32));
  }
  const std::string& name() const { return name_; }

 private:
  double ChoosingLoss(const Decoder& decoder) const {
    return MeanLoss(decoder, ChoosingWindows(corpus_, decoder.config()));
  }
  static std::shared_ptr<const Tokenizer> FittingTokenizer(const ConvertOptions& options,
                                                           const Checkpoint& from) {
    std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(options.from);
    checkpoint::CheckVocabulary(*tokenizer, from.config, options.from.string());
    return tokenizer;
  }

  std::string name_;
  Corpus corpus_;
  Decoder decoder_;
};

// The fewest ranks in all whose loss on training text, as stored, is within the budget, found by
// halving: as good as the loss falls with the ranks. Throws std::runtime_error if not even the full
// ranks' is.
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
    const std::string keys = decoupled.defined() ? Format(" with decoupled keys of width %lld",
                                                          static_cast<long long>(decoupled.width()))
                                                 : "";
    throw std::runtime_error(Format(
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

// What a latent model is cut from, and where.
struct LatentCut {
  DecoupledKeys decoupled;
  std::vector<KeyValueSvd> svds;
  std::vector<int64_t> ranks;

  int64_t elements() const {  // of a position
    return std::accumulate(ranks.begin(), ranks.end(), std::ssize(ranks) * decoupled.width());
  }
};

// The elements of all layers' latents that --bytes-per-position leaves beside decoupled keys of
// this width. Throws std::runtime_error if that is not one for each.
int64_t LatentElements(int64_t bytes_per_position, const ModelConfig& from, int64_t width) {
  const int64_t layers = from.num_hidden_layers;
  const int64_t left =
      bytes_per_position / RowBytes(DefaultCacheFormat(from.torch_dtype), 1) - layers * width;
  if (left >= layers) return left;
  throw std::runtime_error(
      Format("--bytes-per-position %lld leaves no latent beside decoupled keys of width %lld",
             static_cast<long long>(bytes_per_position), static_cast<long long>(width)));
}

// `latent_elements`: of LatentElements, with --bytes-per-position. Throws std::runtime_error if the
// loss cannot be met.
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

// Throws std::runtime_error if the budget cannot be met.
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

// Whether the width of decoupled keys is left to the conversion, which needs a text for that and a
// budget. Throws std::runtime_error if there is a budget and no text.
bool ChoosesWidth(const ConvertOptions& options, const ModelConfig& from) {
  const bool budget = options.bytes_per_position || options.max_loss_increase;
  if (options.attention != AttentionKind::kMla || !budget || options.rope_head_dim ||
      from.attention == AttentionKind::kMla || from.qk_norm ||
      from.position_embedding != PositionEmbedding::kRope) {
    return false;
  }
  if (!options.calibrate.empty()) return true;
  throw std::runtime_error(options.from.string() +
                           ": position_embedding is \"rope\": --bytes-per-position needs "
                           "--rope-head-dim, or --calibrate TEXT to choose it by");
}

// The parameters of a model that is cut there.
int64_t Parameters(const Checkpoint& from, const LatentCut& cut) {
  ModelConfig config = ConvertedShape(from.config, {.rope_head_dim = cut.decoupled.width()});
  config.kv_lora_rank = cut.ranks;
  return ParameterCount(config);
}

// The best of several widths: the fewest elements for a loss, the least loss for a budget of bytes.
LatentCut BestCut(const ConvertOptions& options, const Checkpoint& from,
                  const std::vector<at::Tensor>& covariances,
                  const std::optional<Calibration>& calibration) {
  const MixedPairs pairs(from, options.fold_frequencies, covariances);
  std::optional<LatentCut> best;
  double best_cost = 0;
  std::string why_not;  // of the last
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
          options.max_loss_increase ? "" : Format(", loss on training text %.4f", cost).c_str());
      if (!best || cost < best_cost) best = std::move(cut), best_cost = cost;
    } catch (const std::runtime_error& e) {
      why_not = e.what();
      if (options.bytes_per_position) break;  // wider ones leave less
    }
  }
  if (!best) throw std::runtime_error(why_not);
  return std::move(*best);
}

// As Markdown, aligned to be read as it is.
std::string LayerTable(const std::vector<LayerReport>& layers) {
  const bool rotated = layers.front().rotation_kept.has_value();
  std::string table = "| layer | energy kept | weight error | row before | row after |";
  std::string rule = "|------:|------------:|-------------:|-----------:|----------:|";
  if (rotated) table += " rotation kept |", rule += "--------------:|";
  table += "\n" + rule + "\n";
  for (size_t i = 0; i < layers.size(); ++i) {
    table += Format("| %5zu | %11.5f | %12.2e | %10lld | %9lld |", i, layers[i].energy_kept,
                    layers[i].weight_error, static_cast<long long>(layers[i].elements_before),
                    static_cast<long long>(layers[i].elements_after));
    if (rotated) table += Format(" %13.5f |", *layers[i].rotation_kept);
    table += "\n";
  }
  return table;
}

// [W_K; W_V] of every query head of a model of common bases, each turned back: [2 * H * d, D].
at::Tensor TurnedBack(const Checkpoint& to, const GroupBases& bases, int64_t layer) {
  const std::string prefix = AttentionPrefix(layer);
  const auto of_all = [&](const CommonBasis& basis, const char* name) {
    return RepeatHeads(basis.Expand(to.weights.at(prefix + name)), to.config.num_attention_heads,
                       to.config.head_dim);
  };
  return at::cat({of_all(bases.keys, "k_proj.weight"), of_all(bases.values, "v_proj.weight")});
}

std::string RotationText(const ConvertOptions& options, const DecoupledKeys& decoupled) {
  std::string text = Format(
      " Before that, the rotary pairs that rotation matters for most, of all key heads mixed by "
      "frequency, became decoupled keys of width %lld; the rest is not rotated any more.",
      static_cast<long long>(decoupled.width()));
  if (options.fold_frequencies > 1) {
    text += Format(" %lld adjacent frequencies were mixed as if they were one.",
                   static_cast<long long>(options.fold_frequencies));
  }
  return text;
}

// Adds what decoupled keys stand for to the keys' part of [W_K; W_V] of every query head.
void AddDecoupledKeys(const Checkpoint& to, const at::Tensor& mix, int64_t layer,
                      at::Tensor& key_values) {
  const at::Tensor rows = to.weights.at(AttentionPrefix(layer) + "kv_a_proj_with_mqa.weight")
                              .narrow(0, to.config.kv_lora_rank[layer], to.config.qk_rope_head_dim);
  key_values.narrow(0, 0, key_values.size(0) / 2)
      .add_(RepeatHeads(AsKeyRows(rows, mix), to.config.num_attention_heads, to.config.head_dim));
}

// `energy_kept` may be empty: what heads keep is then found from what they lose. `bases` is empty
// unless heads have a common one.
std::vector<LayerReport> ReportLayers(const Checkpoint& from, const Checkpoint& to,
                                      const std::vector<double>& energy_kept,
                                      const std::vector<GroupBases>& bases,
                                      const DecoupledKeys& decoupled) {
  std::vector<LayerReport> layers;
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    at::Tensor made = bases.empty() ? FullKeyValue(to, layer) : TurnedBack(to, bases[layer], layer);
    if (decoupled.defined()) AddDecoupledKeys(to, decoupled.mixes[layer], layer, made);
    const double error = RelativeError(made, FullKeyValue(from, layer));
    layers.push_back({.elements_before = CacheRowElements(from.config, layer),
                      .elements_after = CacheRowElements(to.config, layer),
                      // Averaging is a projection: what it keeps and loses are at right angles.
                      .energy_kept = energy_kept.empty() ? 1 - error * error : energy_kept[layer],
                      .weight_error = error});
    if (decoupled.defined()) layers.back().rotation_kept = decoupled.energy_kept[layer];
  }
  return layers;
}

std::string CostText(const ModelConfig& from, const ModelConfig& to) {
  const CacheFormat format = DefaultCacheFormat(to.torch_dtype);
  const int64_t before = ElementsPerPosition(from), after = ElementsPerPosition(to);
  return Format("Cache per position: %lld to %lld elements (%lld to %lld bytes in %s).\n",
                static_cast<long long>(before), static_cast<long long>(after),
                static_cast<long long>(RowBytes(format, before)),
                static_cast<long long>(RowBytes(format, after)), std::string(Name(format)).c_str());
}

// Of a layer's W_Q where each head's queries are of this width.
int64_t QueryElements(const ModelConfig& config, int64_t width) {
  return config.num_attention_heads * width * config.hidden_size;
}

// Of all else in a layer.
int64_t ElementsBesideQueries(ModelConfig config) {
  config.num_hidden_layers = 1;
  const int64_t with_layer = ParameterCount(config);
  config.num_hidden_layers = 0;
  return with_layer - ParameterCount(config) - QueryElements(config, config.head_dim);
}

}  // namespace

std::vector<Window> ChoosingWindows(const Corpus& corpus, const ModelConfig& config) {
  std::mt19937_64 generator(3);
  std::vector<Window> windows;
  for (int64_t i = 0; i < kChoosingBatches; ++i) {
    windows.push_back(corpus.Sample(kCalibrationBatch, CalibrationLength(config), generator));
  }
  return windows;
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
  // What decoupled keys have lost is no layer's rank's to find again.
  const at::Tensor exact =
      logits(decoupled.defined() ? ToLatent(from, svds, full, decoupled) : from);
  std::vector<double> sensitivities;
  using Clock = std::chrono::steady_clock;
  Clock::time_point next_line = Clock::now() + kBetweenLines;
  for (size_t layer = 0; layer < svds.size(); ++layer) {
    if (Clock::now() >= next_line) {
      std::fprintf(stderr, "what ranks are worth is known of %zu of %zu layers\n", layer,
                   svds.size());
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
  // What one more rank is worth in each layer, the most first. It is worth ever less, so that
  // taking the most at each turn is the best in all.
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

GroupedByBases ByBetterBases(const Checkpoint& from, int64_t groups,
                             const std::vector<at::Tensor>& covariances,
                             const std::vector<Window>& windows) {
  const auto by_bases = [&](bool like_together, Checkpoint source) {
    std::vector<GroupBases> bases = FindGroupBases(source, groups, covariances);
    Checkpoint to = AsStored(ToGroups(source, bases));
    return GroupedByBases{like_together, std::move(source), std::move(bases), std::move(to)};
  };
  GroupedByBases like = by_bases(true, WithLikeHeadsTogether(from, groups, covariances));
  if (windows.empty()) return like;
  GroupedByBases as_they_stand = by_bases(false, from);
  const bool better = MeanLoss(as_they_stand.to, windows) < MeanLoss(like.to, windows);
  return better ? std::move(as_they_stand) : std::move(like);
}

void ConvertModel(const ConvertOptions& options) {
  CheckOptions(options);
  // Before all weights are read: not every tokenizer can be written.
  const std::map<std::string, std::string> tokenizer = checkpoint::TokenizerFiles(options.from);
  Checkpoint from = LoadCheckpoint(options.from, TensorFormat::kFloat32);
  const ConversionSpec conversion{.attention = options.attention,
                                  .groups = options.groups.value_or(0),
                                  .rank = options.rank.value_or(0),
                                  .rope_head_dim = options.rope_head_dim.value_or(0),
                                  .fold = options.fold_frequencies,
                                  .method = options.method};
  const bool chooses_width = ChoosesWidth(options, from.config);
  CheckConversion(from, conversion, options.from.string());
  if (options.dtype) from.config.torch_dtype = *options.dtype;
  CheckBudget(options, from.config);

  std::optional<Calibration> calibration;
  std::optional<double> loss_before;
  if (!options.calibrate.empty()) {
    calibration.emplace(options, from);
    if (calibration->corpus().held_out_tokens() > 0) {
      loss_before = calibration->HeldOutLossBefore();
      std::fprintf(stderr, "held-out loss of %s: %.4f\n", options.from.c_str(), *loss_before);
    }
  }

  Checkpoint to;
  std::string method;
  std::vector<double> energy_kept;  // of each layer, where there are spectra
  std::vector<GroupBases> bases;    // of each layer, where heads have a common one
  DecoupledKeys decoupled;          // of rotated keys
  const ConversionMethod chosen = MethodOf(conversion, from.config, calibration.has_value());
  std::vector<at::Tensor> covariances;
  std::string whitened = ".";
  if (options.attention != AttentionKind::kMha && chosen == ConversionMethod::kActivation) {
    covariances = InputCovariances(from, calibration->corpus());
    std::fprintf(stderr, "what its layers read is known\n");
    whitened =
        ", whitened by each layer's inputs on the training part of `" + calibration->name() + "`.";
  }
  if (options.attention == AttentionKind::kMla) {
    LatentCut cut =
        chooses_width ? BestCut(options, from, covariances, calibration)
                      : CutLatents(options, from, FindDecoupledKeys(from, conversion, covariances),
                                   covariances, calibration);
    for (size_t i = 0; i < cut.svds.size(); ++i) {
      energy_kept.push_back(cut.svds[i].energy()[cut.ranks[i] - 1].item<double>());
    }
    to = AsStored(ToLatent(from, cut.svds, cut.ranks, cut.decoupled));
    method = "Factors: the singular value decomposition of [W_K; W_V]" + whitened;
    if (cut.decoupled.defined()) method += RotationText(options, cut.decoupled);
    decoupled = std::move(cut.decoupled);
  } else if (options.attention == AttentionKind::kGqa && chosen != ConversionMethod::kPool) {
    GroupedByBases grouped = ByBetterBases(
        from, *options.groups, covariances,
        calibration ? ChoosingWindows(calibration->corpus(), from.config) : std::vector<Window>());
    from = std::move(grouped.from);
    bases = std::move(grouped.bases);
    to = std::move(grouped.to);
    for (const auto& [keys, values] : bases) {
      energy_kept.push_back((keys.energy_kept() + values.energy_kept()) / 2);
    }
    method =
        "A common basis for each group: the singular value decomposition of its stacked keys, "
        "and of its values" +
        whitened +
        (grouped.like_together ? " Heads that have the most in common share a group."
                               : " Heads share groups as they stand, which loses less.");
  } else {
    to = AsStored(Convert(from, conversion, options.from.string()));
    method = options.attention == AttentionKind::kMha ? "Heads were repeated."
             : options.method                         ? "Heads of equal residue were averaged."
                              : "Heads of equal residue were averaged: rotated keys have no common "
                                "basis.";
  }

  if (calibration) AddTrainingText(to.config.training_texts, calibration->corpus().identity());
  Card card{.directory = options.to,
            .config = to.config,
            .corpus = calibration ? &calibration->corpus() : nullptr,
            .held_out_loss = {},
            .facts = {},
            .command = options.command,
            .report = KindText(from.config) + " to " + KindText(to.config) + ". " + method +
                      "\n\n" + LayerTable(ReportLayers(from, to, energy_kept, bases, decoupled)) +
                      "\n" + CostText(from.config, to.config),
            .source = options.from};
  if (loss_before) {
    card.held_out_loss = HeldOutLoss(to, calibration->corpus());
    card.report += Format("Held-out loss on `%s`: %.4f to %.4f nats per token.\n",
                          calibration->name().c_str(), *loss_before, *card.held_out_loss);
  }
  SaveCheckpoint(options.to, to.config, to.weights, ToMarkdown(card), tokenizer);
  std::printf("%s: %s", options.to.c_str(), card.report.c_str());
}

}  // namespace triptych::tools
