#include "engine/checkpoint/config/published_fields.h"

#include <algorithm>
#include <string>

#include "engine/model/tensor_names.h"

namespace triptych::checkpoint {
namespace {

// Of transformers' PretrainedConfig and of training.
constexpr const char* kChangeNothing[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "_num_labels",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

}  // namespace

void IgnoreWhatChangesNothing(JsonFields& fields) {
  fields.DropNulls();
  for (const char* field : kChangeNothing) fields.Ignore(field);
  fields.Only("add_cross_attention", false);
  fields.Only("is_encoder_decoder", false);
  fields.Only("pruned_heads", Json::object());
}

void TakeSizes(JsonFields& fields, ModelConfig& config) {
  config.vocab_size = fields.Int("vocab_size", 1, 1 << 24);
  config.hidden_size = fields.Int("hidden_size", 1, kMaxWidth);
  config.intermediate_size = fields.Int("intermediate_size", 1, kMaxWidth);
  config.num_hidden_layers = fields.Int("num_hidden_layers", 1, 1024);
  config.num_attention_heads = fields.Int("num_attention_heads", 1, kMaxWidth);
  config.max_position_embeddings = fields.Int("max_position_embeddings", 2, 1 << 24);
}

void TakeHeadDim(JsonFields& fields, ModelConfig& config) {
  if (fields.Has("head_dim")) {
    config.head_dim = fields.Int("head_dim", 1, kMaxWidth);
  } else if (config.hidden_size % config.num_attention_heads == 0) {
    config.head_dim = config.hidden_size / config.num_attention_heads;
  } else {
    fields.Refuse("num_attention_heads", std::to_string(config.num_attention_heads),
                  "it must divide hidden_size = " + std::to_string(config.hidden_size) +
                      " unless head_dim is given");
  }
}

void TakeDtype(JsonFields& fields, ModelConfig& config) {
  config.torch_dtype = TensorFormat::kFloat32;
  for (const char* field : {"torch_dtype", "dtype"}) {
    if (!fields.Has(field)) continue;
    const Json dtype = fields.Take(field, nullptr);
    if (dtype == "bfloat16" || dtype == "float16") {
      config.torch_dtype = TensorFormat::kBFloat16;
    } else if (dtype != "float32") {
      fields.RefuseValue(field, dtype, "allowed: \"float32\", \"bfloat16\", \"float16\"");
    }
  }
}

void LimitToWindow(int64_t window, ModelConfig& config) {
  config.max_position_embeddings = std::min(config.max_position_embeddings, window);
}

std::vector<double> TakeRopeFactors(JsonFields& fields, const char* field,
                                    const ModelConfig& config) {
  constexpr double kMost = 1e18;
  const Json factors = fields.Take(field, nullptr);
  const auto is_factor = [](const Json& factor) {
    return factor.is_number() && factor.get<double>() >= 1 / kMost && factor.get<double>() <= kMost;
  };
  if (!factors.is_array() || std::ssize(factors) != config.RotaryDim() / 2 ||
      !std::all_of(factors.begin(), factors.end(), is_factor)) {
    fields.RefuseValue(field, factors,
                       "allowed: a list of " + std::to_string(config.RotaryDim() / 2) +
                           " numbers from 1e-18 to 1e18, one for each pair that is rotated");
  }
  return factors.get<std::vector<double>>();
}

std::vector<std::string> TensorsBeside(const ModelConfig& config) {
  std::vector<std::string> names;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    names.push_back(LayerPrefix(layer) + "self_attn.rotary_emb.inv_freq");
  }
  if (config.tie_word_embeddings) names.push_back("lm_head.weight");
  return names;
}

void CheckPositionTables(const JsonFields& fields, const ModelConfig& config) {
  constexpr int64_t kMaxElements = int64_t{1} << 25;  // 2^18 positions of 128, 1 GB at the most
  const int64_t width = config.position_embedding == PositionEmbedding::kSinusoidal
                            ? config.hidden_size
                            : config.RotaryDim();
  if (width == 0 || config.max_position_embeddings <= kMaxElements / width) return;
  fields.Refuse("max_position_embeddings", std::to_string(config.max_position_embeddings),
                "with " + std::string(Name(config.position_embedding)) + " positions of width " +
                    std::to_string(width) + " allowed: an integer from 2 to " +
                    std::to_string(kMaxElements / width));
}

}  // namespace triptych::checkpoint
