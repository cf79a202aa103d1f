// Fuzz target: config.json, also of families that are not served, generation_config.json and
// tokenizer_config.json of a checkpoint.
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/names.h"
#include "engine/base/request_limits.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/config/generation_config.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/config/model_outline.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
#include "engine/checkpoint/tokenizer/tokenizer_settings.h"
#include "engine/model/cached_layers.h"
#include "engine/model/config.h"
#include "engine/model/latent_shape.h"
#include "engine/text/byte_tokenizer.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

void FuzzGenerationConfig(std::string_view bytes) {
  checkpoint::GenerationConfig config;
  try {
    config = checkpoint::ParseGenerationConfig(
        checkpoint::JsonFields(ParseJson(bytes, "defaults"), "defaults"));
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
    return;
  }
  const auto check = [](const auto& value, const auto& range) {
    Promise(!value || range.Contains(*value), "a default is in its field's range");
  };
  check(config.temperature, limits::kTemperature);
  check(config.top_k, limits::kTopK);
  check(config.top_p, limits::kTopP);
  check(config.min_p, limits::kMinP);
  check(config.repetition_penalty, limits::kRepetitionPenalty);
  check(config.max_new_tokens, limits::kNewTokens);
  if (!config.not_applied.empty()) PromiseClearLine(config.not_applied, 6000);
}

// The bytes as each of the files with settings of a tokenizer.
void FuzzTokenizerSettings(std::string_view bytes) {
  static const std::string model = checkpoint::WriteSentencePieceModel(
      {.pieces = {{"<unk>", 0, checkpoint::ScoredPiece::kUnknown},
                  {"<s>", 0, checkpoint::ScoredPiece::kControl},
                  {"a", -1}},
       .space = checkpoint::kMetaspace,
       .ends = {1}});
  try {
    const checkpoint::JsonFields fields(ParseJson(bytes, "settings"), "settings");
    const auto settings = checkpoint::ParseTokenizerSettings(fields, fields, std::nullopt);
    CheckTokenizer(*checkpoint::ParseSentencePieceModel(model, "model", settings), kHostileText);
    checkpoint::ParseTokenizerSettings(fields, fields, fields);
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

// A config of any family.
void FuzzModelOutline(std::string_view bytes) {
  try {
    const checkpoint::ModelOutline outline = checkpoint::ParseModelOutline(
        checkpoint::JsonFields(ParseJson(bytes, "config.json"), "config.json"));
    for (const auto& [name, format] : Names<CacheFormat>()) {
      for (const auto& cached : {outline.cached, outline.as_mha}) {
        Promise(cached.empty() || BytesPerPosition(cached, format) > 0, "a position has bytes");
        PromiseClearLine(CacheFormula(cached, format), 1000);
      }
    }
    for (const auto& sentences : {outline.facts, outline.unknown}) {
      for (const std::string& sentence : sentences) PromiseClearLine(sentence, 1000);
    }
    Promise(outline.state_elements.value_or(0) >= 0, "states have elements");
    Promise(!outline.weights || outline.weights->All() >= outline.weights->Active(),
            "a token uses some of the weights");
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace

void FuzzConfig(std::string_view bytes) {
  FuzzModelOutline(bytes);
  FuzzGenerationConfig(bytes);
  FuzzTokenizerSettings(bytes);
  ModelConfig config;
  try {
    config = checkpoint::ParseModelConfig(bytes, "config.json");
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
    return;
  }
  const std::string json = checkpoint::ToJson(config);
  Promise(checkpoint::ToJson(checkpoint::ParseModelConfig(json, "written")) == json,
          "a config that is written is read");

  // Computed from a config before the tensors' shapes bound its widths.
  for (const auto& [name, format] : Names<CacheFormat>()) {
    const CacheGeometry geometry = MakeCacheGeometry(config, format, 16);
    Promise(geometry.BlockBytes() > 0, "a block holds bytes");
    Promise(geometry.mha_bytes_per_position > 0, "MHA would take bytes");
  }
  Promise(ElementsPerPosition(config) > 0, "a position has elements");
  ReducedForms(config);
  try {
    checkpoint::CheckVocabulary(ByteTokenizer(), config, "config.json");
    Promise(config.vocab_size >= ByteTokenizer::kVocabSize, "a model has its tokenizer's tokens");
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace triptych
