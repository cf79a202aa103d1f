#include "engine/tools/sweep.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/checkpoint/load_tokenizer.h"
#include "engine/decoder/conversion.h"
#include "engine/tools/convert.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/train.h"

namespace triptych {
namespace {

// Ranks, in sixteenths of the full one, at which nothing is lost.
constexpr int64_t kLadder[] = {16, 12, 8, 6, 4, 3, 2, 1};

struct Point {
  std::string method;
  Checkpoint model;
};

std::vector<Point> Conversions(const Checkpoint& from, const Corpus& corpus,
                               const std::string& source) {
  const ModelConfig& config = from.config;
  std::vector<Point> points = {{"none", from}};
  for (int64_t groups = config.num_attention_heads / 2; groups >= 1; --groups) {
    if (config.num_attention_heads % groups != 0) continue;
    points.push_back(
        {"pool", Convert(from, {.attention = AttentionKind::kGqa, .groups = groups}, source)});
  }
  CheckConversion(from, {.attention = AttentionKind::kMla}, source);
  const Decoder decoder(config, from.weights, ComputeType::kFloat32);
  const std::vector<KeyValueSvd> by_weight = DecomposeLayers(from);
  const std::vector<KeyValueSvd> by_activation =
      DecomposeLayers(from, InputCovariances(decoder, corpus));
  for (const auto& [method, svds] :
       {std::pair("weight", &by_weight), {"activation", &by_activation}}) {
    int64_t last = 0;
    for (const int64_t sixteenths : kLadder) {
      const int64_t rank = std::max<int64_t>(1, FullRank(config) * sixteenths / 16);
      if (rank == last) continue;
      last = rank;
      points.push_back(
          {method, ToLatent(from, *svds, std::vector<int64_t>(config.num_hidden_layers, rank))});
    }
  }
  return points;
}

// A new directory for what training needs, gone with this.
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

// The model after the sweep's short training.
Checkpoint FineTune(const Checkpoint& model, const SweepOptions& options) {
  const WorkDirectory work(options.csv);
  SaveCheckpoint(work.path() / "converted", model.config, model.weights);
  Train({.from = work.path() / "converted",
         .text = options.text,
         .output = work.path() / "healed",
         .held_out = options.held_out,
         .steps = options.heal_steps,
         .batch_size = 4,
         .learning_rate = 5e-4,
         .warmup_steps = options.heal_steps / 10});
  return LoadCheckpoint(work.path() / "healed", WeightFormat::kFloat32);
}

}  // namespace

void Sweep(const SweepOptions& options) {
  const Checkpoint from = LoadCheckpoint(options.model, WeightFormat::kFloat32);
  if (from.config.attention != AttentionKind::kMha) {
    throw LoadError(options.model.string() + ": attention is \"" +
                    std::string(Name(from.config.attention)) + "\"; a sweep starts from \"mha\"");
  }
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(options.model);
  CheckVocabulary(*tokenizer, from.config, options.model.string());
  const Corpus corpus(options.text, *tokenizer, options.held_out);
  corpus.RequireHeldOut();
  const std::vector<Point> points = Conversions(from, corpus, options.model.string());

  std::ofstream csv(options.csv, std::ios::trunc);
  csv << "attention,method,groups,rank,elements_per_position,bytes_per_position,loss,healed_loss\n";
  for (const auto& [method, model] : points) {
    const ModelConfig& config = model.config;
    const bool mla = config.attention == AttentionKind::kMla;
    csv << Name(config.attention) << ',' << method << ','
        << (mla ? "" : std::to_string(config.num_key_value_heads)) << ','
        << (mla ? std::to_string(config.kv_lora_rank.front()) : "") << ','
        << ElementsPerPosition(config) << ','
        << RowBytes(DefaultCacheFormat(config.torch_dtype), ElementsPerPosition(config)) << ','
        << HeldOutLoss(AsStored(model), corpus) << ',' << std::flush;
    if (options.heal_steps > 0) csv << HeldOutLoss(FineTune(model, options), corpus);
    csv << '\n' << std::flush;
    if (!csv) throw std::runtime_error(options.csv.string() + ": cannot be written");
  }
}

}  // namespace triptych
