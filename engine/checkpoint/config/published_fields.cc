#include "engine/checkpoint/config/published_fields.h"

#include <algorithm>
#include <string>

#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

// Fields of transformers' PretrainedConfig and of training.
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
  config.vocab_size = fields.Int("vocab_size", config_limits::kVocabulary);
  config.hidden_size = fields.Int("hidden_size", config_limits::kWidth);
  config.intermediate_size = fields.Int("intermediate_size", config_limits::kWidth);
  config.num_hidden_layers = fields.Int("num_hidden_layers", config_limits::kLayers);
  config.num_attention_heads = fields.Int("num_attention_heads", config_limits::kWidth);
  config.max_position_embeddings = fields.Int("max_position_embeddings", config_limits::kPositions);
}

void TakeHeadDim(JsonFields& fields, ModelConfig& config) {
  if (fields.Has("head_dim")) {
    config.head_dim = fields.Int("head_dim", config_limits::kWidth);
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

std::vector<std::string> TensorsBeside(const ModelConfig& config) {
  std::vector<std::string> names;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    names.push_back(LayerPrefix(layer) + "self_attn.rotary_emb.inv_freq");
  }
  if (config.tie_word_embeddings) names.push_back("lm_head.weight");
  return names;
}

}  // namespace triptych::checkpoint
