#include "engine/tools/research/sweep.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/base/file.h"
#include "engine/base/quantities.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/calibration.h"
#include "engine/tools/convert.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/input_moments.h"
#include "engine/tools/latent_cut.h"
#include "engine/tools/train.h"

namespace triptych::tools {
namespace {

// Ranks, in sixteenths of the full rank, which is exact: those with the bytes of GQA for H a power
// of two, and fewer.
constexpr int64_t kRanks[] = {16, 8, 4, 3, 2, 1};
// Rows of latent and decoupled keys, in sixteenths of the model's own rows, which are exact.
constexpr int64_t kRotaryRows[] = {12, 8, 6, 4, 3};
// Number of adjacent frequencies that "folded" mixes as one.
constexpr int64_t kFold = 2;

constexpr int64_t kBatchSize = 4;       // windows per step of healing
constexpr double kLearningRate = 3e-4;  // its peak

constexpr char kColumns[] =
    "attention,method,groups,rank,rope_head_dim,elements_per_position,cache,bytes_per_position,"
    "loss,seed,half_healed_loss,healed_loss";
constexpr size_t kGroups = 2, kRank = 3, kRopeHeadDim = 4, kBytes = 7, kLoss = 8, kSeed = 9,
                 kHalfHealed = 10, kHealed = 11, kColumnCount = 12;

// One conversion of the model.
struct Point {
  std::string method;
  Checkpoint model;
};

// Adds MLA of keys without rotation.
void AddLatents(const Checkpoint& from, const std::vector<at::Tensor>& covariances,
                std::vector<Point>& points) {
  const std::vector<KeyValueSvd> svds = DecomposeLayers(from, covariances);
  int64_t last = 0;
  for (const int64_t sixteenths : kRanks) {
    const int64_t rank = std::max<int64_t>(1, FullRank(from.config) * sixteenths / 16);
    if (rank == last) continue;
    last = rank;
    const std::vector<int64_t> ranks(from.config.num_hidden_layers, rank);
    points.push_back({"activation", ToLatent(from, svds, ranks)});
  }
}

// Elements of the checkpoint's dtype with the bytes of the inverse norms in a row of MLA.
int64_t InverseNormElements(const ModelConfig& from) {
  if (!from.qk_norm) return 0;
  return CeilDiv(from.num_key_value_heads * kInverseNormBytes,
                 RowBytes(DefaultCacheFormat(from.torch_dtype), 1));
}

// Adds MLA of rotated keys by one method: for each row, the best width of decoupled keys.
void AddRotaryLatents(const Checkpoint& from, const std::string& method, int64_t fold,
                      const std::vector<at::Tensor>& covariances,
                      const std::vector<Window>& windows, std::vector<Point>& points) {
  struct Best {
    double loss;
    Checkpoint model;
  };
  std::map<int64_t, Best> best;  // by the elements of a row
  const MixedPairs pairs(from, fold, covariances);
  const int64_t norms = InverseNormElements(from.config);
  for (const int64_t width : DecoupledWidths(from.config)) {
    const DecoupledKeys decoupled = pairs.Strongest(width);
    const std::vector<KeyValueSvd> svds = DecomposeLayers(from, covariances, decoupled);
    for (const int64_t sixteenths : kRotaryRows) {
      const int64_t row = CacheRowElements(from.config, 0) * sixteenths / 16;
      const int64_t rank = row - width - norms;
      if (rank < 1 || rank > FullRank(from.config, width)) continue;
      Checkpoint model = ToLatent(
          from, svds, std::vector<int64_t>(from.config.num_hidden_layers, rank), decoupled);
      const double loss = MeanLoss(AsStored(model), windows);
      const auto found = best.find(row);
      if (found != best.end() && found->second.loss <= loss) continue;
      best.insert_or_assign(row, Best{loss, std::move(model)});
    }
  }
  for (auto& [row, of_row] : best) points.push_back({method, std::move(of_row.model)});
}

// All points, in descending order of cache bytes.
std::vector<Point> Conversions(const Checkpoint& from, const Corpus& corpus,
                               const std::string& source) {
  const ModelConfig& config = from.config;
  const bool rotary = config.position_embedding == PositionEmbedding::kRope;
  const std::vector<at::Tensor> covariances = InputCovariances(from, corpus);
  const std::vector<Window> windows = ChoosingWindows(corpus, config);
  std::vector<Point> points = {{"none", from}};
  for (int64_t groups = config.num_key_value_heads / 2; groups >= 1; --groups) {
    if (config.num_key_value_heads % groups != 0) continue;
    if (rotary || config.qk_norm) {  // no common basis
      points.push_back({"pool", Convert(from,
                                        {.attention = AttentionKind::kGqa,
                                         .groups = groups,
                                         .method = ConversionMethod::kPool},
                                        source)});
    } else {
      points.push_back({"activation", ByBetterBases(from, groups, covariances, windows).to});
    }
  }
  if (rotary) {
    AddRotaryLatents(from, "weight", 1, {}, windows, points);
    AddRotaryLatents(from, "activation", 1, covariances, windows, points);
    if (config.head_dim / 2 % kFold == 0) {
      AddRotaryLatents(from, "folded", kFold, covariances, windows, points);
    }
  } else {
    AddLatents(from, covariances, points);
  }
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return ElementsPerPosition(a.model.config) > ElementsPerPosition(b.model.config);
  });
  return points;
}

// A new directory, removed with its content by the destructor.
class WorkDirectory {
 public:
  explicit WorkDirectory(const std::filesystem::path& beside)
      : path_(MakeUniqueDirectory(beside)) {}
  ~WorkDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The model after `steps` of training, a tenth of them warm-up. These are the last weights: the
// best would be chosen by the reported loss. The source is the only teacher: with the text, which
// the source was trained on, the model would memorize it. Dropout costs more than it gains in few
// steps.
Checkpoint Healed(const Checkpoint& model, const SweepOptions& options, uint64_t seed,
                  int64_t steps) {
  const WorkDirectory work(options.csv);
  SaveCheckpoint(work.path() / "converted", model.config, model.weights, "",
                 checkpoint::TokenizerFiles(options.model));
  Train({.from = work.path() / "converted",
         .text = options.text,
         .output = work.path() / "healed",
         .held_out = options.held_out,
         .steps = steps,
         .batch_size = kBatchSize,
         .window = HeldOutLength(model.config),
         .learning_rate = kLearningRate,
         .warmup_steps = steps / 10,
         .dropout = 0,
         .seed = seed,
         .save_every = steps,
         .teachers = {options.model},
         .teacher_weight = 1});
  return LoadCheckpoint(work.path() / "healed", TensorFormat::kFloat32);
}

std::string Text(double loss) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", loss);
  return text;
}

std::vector<std::string> Split(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

// The cells of a row before its losses: "gqa,weight,2,,,512,bfloat16,1024".
std::string Describe(const Point& point, CacheFormat cache) {
  const ModelConfig& config = point.model.config;
  const bool mla = config.attention == AttentionKind::kMla;
  const int64_t elements = ElementsPerPosition(config);
  std::ostringstream text;
  text << Name(config.attention) << ',' << point.method << ','
       << (mla ? "" : std::to_string(config.num_key_value_heads)) << ','
       << (mla ? std::to_string(config.kv_lora_rank.front()) : "") << ','
       << (mla ? std::to_string(config.qk_rope_head_dim) : "") << ',' << elements << ','
       << Name(cache) << ',' << MakeCacheGeometry(config, cache, 1).BytesPerPosition();
  return text.str();
}

// The rows of a sweep and their file.
class Rows {
 public:
  // Reads the existing rows of this sweep, except a truncated last one. Throws std::runtime_error
  // if the file has anything else.
  Rows(std::filesystem::path file, const std::string& whose) : file_(std::move(file)) {
    const std::string head = "# " + whose + "\n" + kColumns + "\n";
    std::string text;
    if (Exists(file_)) text = ReadText(file_, kMaxBytes);
    if (!text.starts_with(head)) {
      if (!head.starts_with(text)) {
        throw std::runtime_error("--sweep " + file_.string() +
                                 ": holds something else; allowed: a new file, or the sweep of "
                                 "this model, text and --heal-steps");
      }
      text = head;
    }
    text.resize(text.rfind('\n') + 1);
    if (!Exists(file_) || std::filesystem::file_size(file_) != text.size()) {
      std::ofstream(file_, std::ios::binary | std::ios::trunc) << text;
    }
    std::istringstream lines(text.substr(head.size()));
    for (std::string line; std::getline(lines, line);) Keep(line);
  }

  // The row of this point and seed ("" without healing), or null.
  const std::vector<std::string>* Find(const std::string& point, const std::string& seed) const {
    const auto found = rows_.find(Key(point, seed));
    return found == rows_.end() ? nullptr : &found->second;
  }
  // The loss as converted from any row of the point, or "".
  std::string Loss(const std::string& point) const {
    const auto found = rows_.lower_bound(Key(point, ""));
    return found != rows_.end() && found->first.starts_with(Key(point, "")) ? found->second[kLoss]
                                                                            : "";
  }

  void Add(const std::string& line) {
    std::ofstream out(file_, std::ios::binary | std::ios::app);
    out << line << '\n' << std::flush;
    if (!out) throw std::runtime_error(file_.string() + ": cannot be written");
    Keep(line);
  }

 private:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 24;

  static std::string Key(const std::string& point, const std::string& seed) {
    return point + "," + seed;
  }
  void Keep(const std::string& line) {
    std::vector<std::string> cells = Split(line);
    if (cells.size() != kColumnCount) {
      throw std::runtime_error("--sweep " + file_.string() + ": a row has " +
                               std::to_string(cells.size()) +
                               " cells; allowed: " + std::to_string(kColumnCount));
    }
    std::string point = cells[0];
    for (size_t i = 1; i < kLoss; ++i) point += "," + cells[i];
    rows_.insert_or_assign(Key(point, cells[kSeed]), std::move(cells));
  }

  std::filesystem::path file_;
  std::map<std::string, std::vector<std::string>> rows_;  // by point and seed
};

// "1.5411 (1.5402 to 1.5420)": the mean over the seeds, and their range if there are several.
std::string Spread(const std::vector<double>& losses) {
  if (losses.empty()) return "";
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  std::string text = FormatDecimal(sum / static_cast<double>(losses.size()), 4);
  if (losses.size() == 1) return text;
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  return text + " (" + FormatDecimal(*least, 4) + " to " + FormatDecimal(*most, 4) + ")";
}

// A Markdown table.
void PrintTable(const std::vector<Point>& points, const std::vector<std::string>& seeds,
                const Rows& rows) {
  std::printf(
      "| bytes per position | cache | model | method | as converted | healed: mean (range) | "
      "change in the second half, first seed |\n|---:|---|---|---|---|---|---|\n");
  for (const Point& point : points) {
    for (const auto& [cache, format] : Names<CacheFormat>()) {
      const std::string name = Describe(point, format);
      std::vector<double> healed;
      std::string second_half;
      for (const std::string& seed : seeds) {
        const std::vector<std::string>* row = rows.Find(name, seed);
        if (row == nullptr || seed.empty()) continue;
        healed.push_back(std::stod((*row)[kHealed]));
        if (seed != seeds.front() || (*row)[kHalfHealed].empty()) continue;
        second_half = FormatDecimal(healed.back() - std::stod((*row)[kHalfHealed]), 4);
      }
      const std::vector<std::string> cells = Split(name);
      std::string size = cells[kRank].empty() ? "G = " : "r = ";
      size += cells[cells[kRank].empty() ? kGroups : kRank];
      if (point.model.config.qk_rope_head_dim > 0) size += ", d_R = " + cells[kRopeHeadDim];
      std::printf("| %s | %s | %s, %s | %s | %.4f | %s | %s |\n", cells[kBytes].c_str(),
                  cache.c_str(), cells[0].c_str(), size.c_str(), cells[1].c_str(),
                  std::stod(rows.Loss(name)), Spread(healed).c_str(), second_half.c_str());
    }
  }
}

// Adds the missing rows of one conversion with one seed ("" without healing): one for each format
// of the cache, all of the same healed models. `halved`: also measures half of the training.
void Measure(const Point& point, const SweepOptions& options, const std::string& seed, bool halved,
             const Corpus& corpus, Rows& rows) {
  const auto missing = [&](CacheFormat cache) {
    return rows.Find(Describe(point, cache), seed) == nullptr;
  };
  const auto& formats = Names<CacheFormat>();
  if (std::none_of(formats.begin(), formats.end(),
                   [&](const auto& format) { return missing(format.second); })) {
    return;
  }
  std::optional<Checkpoint> half, whole;
  if (!seed.empty()) {
    if (halved) half = Healed(point.model, options, std::stoull(seed), options.heal_steps / 2);
    whole = Healed(point.model, options, std::stoull(seed), options.heal_steps);
  }
  for (const auto& [unused, cache] : formats) {
    if (!missing(cache)) continue;
    const std::string name = Describe(point, cache);
    std::string loss = rows.Loss(name);
    if (loss.empty()) loss = Text(HeldOutLoss(AsStored(point.model), corpus, cache));
    const auto healed = [&, format = cache](const std::optional<Checkpoint>& model) {
      return model ? Text(HeldOutLoss(*model, corpus, format)) : std::string();
    };
    rows.Add(name + "," + loss + "," + seed + "," + healed(half) + "," + healed(whole));
  }
}

}  // namespace

void Sweep(const SweepOptions& options) {
  const Checkpoint from = LoadCheckpoint(options.model, TensorFormat::kFloat32);
  CheckConversion(from, {.attention = AttentionKind::kMla}, options.model.string());
  if (options.heal_steps < 0 || options.heal_steps == 1) {
    throw std::runtime_error("--heal-steps " + std::to_string(options.heal_steps) +
                             " has no half; allowed: 0, 2 and more");
  }
  const std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(options.model);
  checkpoint::CheckVocabulary(*tokenizer, from.config, options.model.string());
  const Corpus corpus(options.text, *tokenizer, options.held_out, from.config,
                      options.model.string());
  corpus.RequireHeldOut();
  corpus.RequireTraining(HeldOutLength(from.config));

  // The source's own loss identifies the model and the text independently of their names.
  const std::string own_loss = Text(HeldOutLoss(AsStored(from), corpus));
  Rows rows(options.csv, "healed for " + std::to_string(options.heal_steps) + " steps of " +
                             std::to_string(kBatchSize) + " windows of " +
                             std::to_string(HeldOutLength(from.config)) + " in " +
                             std::string(Name(DefaultTrainingType())) +
                             ", taught by the source alone: " + own_loss + " nats per token over " +
                             std::to_string(corpus.held_out_tokens()) + " of " +
                             std::to_string(corpus.held_out_tokens() + corpus.train_tokens()));
  const std::vector<Point> points = Conversions(from, corpus, options.model.string());
  std::vector<std::string> seeds;
  for (const uint64_t seed : options.heal_seeds) seeds.push_back(std::to_string(seed));
  if (options.heal_steps == 0) seeds = {""};
  for (const std::string& seed : seeds) {
    const bool halved = seed == seeds.front();
    for (const Point& point : points) Measure(point, options, seed, halved, corpus, rows);
  }
  PrintTable(points, seeds, rows);
}

}  // namespace triptych::tools
