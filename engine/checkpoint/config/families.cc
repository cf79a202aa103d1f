#include "engine/checkpoint/config/families.h"

#include "engine/checkpoint/config/expert_families.h"
#include "engine/checkpoint/config/gpt2_family.h"
#include "engine/checkpoint/config/latent_families.h"
#include "engine/checkpoint/config/layer_norm_families.h"
#include "engine/checkpoint/config/llama_families.h"
#include "engine/checkpoint/config/llama_variants.h"
#include "engine/checkpoint/config/triptych_config.h"

namespace triptych::checkpoint {
namespace {

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
  const Json type = fields.Take("model_type", kTriptychType);
  std::string supported;
  for (const Family& family : kFamilies) {
    if (type == family.model_type) return family;
    supported += (supported.empty() ? "\"" : ", \"") + std::string(family.model_type) + '"';
  }
  fields.RefuseUnsupported("model_type", type, supported);
}

}  // namespace triptych::checkpoint
