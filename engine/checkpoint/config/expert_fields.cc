#include "engine/checkpoint/config/expert_fields.h"

#include <algorithm>
#include <string>

#include "engine/checkpoint/config/grouped_fields.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr Range<int64_t> kOptionalExperts{0, config_limits::kExperts.high};
constexpr Range<int64_t> kLayerCount{0, 1 << 20};

// Fields of training and of parallel computation, and those without effect without experts.
constexpr const char* kOfTraining[] = {"aux_loss_alpha", "ep_size", "num_nextn_predict_layers",
                                       "seq_aux"};
constexpr const char* kOfExperts[] = {"moe_intermediate_size",
                                      "n_group",
                                      "n_shared_experts",
                                      "norm_topk_prob",
                                      "num_experts_per_tok",
                                      "scoring_func",
                                      "routed_scaling_factor",
                                      "topk_group",
                                      "topk_method"};

// One flag for each layer: 1 if it has experts.
std::vector<int64_t> TakeDeepseekLayers(JsonFields& fields, const ModelConfig& config) {
  constexpr const char* kTypes = "mlp_layer_types";
  const int64_t first = fields.Int("first_k_dense_replace", kLayerCount, 0);
  const int64_t interval = fields.Int("moe_layer_freq", {1, kLayerCount.high}, 1);
  std::vector<int64_t> flags;
  if (fields.Has(kTypes)) {  // the newer field of the same meaning
    for (const Json& type : fields.List(kTypes)) {
      if (type != "dense" && type != "sparse") {
        fields.RefuseValue(kTypes, type, "allowed: \"dense\", \"sparse\"");
      }
      flags.push_back(type == "sparse" ? 1 : 0);
    }
    if (std::ssize(flags) != config.num_hidden_layers) {
      fields.Refuse(kTypes, "a list of " + std::to_string(flags.size()),
                    "allowed: a list of " + std::to_string(config.num_hidden_layers) +
                        ", one for each layer");
    }
    return flags;
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    flags.push_back(layer >= first && layer % interval == 0 ? 1 : 0);
  }
  return flags;
}

void TakeGroups(JsonFields& fields, ExpertsConfig& experts) {
  experts.n_group = fields.Int("n_group", config_limits::kExperts);
  experts.topk_group = fields.Int("topk_group", config_limits::kExperts);
}

// The publisher's code normalizes the weights or multiplies them, and never does both. (vLLM
// does both, and transformers always multiplies: they differ where norm_topk_prob is true.)
void TakeSoftmaxRouter(JsonFields& fields, ExpertsConfig& experts) {
  fields.Only("scoring_func", "softmax");
  const Json method = fields.Take("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    experts.topk_method = TopkMethod::kGroupLimitedGreedy;
    TakeGroups(fields, experts);
  } else if (method == "greedy") {
    for (const char* field : {"n_group", "topk_group"}) fields.Ignore(field);  // not read
  } else {
    fields.RefuseUnsupported("topk_method", method, "\"greedy\", \"group_limited_greedy\"");
  }
  experts.norm_topk_prob = fields.Bool("norm_topk_prob", false) && experts.num_experts_per_tok > 1;
  const double scale = fields.Number("routed_scaling_factor", config_limits::kFactor, 1.0);
  experts.routed_scaling_factor = experts.norm_topk_prob ? 1 : scale;
}

// Implementations have different defaults.
void TakeNoauxRouter(JsonFields& fields, ExpertsConfig& experts) {
  RequireFields(fields, {"norm_topk_prob", "routed_scaling_factor"});
  experts.scoring_func = ScoringFunc::kSigmoid;
  experts.topk_method = TopkMethod::kNoauxTc;
  fields.Only("scoring_func", "sigmoid");
  fields.Only("topk_method", "noaux_tc");
  TakeGroups(fields, experts);
  experts.norm_topk_prob = fields.Bool("norm_topk_prob", false) && experts.num_experts_per_tok > 1;
  experts.routed_scaling_factor = fields.Number("routed_scaling_factor", config_limits::kFactor);
}

}  // namespace

std::vector<int64_t> SparseLayers(std::vector<int64_t> flags) {
  if (std::find(flags.begin(), flags.end(), 0) == flags.end()) flags.clear();
  return flags;
}

void TakeDeepseekExperts(JsonFields& fields, DeepseekRouter router, ModelConfig& config) {
  constexpr const char* kCount = "n_routed_experts";
  ExpertsConfig& experts = config.experts;
  const int64_t count = fields.Int(kCount, kOptionalExperts, 0);
  if (count > 0 && router == DeepseekRouter::kNoauxTc && !fields.Has("mlp_layer_types")) {
    RequireFields(fields, {"first_k_dense_replace"});
  }
  const std::vector<int64_t> flags = TakeDeepseekLayers(fields, config);
  for (const char* field : kOfTraining) fields.Ignore(field);
  if (count == 0 || std::find(flags.begin(), flags.end(), 1) == flags.end()) {
    for (const char* field : kOfExperts) fields.Ignore(field);
    return;
  }
  experts.n_routed_experts = count;
  experts.sparse_layers = SparseLayers(flags);
  experts.num_experts_per_tok = fields.Int("num_experts_per_tok", config_limits::kExperts);
  experts.moe_intermediate_size = fields.Int("moe_intermediate_size", config_limits::kWidth);
  experts.shared_expert_intermediate_size =
      experts.moe_intermediate_size * fields.Int("n_shared_experts", kOptionalExperts, 0);
  switch (router) {
    case DeepseekRouter::kSoftmax:
      TakeSoftmaxRouter(fields, experts);
      break;
    case DeepseekRouter::kNoauxTc:
      TakeNoauxRouter(fields, experts);
      break;
  }
}

void TakeSoftmaxExperts(JsonFields& fields, const char* count, bool normalized,
                        ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  experts.n_routed_experts = fields.Int(count, config_limits::kExperts);
  experts.num_experts_per_tok = fields.Int("num_experts_per_tok", config_limits::kExperts);
  experts.norm_topk_prob = normalized;
  for (const char* field : {"output_router_logits", "router_aux_loss_coef"}) fields.Ignore(field);
}

}  // namespace triptych::checkpoint
