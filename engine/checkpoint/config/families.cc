#include "engine/checkpoint/config/families.h"

#include <string>

#include "engine/base/json.h"
#include "engine/checkpoint/config/expert_families.h"
#include "engine/checkpoint/config/gpt2_family.h"
#include "engine/checkpoint/config/latent_families.h"
#include "engine/checkpoint/config/layer_norm_families.h"
#include "engine/checkpoint/config/llama_families.h"
#include "engine/checkpoint/config/llama_variants.h"
#include "engine/checkpoint/config/triptych_config.h"

namespace triptych::checkpoint {
namespace {

// Families that are known and not served, with what they need.
struct UnservedFamily {
  const char* model_type;
  const char* needs;
};
constexpr UnservedFamily kUnserved[] = {
    {"deepseek_v32", "an indexer that chooses the positions to attend"},
    {"longcat_flash", "two attentions in each layer and experts without weights"},
    {"longcat_flash_ngram", "two attentions in each layer and embeddings of n-grams"},
    {"mistral4", "queries scaled by their positions"},
};

// The model_type for a refusal: "longcat_flash", which needs ...
std::string NamedType(const Json& type) {
  std::string text = ShownJson(type);
  for (const UnservedFamily& family : kUnserved) {
    if (type == family.model_type) text += std::string(", which needs ") + family.needs;
  }
  return text;
}

TensorMap AsNamed(const ModelConfig&, const TensorSource&) { return {}; }

constexpr Family kFamilies[] = {
    {kTriptychType, ParseTriptychConfig, AsNamed},  // first
    {"cohere", ParseCohereConfig, LlamaTensors, kCohereNames, true},
    {"deepseek_v2", ParseDeepseekV2Config, LatentTensors, kDeepseekNames, true},
    {"deepseek_v3", ParseDeepseekV3Config, LatentTensors, kDeepseekNames, true},
    {"gemma", ParseGemmaConfig, GemmaTensors, kLlamaNames, true},
    {"glm4_moe_lite", ParseDeepseekV3Config, LatentTensors, kDeepseekNames, true},
    {"gpt2", ParseGpt2Config, Gpt2Tensors, kGpt2Names},
    {"gemma2", ParseGemma2Config, Gemma2Tensors, kGemma2Names, true},
    {"gemma3_text", ParseGemma3TextConfig, Gemma2Tensors, kGemma2Names, true},
    {"granite", ParseGraniteConfig, LlamaTensors, kGraniteNames, true},
    {"granitemoe", ParseGraniteMoeConfig, GraniteMoeTensors, kGraniteMoeNames, true},
    {"kimi_k2", ParseDeepseekV3Config, LatentTensors, kDeepseekNames, true},
    {"llama", ParseLlamaConfig, LlamaTensors, kLlamaNames, true},
    {"minicpm3", ParseMiniCpm3Config, LatentTensors, kMiniCpm3Names, true},
    {"mistral", ParseMistralConfig, LlamaTensors, kLlamaNames, true},
    {"mixtral", ParseMixtralConfig, MixtralTensors, kMixtralNames, true},
    {"olmo2", ParseOlmo2Config, Olmo2Tensors, kLlamaNames, true},
    {"olmoe", ParseOlmoeConfig, LlamaTensors, kOlmoeNames, true},
    {"phi3", ParsePhi3Config, Phi3Tensors, kLlamaNames, true},
    {"plm", ParsePlmConfig, LatentTensors, kDeepseekNames, true},
    {"qwen2", ParseQwen2Config, LlamaTensors, kLlamaNames, true},
    {"qwen2_moe", ParseQwen2MoeConfig, Qwen2MoeTensors, kQwenMoeNames, true},
    {"qwen3", ParseQwen3Config, LlamaTensors, kLlamaNames, true},
    {"qwen3_moe", ParseQwen3MoeConfig, LlamaTensors, kQwenMoeNames, true},
    {"smollm3", ParseSmolLm3Config, LlamaTensors, kLlamaNames, true},
    {"stablelm", ParseStableLmConfig, LlamaTensors, kStableLmNames, true},
    {"starcoder2", ParseStarcoder2Config, Starcoder2Tensors, kStarcoder2Names, true},
    {"youtu", ParseYoutuConfig, LatentTensors, kDeepseekNames, true},
    {"youtu_llm", ParseYoutuConfig, LatentTensors, kDeepseekNames, true},
};

}  // namespace

const Family& TriptychFamily() { return kFamilies[0]; }

const Family& FamilyOf(JsonFields& fields) {
  constexpr const char *kType = "model_type", *kInner = "text_config";
  // Published files that lack it name their code.
  if (!fields.Has(kType) && fields.Has("architectures")) fields.RefuseMissing(kType);
  const Json type = fields.Take(kType, kTriptychType);
  std::string supported;
  for (const Family& family : kFamilies) {
    if (type == family.model_type) return family;
    supported += (supported.empty() ? "\"" : ", \"") + std::string(family.model_type) + '"';
  }
  std::string described = NamedType(type);
  const Json inner = fields.left_over().value(kInner, Json());
  if (inner.is_object() && inner.contains(kType)) {
    described += " around a text_config of " + NamedType(inner.at(kType));
  }
  throw UnsupportedError(fields.source() + ": " + kType + " is " + described +
                         "; supported: " + supported);
}

}  // namespace triptych::checkpoint
