#include "engine/tools/sweep.h"

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/model/conversion.h"
#include "engine/serving/hosted_model.h"
#include "engine/text/tokenizer.h"
#include "engine/tools/convert.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/train.h"

namespace triptych {
namespace {

// Ranks, in sixteenths of D. From 16, where nothing is lost, down to a 32nd of MHA's row.
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
  const Decoder decoder(config, from.weights, at::kFloat);
  const std::vector<KeyValueSvd> by_weight = DecomposeLayers(from);
  const std::vector<KeyValueSvd> by_activation =
      DecomposeLayers(from, InputCovariances(decoder, corpus));
  for (const auto& [method, svds] :
       {std::pair("weight", &by_weight), {"activation", &by_activation}}) {
    for (const int64_t sixteenths : kLadder) {
      const int64_t rank = config.hidden_size * sixteenths / 16;
      if (rank < 1 || rank > FullRank(config)) continue;
      points.push_back(
          {method, ToLatent(from, *svds, std::vector<int64_t>(config.num_hidden_layers, rank))});
    }
  }
  return points;
}

}  // namespace

void Sweep(const SweepOptions& options) {
  const Checkpoint from = LoadCheckpoint(options.model, DType::kFloat32);
  if (from.config.attention != AttentionKind::kMha) {
    throw LoadError(options.model.string() + ": attention is \"" +
                    std::string(Name(from.config.attention)) + "\"; a sweep starts from \"mha\"");
  }
  CheckVocabulary(ByteTokenizer(), from.config, options.model.string());
  const Corpus corpus(options.text, options.held_out);
  if (corpus.held_out_tokens() == 0) {
    throw std::runtime_error("--held-out " + std::to_string(options.held_out) + " of " +
                             options.text.string() + " leaves nothing to evaluate");
  }
  std::ofstream csv(options.csv, std::ios::trunc);
  csv << "attention,method,groups,rank,elements_per_position,bytes_per_position,loss,healed_loss\n"
      << std::flush;
  if (!csv) throw std::runtime_error(options.csv.string() + ": cannot be written");
  const std::filesystem::path work = options.csv.string() + ".work";

  const auto loss = [&](const Checkpoint& model) {
    return HeldOutLoss(Decoder(model.config, model.weights, at::kFloat), corpus);
  };
  for (const auto& [method, model] : Conversions(from, corpus, options.model.string())) {
    const ModelConfig& config = model.config;
    int64_t elements = 0;
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      elements += CacheRowElements(config, layer);
    }
    const bool mla = config.attention == AttentionKind::kMla;
    csv << Name(config.attention) << ',' << method << ','
        << (mla ? "" : std::to_string(config.num_key_value_heads)) << ','
        << (mla ? std::to_string(config.kv_lora_rank.front()) : "") << ',' << elements << ','
        << elements * ElementBytes(config.torch_dtype) << ',' << loss(model) << ',' << std::flush;
    if (options.heal_steps > 0) {
      std::filesystem::remove_all(work);
      SaveCheckpoint(work / "converted", config, model.weights);
      Train({.from = work / "converted",
             .text = options.text,
             .output = work / "healed",
             .held_out = options.held_out,
             .steps = options.heal_steps,
             .batch_size = 4,
             .learning_rate = 5e-4,
             .warmup_steps = options.heal_steps / 10,
             .seed = options.seed});
      csv << loss(LoadCheckpoint(work / "healed", DType::kFloat32));
      std::filesystem::remove_all(work);
    }
    csv << '\n' << std::flush;
    if (!csv) throw std::runtime_error(options.csv.string() + ": cannot be written");
  }
}

}  // namespace triptych
