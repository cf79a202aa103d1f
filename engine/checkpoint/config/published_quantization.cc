#include "engine/checkpoint/config/published_quantization.h"

#include <string>

#include "engine/base/quoted.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

using Layout = PublishedQuantization::Layout;

constexpr const char* kQuantizationField = "quantization_config";
constexpr Range<int64_t> kWeightsOfScale = {1, config_limits::kWidth.high};

// Fields that change nothing about the stored matrices.
constexpr const char* kNotAboutMatrices[] = {
    "act_group_aware",
    "activation_scale_ub",
    "activation_scheme",
    "backend",
    "batch_size",
    "block_name_to_quantize",
    "cache_block_outputs",
    "damp_auto_increment",
    "damp_percent",
    "dataset",
    "desc_act",
    "do_fuse",
    "exllama_config",
    "fuse_max_seq_len",
    "global_compression_ratio",
    "ignore",
    "ignored_layers",
    "kv_cache_quant_method",
    "kv_cache_scheme",
    "lm_head",
    "max_input_length",
    "meta",
    "model_file_base_name",
    "model_name_or_path",
    "model_seqlen",
    "module_name_preceding_first_block",
    "modules_in_block_to_quantize",
    "modules_to_fuse",
    "modules_to_not_convert",
    "mse",
    "pad_token_id",
    "quantization_status",
    "quantizer",
    "run_compressed",
    "scale_fmt",
    "static_groups",
    "sym",
    "tokenizer",
    "true_sequential",
    "use_cuda_fp16",
    "use_exllama",
    "version",
};

int TakeBits(JsonFields& fields, const char* field) {
  const Json bits = fields.Take(field, nullptr);
  if (bits != 4 && bits != 8) fields.RefuseUnsupported(field, bits, "4, 8");
  return bits.get<int>();
}

// -1 is for whole rows.
std::optional<int64_t> TakeGroupSize(JsonFields& fields, const char* field) {
  const Json size = fields.Take(field, nullptr);
  if (size == -1) return std::nullopt;
  return fields.CheckedInt(field, size, kWeightsOfScale);
}

// Rules by modules' names. Those of modules that are left out begin with "-:", and the tensors show
// the same.
void CheckRules(JsonFields& fields, const char* field) {
  if (!fields.Has(field)) return;
  const Json rules = fields.Take(field, nullptr);
  bool leave_out = rules.is_object();
  for (const auto& [rule, changes] : rules.items()) leave_out = leave_out && rule.starts_with("-:");
  if (!leave_out) fields.RefuseUnsupported(field, rules, "rules that begin with \"-:\"");
}

PublishedQuantization TakeGptq(JsonFields& fields) {
  PublishedQuantization gptq{.layout = Layout::kGptq, .bits = TakeBits(fields, "bits")};
  gptq.columns = TakeGroupSize(fields, "group_size");
  gptq.added_to_zeros = 1;
  for (const char* field : {"checkpoint_format", "format"}) {
    if (!fields.Has(field)) continue;
    const Json format = fields.Take(field, nullptr);
    if (format != "gptq" && format != "gptq_v2") {
      fields.RefuseUnsupported(field, format, "\"gptq\", \"gptq_v2\"");
    }
    gptq.added_to_zeros = format == "gptq" ? 1 : 0;
  }
  fields.Only("is_marlin_format", false);
  CheckRules(fields, "dynamic");
  fields.Only("pack_dtype", "int32");
  return gptq;
}

PublishedQuantization TakeAwq(JsonFields& fields) {
  PublishedQuantization awq{.layout = Layout::kAwq, .bits = 4};
  const char* const bits = fields.Has("w_bit") ? "w_bit" : "bits";
  if (TakeBits(fields, bits) != 4) fields.RefuseUnsupported(bits, 8, "4");
  awq.columns = TakeGroupSize(fields, fields.Has("q_group_size") ? "q_group_size" : "group_size");
  fields.Only("zero_point", true);
  const Json version = fields.Take("version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    fields.RefuseUnsupported("version", version, "\"gemm\"");
  }
  return awq;
}

// "weight_block_size", "block_structure": [rows, columns]
void TakeBlock(JsonFields& fields, const char* field, PublishedQuantization& quantization) {
  const Json block = fields.Take(field, nullptr);
  if (!block.is_array() || block.size() != 2) {
    fields.RefuseValue(field, block, "allowed: a list of two integers");
  }
  quantization.rows = fields.CheckedInt(field, block[0], kWeightsOfScale);
  quantization.columns = fields.CheckedInt(field, block[1], kWeightsOfScale);
}

PublishedQuantization TakeFloat8(JsonFields& fields) {
  PublishedQuantization float8{.layout = Layout::kFloat8, .zero_points = false};
  fields.Only("fmt", "e4m3");
  if (fields.Has("weight_block_size")) TakeBlock(fields, "weight_block_size", float8);
  return float8;
}

// One group of modules of compressed-tensors.
PublishedQuantization TakeWeights(JsonFields& weights, const std::string& format) {
  PublishedQuantization quantization{.bits = TakeBits(weights, "num_bits")};
  const Json type = weights.Take("type", "int");
  const bool packed = format == "pack-quantized";
  const bool floats =
      format == "float-quantized" || (format == "naive-quantized" && type == "float");
  if (type != (floats ? "float" : "int")) {
    weights.RefuseUnsupported("type", type, floats ? "\"float\"" : "\"int\"");
  }
  if (floats && quantization.bits != 8) {
    weights.RefuseUnsupported("num_bits", quantization.bits, "8 with type \"float\"");
  }
  quantization.layout = packed ? Layout::kPacked : floats ? Layout::kFloat8 : Layout::kIntegers;
  quantization.zero_points = !weights.Bool("symmetric", true);
  weights.Only("dynamic", false);
  const Json size = weights.Take("group_size", -1);
  const Json strategy = weights.Take("strategy", size == -1 ? "tensor" : "group");
  if (strategy == "group") {
    quantization.columns = weights.CheckedInt("group_size", size, kWeightsOfScale);
  } else if (strategy == "block") {
    TakeBlock(weights, "block_structure", quantization);
  } else if (strategy != "tensor" && strategy != "channel") {
    weights.RefuseUnsupported("strategy", strategy,
                              "\"tensor\", \"channel\", \"group\", \"block\"");
  }
  for (const char* calibration :
       {"actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"}) {
    weights.Ignore(calibration);
  }
  weights.RefuseLeftOver();
  return quantization;
}

PublishedQuantization TakeCompressed(JsonFields& fields) {
  const std::string format = fields.Text("format");
  if (format != "pack-quantized" && format != "int-quantized" && format != "naive-quantized" &&
      format != "float-quantized") {
    fields.RefuseUnsupported("format", format,
                             "\"pack-quantized\", \"int-quantized\", \"naive-quantized\", "
                             "\"float-quantized\"");
  }
  for (const char* field : {"sparsity_config", "transform_config"}) {
    const Json other = fields.Take(field, Json::object());
    if (!other.empty() && other != Json{{"format", "dense"}}) {
      fields.RefuseUnsupported(field, other, "without it");
    }
  }
  const Json groups = fields.Take("config_groups", nullptr);
  if (!groups.is_object() || groups.empty()) {
    fields.RefuseValue("config_groups", groups, "allowed: an object of groups of modules");
  }
  const Json& first = groups.begin().value();
  for (const auto& [name, group] : groups.items()) {
    const std::string where = "config_groups." + Printable(name);
    if (!group.is_object() || !group.value("weights", Json()).is_object()) {
      fields.RefuseUnsupported(where, group, "an object with \"weights\"");
    }
    if (group["weights"] != first["weights"]) {
      fields.RefuseUnsupported(where + ".weights", group["weights"],
                               "one format of weights, that of the first group");
    }
    const Json own = group.value("format", Json());
    if (!own.is_null() && own != format) {
      fields.RefuseUnsupported(where + ".format", own, "\"" + format + '"');
    }
  }
  JsonFields weights = fields.Inside(
      "config_groups." + Printable(groups.begin().key()) + ".weights", first["weights"]);
  weights.DropNulls();
  return TakeWeights(weights, format);
}

PublishedQuantization TakeMethod(JsonFields& fields) {
  const Json method = fields.Take("quant_method", nullptr);
  if (method == "gptq") return TakeGptq(fields);
  if (method == "awq") return TakeAwq(fields);
  if (method == "fp8" || method == "fbgemm_fp8") return TakeFloat8(fields);
  if (method == "compressed-tensors") return TakeCompressed(fields);
  fields.RefuseUnsupported("quant_method", method,
                           "\"gptq\", \"awq\", \"fp8\", \"fbgemm_fp8\", "
                           "\"compressed-tensors\"");
}

}  // namespace

std::optional<PublishedQuantization> TakePublishedQuantization(JsonFields& fields) {
  if (!fields.Has(kQuantizationField)) return std::nullopt;
  const Json value = fields.Take(kQuantizationField, nullptr);
  if (value.is_null()) return std::nullopt;
  JsonFields own = fields.Inside(kQuantizationField, value);
  own.DropNulls();
  const PublishedQuantization quantization = TakeMethod(own);
  for (const char* field : kNotAboutMatrices) own.Ignore(field);
  own.RefuseLeftOver();
  return quantization;
}

}  // namespace triptych::checkpoint
