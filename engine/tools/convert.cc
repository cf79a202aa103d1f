#include "engine/tools/convert.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <utility>

#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/deepseek_form.h"
#include "engine/decoder/normed_keys.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/model/cached_layers.h"
#include "engine/tools/calibration.h"
#include "engine/tools/card.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/format_text.h"
#include "engine/tools/input_moments.h"
#include "engine/tools/latent_cut.h"
#include "engine/tools/output_directory.h"

namespace triptych::tools {
namespace {

// Throws std::runtime_error unless the options fit together. To be called before any computation.
void CheckOptions(const ConvertOptions& options) {
  const bool mla = options.attention == AttentionKind::kMla;
  const int budgets = (options.rank ? 1 : 0) + (options.bytes_per_position ? 1 : 0) +
                      (options.max_loss_increase ? 1 : 0);
  const auto refuse = [](const std::string& what) { throw std::runtime_error(what); };
  const bool gqa = options.attention == AttentionKind::kGqa;
  if (!mla && budgets > 0) {
    refuse("--rank, --bytes-per-position and --max-loss-increase go with --attention mla");
  }
  if (!mla && options.format == checkpoint::ConfigForm::kDeepseek) {
    refuse("--format deepseek goes with --attention mla");
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
    refuse("--groups goes with --attention gqa, which requires it");
  }
  if (budgets > 1) {
    refuse("only one of --rank, --bytes-per-position and --max-loss-increase may be given");
  }
  if (options.rank && *options.rank < 1) {
    refuse("--rank " + std::to_string(*options.rank) + " is out of range; allowed: 1 and more");
  }
  if (options.max_loss_increase && !std::isfinite(*options.max_loss_increase)) {
    refuse("--max-loss-increase is not a finite number");
  }
  if (options.calibrate.empty()) {
    if (options.method == ConversionMethod::kActivation) {
      refuse("--method activation needs --calibrate TEXT");
    }
    if (options.max_loss_increase) refuse("--max-loss-increase needs --calibrate TEXT");
  }
  CheckNewDirectory("--to", options.to);
}

// Throws std::runtime_error if --bytes-per-position is less than one element in each layer.
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

// Whether only the form of the model changes. Throws std::runtime_error if the options ask for
// more.
bool OnlyForm(const ConvertOptions& options, const ModelConfig& from) {
  if (options.format != checkpoint::ConfigForm::kDeepseek ||
      from.attention != AttentionKind::kMla) {
    return false;
  }
  if (options.rank || options.bytes_per_position || options.max_loss_increase || options.method ||
      options.rope_head_dim || options.fold_frequencies != 1 || !options.calibrate.empty()) {
    throw std::runtime_error(options.from.string() +
                             ": attention is \"mla\", of which only the form changes; allowed "
                             "with it: --format, --dtype");
  }
  return true;
}

// Throws LoadError if the result has no place in the format. To be called before the conversion.
void CheckFormat(const ConvertOptions& options, const ModelConfig& to,
                 const std::map<std::string, std::string>& tokenizer) {
  if (options.format != checkpoint::ConfigForm::kDeepseek) return;
  CheckDeepseekForm(to, options.from.string());
  for (const char* file : {"tokenizer.json", "tokenizer.model", "tokenizer.bin"}) {
    if (tokenizer.contains(file)) return;
  }
  throw LoadError(options.from.string() +
                  ": has no tokenizer, so that its tokens are bytes; allowed with --format "
                  "deepseek: tokenizer.json, tokenizer.model, tokenizer.bin");
}

// Markdown table, with aligned columns.
std::string LayerTable(const std::vector<LayerReport>& layers) {
  const bool rotated = layers.front().rotation_kept.has_value();
  std::string table = "| layer | energy kept | weight error | row before | row after |";
  std::string rule = "|------:|------------:|-------------:|-----------:|----------:|";
  if (rotated) table += " rotation kept |", rule += "--------------:|";
  table += "\n" + rule + "\n";
  for (size_t i = 0; i < layers.size(); ++i) {
    table += FormatText("| %5zu | %11.5f | %12.2e | %10lld | %9lld |", i, layers[i].energy_kept,
                        layers[i].weight_error, static_cast<long long>(layers[i].elements_before),
                        static_cast<long long>(layers[i].elements_after));
    if (rotated) table += FormatText(" %13.5f |", *layers[i].rotation_kept);
    table += "\n";
  }
  return table;
}

// [W_K; W_V] of every query head of a model of common bases, with the basis undone:
// [2 * H * d, D].
at::Tensor TurnedBack(const Checkpoint& to, const GroupBases& bases, int64_t layer) {
  const std::string prefix = AttentionPrefix(layer);
  const auto of_all = [&](const CommonBasis& basis, const char* name) {
    return RepeatHeads(basis.Expand(to.weights.at(prefix + name)), to.config.num_attention_heads,
                       to.config.head_dim);
  };
  return at::cat({of_all(bases.keys, "k_proj.weight"), of_all(bases.values, "v_proj.weight")});
}

std::string RotationText(const ConvertOptions& options, const DecoupledKeys& decoupled) {
  std::string text = FormatText(
      " Before that, the rotary pairs that rotation matters for most, of all key heads mixed by "
      "frequency, became decoupled keys of width %lld; the rest is no longer rotated.",
      static_cast<long long>(decoupled.width()));
  if (options.fold_frequencies > 1) {
    text += FormatText(" %lld adjacent frequencies were mixed as one.",
                       static_cast<long long>(options.fold_frequencies));
  }
  return text;
}

// Adds the weights that decoupled keys represent to the keys' part of [W_K; W_V] of every query
// head.
void AddDecoupledKeys(const Checkpoint& to, const at::Tensor& mix, int64_t layer,
                      at::Tensor& key_values) {
  const at::Tensor rows = to.weights.at(AttentionPrefix(layer) + "kv_a_proj_with_mqa.weight")
                              .narrow(0, to.config.kv_lora_rank[layer], to.config.qk_rope_head_dim);
  key_values.narrow(0, 0, key_values.size(0) / 2)
      .add_(RepeatHeads(AsKeyRows(rows, mix), to.config.num_attention_heads, to.config.head_dim));
}

// `energy_kept` may be empty: it then follows from the weights' error. `bases` is empty unless
// heads have a common basis.
std::vector<LayerReport> ReportLayers(const Checkpoint& from, const Checkpoint& to,
                                      const std::vector<double>& energy_kept,
                                      const std::vector<GroupBases>& bases,
                                      const DecoupledKeys& decoupled) {
  std::vector<LayerReport> layers;
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    at::Tensor made = bases.empty() ? FullKeyValue(to, layer) : TurnedBack(to, bases[layer], layer);
    if (decoupled.defined()) AddDecoupledKeys(to, decoupled.mixes[layer], layer, made);
    at::Tensor expected = FullKeyValue(from, layer);
    if (from.config.qk_norm && to.config.attention == AttentionKind::kMla) {
      expected.narrow(0, 0, expected.size(0) / 2)
          .copy_(RepeatHeads(KeysToFactor(from, layer), from.config.num_attention_heads,
                             from.config.head_dim));
    }
    const double error = RelativeError(made, expected);
    layers.push_back({.elements_before = CacheRowElements(from.config, layer),
                      .elements_after = CacheRowElements(to.config, layer),
                      // Averaging is a projection: what it keeps is orthogonal to what it loses.
                      .energy_kept = energy_kept.empty() ? 1 - error * error : energy_kept[layer],
                      .weight_error = error});
    if (decoupled.defined()) layers.back().rotation_kept = decoupled.energy_kept[layer];
  }
  return layers;
}

std::string CostText(const ModelConfig& from, const ModelConfig& to) {
  const CacheFormat format = DefaultCacheFormat(to.torch_dtype);
  const auto bytes = [&](const ModelConfig& config) {
    return BytesPerPosition(CachedLayersOf(config), format);
  };
  return FormatText("Cache per position: %lld to %lld elements (%lld to %lld bytes in %s).\n",
                    static_cast<long long>(ElementsPerPosition(from)),
                    static_cast<long long>(ElementsPerPosition(to)),
                    static_cast<long long>(bytes(from)), static_cast<long long>(bytes(to)),
                    std::string(Name(format)).c_str());
}

// A converted model, and what its card says of it.
struct Conversion {
  Checkpoint from;  // with its heads in the order in which they are converted
  Checkpoint to;    // as stored
  std::string method;
  std::vector<double> energy_kept = {};  // of each layer, if there are spectra
  std::vector<GroupBases> bases = {};    // of each layer, if heads have a common basis
  DecoupledKeys decoupled = {};          // of rotated keys
};

// The covariances of each layer's inputs, or none, and the words of a card for them.
struct Whitening {
  std::vector<at::Tensor> covariances = {};
  std::string text = ".";
};

Whitening FindWhitening(const Checkpoint& from, const Calibration& calibration) {
  Whitening whitening;
  whitening.covariances = InputCovariances(from, calibration.corpus());
  std::fprintf(stderr, "measured the inputs of all layers\n");
  whitening.text =
      ", whitened by each layer's inputs on the training part of `" + calibration.name() + "`.";
  return whitening;
}

Conversion ByLatents(const ConvertOptions& options, Checkpoint from, LatentCut cut,
                     const Whitening& whitening) {
  Conversion made;
  for (size_t i = 0; i < cut.svds.size(); ++i) {
    made.energy_kept.push_back(cut.svds[i].energy()[cut.ranks[i] - 1].item<double>());
  }
  made.to = AsStored(ToLatent(from, cut.svds, cut.ranks, cut.decoupled));
  made.method = "Factors: the singular value decomposition of [W_K; W_V]" + whitening.text;
  if (cut.decoupled.defined()) made.method += RotationText(options, cut.decoupled);
  made.decoupled = std::move(cut.decoupled);
  made.from = std::move(from);
  return made;
}

Conversion ByBases(int64_t groups, const Checkpoint& from, const Whitening& whitening,
                   const std::optional<Calibration>& calibration) {
  GroupedByBases grouped = ByBetterBases(
      from, groups, whitening.covariances,
      calibration ? ChoosingWindows(calibration->corpus(), from.config) : std::vector<Window>());
  Conversion made{.from = std::move(grouped.from),
                  .to = std::move(grouped.to),
                  .method = {},
                  .bases = std::move(grouped.bases)};
  for (const auto& [keys, values] : made.bases) {
    made.energy_kept.push_back((keys.energy_kept() + values.energy_kept()) / 2);
  }
  made.method =
      "A common basis for each group: the singular value decomposition of its stacked keys, "
      "and of its values" +
      whitening.text +
      (grouped.like_together ? " Heads that have the most in common share a group."
                             : " Heads share groups as they stand, which loses less.");
  return made;
}

// Repeated or averaged heads.
Conversion ByHeads(const ConvertOptions& options, const ConversionSpec& spec, Checkpoint from) {
  Conversion made;
  made.to = AsStored(Convert(from, spec, options.from.string()));
  made.method = options.attention == AttentionKind::kMha ? "Heads were repeated."
                : options.method
                    ? "Heads of equal residue were averaged."
                    : "Heads of equal residue were averaged: rotated keys have no common "
                      "basis.";
  made.from = std::move(from);
  return made;
}

Conversion MakeConversion(const ConvertOptions& options, const ConversionSpec& spec,
                          Checkpoint from, const std::optional<Calibration>& calibration) {
  const ConversionMethod method = MethodOf(spec, from.config, calibration.has_value());
  Whitening whitening;
  if (options.attention != AttentionKind::kMha && method == ConversionMethod::kActivation) {
    whitening = FindWhitening(from, *calibration);
  }
  const std::vector<at::Tensor>& covariances = whitening.covariances;
  if (options.attention == AttentionKind::kMla) {
    LatentCut cut = ChoosesWidth(options, from.config)
                        ? BestCut(options, from, covariances, calibration)
                        : CutLatents(options, from, FindDecoupledKeys(from, spec, covariances),
                                     covariances, calibration);
    return ByLatents(options, std::move(from), std::move(cut), whitening);
  }
  if (options.attention == AttentionKind::kGqa && method != ConversionMethod::kPool) {
    return ByBases(*options.groups, from, whitening, calibration);
  }
  return ByHeads(options, spec, std::move(from));
}

// The words of a card for `to` in the form of `written`; "" if that is the same.
std::string FormText(const ConvertOptions& options, const ModelConfig& to,
                     const ModelConfig& written) {
  if (options.format == checkpoint::ConfigForm::kTriptych) return "";
  std::string text = "Written as deepseek_v3";
  if (!to.kv_a_layernorm) {
    text += FormatText(
        ", which norms latents: each has %lld elements, of which %lld are constants, so that its "
        "norm changes nothing",
        static_cast<long long>(written.kv_lora_rank.front()),
        static_cast<long long>(kNormConstants));
  }
  return text + ".\n";
}

Card MakeCard(const ConvertOptions& options, const ModelConfig& written, std::string report) {
  return {.directory = options.to,
          .config = written,
          .held_out_loss = {},
          .facts = {},
          .command = options.command,
          .report = std::move(report),
          .source = options.from};
}

// `written`: `made.to` in its form. `loss_before`: the held-out loss of the source, if there is
// one.
Card MakeCard(const ConvertOptions& options, const Conversion& made, const Checkpoint& written,
              const std::optional<Calibration>& calibration, std::optional<double> loss_before) {
  const ModelConfig& from = made.from.config;
  const ModelConfig& to = made.to.config;
  Card card =
      MakeCard(options, written.config,
               KindText(from) + " to " + KindText(to) + ". " + made.method + "\n\n" +
                   LayerTable(ReportLayers(made.from, made.to, made.energy_kept, made.bases,
                                           made.decoupled)) +
                   "\n" + FormText(options, to, written.config) + CostText(from, written.config));
  if (calibration) card.corpus = &calibration->corpus();
  if (loss_before) {
    card.held_out_loss = HeldOutLoss(written, calibration->corpus());
    card.report += FormatText("Held-out loss on `%s`: %.4f to %.4f nats per token.\n",
                              calibration->name().c_str(), *loss_before, *card.held_out_loss);
  }
  return card;
}

// The model as it is written. `to`: as stored, in Triptych's form.
Checkpoint InForm(const ConvertOptions& options, const Checkpoint& to) {
  switch (options.format) {
    case checkpoint::ConfigForm::kTriptych:
      return to;
    case checkpoint::ConfigForm::kDeepseek:
      return AsStored(ToDeepseekForm(to));
  }
  return {};
}

void Write(const ConvertOptions& options, const Checkpoint& written, const Card& card,
           const std::map<std::string, std::string>& tokenizer) {
  SaveCheckpoint(options.to, written.config, written.weights, ToMarkdown(card), tokenizer,
                 options.format);
  std::printf("%s: %s", options.to.c_str(), card.report.c_str());
}

}  // namespace

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
  // Not every tokenizer can be written: fail before all weights are read.
  const std::map<std::string, std::string> tokenizer = checkpoint::TokenizerFiles(options.from);
  Checkpoint from = LoadCheckpoint(options.from, TensorFormat::kFloat32);
  if (options.dtype) from.config.torch_dtype = *options.dtype;
  if (OnlyForm(options, from.config)) {
    CheckFormat(options, from.config, tokenizer);
    const Checkpoint written = InForm(options, from);
    Write(options, written,
          MakeCard(options, written.config,
                   FormText(options, from.config, written.config) +
                       CostText(from.config, written.config)),
          tokenizer);
    return;
  }
  const ConversionSpec spec{.attention = options.attention,
                            .groups = options.groups.value_or(0),
                            .rank = options.rank.value_or(0),
                            .rope_head_dim = options.rope_head_dim.value_or(0),
                            .fold = options.fold_frequencies,
                            .method = options.method};
  ChoosesWidth(options, from.config);  // throws if that needs a text
  CheckConversion(from, spec, options.from.string());
  CheckFormat(options, ConvertedShape(from.config, spec), tokenizer);
  CheckBudget(options, from.config);

  std::optional<Calibration> calibration;
  std::optional<double> loss_before;
  if (!options.calibrate.empty()) {
    calibration.emplace(options.calibrate, options.held_out, from, options.from);
    if (calibration->corpus().held_out_tokens() > 0) {
      loss_before = calibration->HeldOutLossBefore();
      std::fprintf(stderr, "held-out loss of %s: %.4f\n", options.from.c_str(), *loss_before);
    }
  }

  Conversion made = MakeConversion(options, spec, std::move(from), calibration);
  ModelConfig& config = made.to.config;
  if (calibration) AddTrainingText(config.training_texts, calibration->corpus().identity());
  const Checkpoint written = InForm(options, made.to);
  Write(options, written, MakeCard(options, made, written, calibration, loss_before), tokenizer);
}

}  // namespace triptych::tools
