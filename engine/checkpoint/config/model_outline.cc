#include "engine/checkpoint/config/model_outline.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/outline_layers.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr Range<int64_t> kWidth = config_limits::kWidth;

bool IsOneOf(std::string_view type, std::initializer_list<std::string_view> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

// The fields of one file, and what is read from them.
class Reader {
 public:
  explicit Reader(JsonFields fields) : fields_(std::move(fields)) {}

  ModelOutline Read() {
    fields_.DropNulls();
    EnterTextConfig();
    if (fields_.Bool("is_encoder_decoder", false)) {
      fields_.Refuse("is_encoder_decoder", "true", "supported: decoders");
    }
    attention_ = TakeNested("attn_config");
    experts_ = TakeNested("moe");
    // LongCat's layers have two attentions and two MLPs each.
    paired_ = type().starts_with("longcat_flash") || fields_.Has("zero_expert_num");
    num_layers_ =
        paired_ ? 2 * RequiredInt(fields_, {"num_layers"}, {1, config_limits::kLayers.high / 2})
                : RequiredInt(fields_, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"},
                              config_limits::kLayers);
    if (paired_) {
      empty_experts_ = fields_.Int("zero_expert_num", {0, config_limits::kExperts.high});
    }
    heads_ =
        RequiredInt(fields_, {"num_attention_heads", "n_head", "n_heads", "num_heads"}, kWidth);
    hidden_ = RequiredInt(fields_, {"hidden_size", "n_embd", "d_model", "dim"}, kWidth);
    outline_.context =
        OptionalInt(fields_,
                    {"max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length",
                     "max_seq_len", "seq_length", "model_max_length"},
                    {1, config_limits::kPositions.high});
    layers_ = TakeOutlineLayers(fields_, type(), num_layers_);
    if (outline_.context && layers_.window >= *outline_.context) NoWindow();
    TakeRows();
    AddRows();
    SayWhatLayersAre();
    TakeStates();
    TakeWeights();
    return std::move(outline_);
  }

 private:
  const std::string& type() const { return outline_.model_type; }

  std::optional<int64_t> Width(std::initializer_list<const char*> names) {
    return OptionalInt(fields_, names, kWidth);
  }

  void EnterTextConfig() {
    outline_.model_type = fields_.Text("model_type", "");
    for (const char* field : {"text_config", "language_config", "llm_config"}) {
      if (!fields_.left_over().value(field, Json()).is_object()) continue;
      fields_ = fields_.Inside(field, fields_.Take(field, nullptr));
      fields_.DropNulls();
      outline_.model_type = fields_.Text("model_type", type());
      SayWhatIsRead("from " + std::string(field));
      break;
    }
    // Mistral's params.json has the fields of the language model next to those of the encoder.
    if (fields_.left_over().value("vision_encoder", Json()).is_object()) {
      SayWhatIsRead("without vision_encoder");
    }
    if (type().size() > kShownBytes) {
      fields_.RefuseValue("model_type", type(), "allowed: a text of at most 80 bytes");
    }
  }

  void SayWhatIsRead(const std::string& how) {
    outline_.facts.push_back("read " + how +
                             ": the language model alone, without encoders of images or sound");
  }

  // Some files nest the fields of attention, or of experts.
  std::optional<JsonFields> TakeNested(const char* field) {
    if (!fields_.left_over().value(field, Json()).is_object()) return std::nullopt;
    JsonFields nested = fields_.Inside(field, fields_.Take(field, nullptr));
    nested.DropNulls();
    return nested;
  }

  void NoWindow() {
    std::replace(layers_.layers.begin(), layers_.layers.end(), OutlineLayer::kSliding,
                 OutlineLayer::kFull);
  }

  void TakeRows() {
    if (fields_.Has("kv_lora_rank")) {
      TakeLatents();
      return;
    }
    key_value_heads_ = KeyValueHeads();
    if (heads_ % key_value_heads_ != 0) {
      fields_.Refuse("num_key_value_heads", std::to_string(key_value_heads_),
                     "allowed: a divisor of the " + std::to_string(heads_) + " heads");
    }
    if (const auto width = Width({"head_dim", "attention_head_dim", "kv_channels"})) {
      key_ = *width;
    } else if (hidden_ % heads_ == 0) {
      key_ = hidden_ / heads_;
    } else {
      fields_.Refuse(
          "num_attention_heads", std::to_string(heads_),
          "it must divide the width " + std::to_string(hidden_) + " unless head_dim is given");
    }
    value_ = Width({"v_head_dim"}).value_or(key_);
  }

  void TakeLatents() {
    latent_ = RequiredInt(fields_, {"kv_lora_rank"}, kWidth);
    rope_ = OptionalInt(fields_, {"qk_rope_head_dim"}, config_limits::kOptionalWidth).value_or(0);
    nope_ = RequiredInt(fields_, {"qk_nope_head_dim", "head_dim"}, kWidth);
    key_ = nope_ + rope_;
    // MiniCPM 3 has no field of it.
    value_ =
        Width({"v_head_dim"})
            .value_or(type() == "minicpm3" && hidden_ % heads_ == 0 ? hidden_ / heads_ : nope_);
    query_rank_ = OptionalInt(fields_, {"q_lora_rank"}, config_limits::kOptionalWidth).value_or(0);
    if (const auto width = Width({"index_head_dim"})) {
      indexer_ = *width;
      indexer_heads_ = RequiredInt(fields_, {"index_n_heads"}, kWidth);
      indexer_top_ = RequiredInt(fields_, {"index_topk"}, config_limits::kPositions);
    }
  }

  int64_t KeyValueHeads() {
    if (attention_) {
      if (const auto heads = OptionalInt(*attention_, {"kv_n_heads"}, kWidth)) return *heads;
    }
    // Falcon's and ChatGLM's fields. Falcon's newer architecture has num_kv_heads.
    const bool newer = fields_.Bool("new_decoder_architecture", false);
    if (fields_.Bool("multi_query", false) && !newer) return 1;
    if (fields_.Bool("multi_query_attention", false)) {
      return RequiredInt(fields_, {"multi_query_group_num"}, kWidth);
    }
    return Width({"num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"})
        .value_or(heads_);
  }

  void AddRows() {
    using enum OutlineLayer;
    const auto add = [&](CachedRow row, int64_t layers, int64_t query_heads, int64_t heads,
                         std::vector<int64_t> parts, int64_t window, int64_t attended) {
      if (layers == 0) return;
      outline_.cached.push_back(
          {row, layers, query_heads, heads, std::move(parts), window, attended});
    };
    const auto rows = [&](int64_t layers, int64_t window) {
      if (latent_ == 0) {
        add(CachedRow::kHeads, layers, heads_, key_value_heads_, {key_, value_}, window, 0);
        return;
      }
      std::vector<int64_t> parts = {latent_};
      if (rope_ > 0) parts.push_back(rope_);
      add(CachedRow::kLatent, layers, heads_, 1, std::move(parts), window, indexer_top_);
    };
    const auto first = std::find_if(layers_.layers.begin(), layers_.layers.end(),
                                    [](auto kind) { return kind == kFull || kind == kSliding; });
    const bool sliding_first = first != layers_.layers.end() && *first == kSliding;
    if (sliding_first) rows(layers_.Count(kSliding), layers_.window);
    rows(layers_.Count(kFull), 0);
    if (!sliding_first) rows(layers_.Count(kSliding), layers_.window);
    if (indexer_ > 0) {
      add(CachedRow::kIndexer, layers_.Count(kFull), indexer_heads_, 1, {indexer_}, 0, 0);
    }
    const int64_t attending = Attending();
    if (attending > 0) {
      outline_.as_mha.push_back(
          {CachedRow::kHeads, attending, heads_, heads_, {key_, value_}, 0, 0});
    }
  }

  // Layers that attend, with rows of their own or shared ones.
  int64_t Attending() const {
    using enum OutlineLayer;
    return layers_.Count(kFull) + layers_.Count(kSliding) + layers_.Count(kShared);
  }

  void SayWhatLayersAre() {
    using enum OutlineLayer;
    const auto of_layers = [&](OutlineLayer kind) {
      return FormatCount(layers_.Count(kind)) + " of " + FormatCount(num_layers_) + " layers ";
    };
    if (paired_) {
      outline_.facts.push_back("each of " + FormatCount(num_layers_ / 2) +
                               " layers has two attentions, which are counted as layers");
    }
    if (layers_.Count(kSliding) > 0) {
      outline_.facts.push_back(WindowFact(layers_.Count(kSliding), num_layers_, layers_.window));
    }
    if (layers_.Count(kShared) > 0) {
      outline_.facts.push_back(of_layers(kShared) +
                               "attend the rows of an earlier layer and cache none");
    }
    if (layers_.Count(kNothing) > 0) {
      outline_.facts.push_back(of_layers(kNothing) + "have no attention and cache nothing");
    }
    if (indexer_ > 0) {
      outline_.facts.push_back("every layer also caches the key of an indexer, which chooses " +
                               FormatCount(indexer_top_) + " positions to attend");
    }
  }

  // Sizes of the states of recurrent layers: of Mamba 2, Mamba 1 and the gated delta rule.
  void TakeStates() {
    outline_.state_layers = layers_.Count(OutlineLayer::kState);
    if (outline_.state_layers == 0) {
      for (const auto& [field, value] : fields_.left_over().items()) {
        if (!field.starts_with("mamba_") && !field.starts_with("ssm_")) continue;
        outline_.unknown.push_back("states of fields such as " + Printable(field) +
                                   " are not counted");
        break;
      }
      return;
    }
    outline_.facts.push_back(FormatCount(outline_.state_layers) + " of " +
                             FormatCount(num_layers_) +
                             " layers have a state of a constant size for each sequence");
    if (const auto values = Width({"linear_num_value_heads"})) {
      const int64_t value = RequiredInt(fields_, {"linear_value_head_dim"}, kWidth);
      const int64_t keys = RequiredInt(fields_, {"linear_num_key_heads"}, kWidth);
      const int64_t key = RequiredInt(fields_, {"linear_key_head_dim"}, kWidth);
      const int64_t taps = RequiredInt(fields_, {"linear_conv_kernel_dim"}, kWidth) - 1;
      SetStates({*values, key, value}, taps, {{2, keys, key}, {*values, value}});
    } else if (const auto heads = Width({"mamba_num_heads", "mamba_n_heads"})) {
      const int64_t width = RequiredInt(fields_, {"mamba_head_dim", "mamba_d_head"}, kWidth);
      const int64_t state = RequiredInt(fields_, {"ssm_state_size", "mamba_d_state"}, kWidth);
      const int64_t groups = RequiredInt(fields_, {"n_groups", "mamba_n_groups"}, kWidth);
      const int64_t taps = RequiredInt(fields_, {"conv_kernel", "mamba_d_conv"}, kWidth) - 1;
      SetStates({*heads, width, state}, taps, {{*heads, width}, {2, groups, state}});
    } else if (const auto state = Width({"mamba_d_state"})) {
      const int64_t expand = RequiredInt(fields_, {"mamba_expand"}, {1, 64});
      const int64_t taps = RequiredInt(fields_, {"mamba_d_conv"}, kWidth) - 1;
      SetStates({expand, hidden_, *state}, taps, {{expand, hidden_}});
    } else {
      outline_.unknown.push_back("the size of these states is not known from the file's fields");
    }
  }

  // A recurrent state, and `taps` inputs of a convolution over the sum of the channels.
  void SetStates(const std::vector<int64_t>& recurrent, int64_t taps,
                 const std::vector<std::vector<int64_t>>& channels) {
    const auto product = [](const std::vector<int64_t>& factors) {
      double all = 1;
      for (const int64_t factor : factors) all *= static_cast<double>(factor);
      return all;
    };
    const auto text = [](const std::vector<int64_t>& factors) {
      std::string all;
      for (const int64_t factor : factors) {
        all += (all.empty() ? "" : " x ") + std::to_string(factor);
      }
      return all;
    };
    double width = 0;
    std::string widths;
    for (const std::vector<int64_t>& part : channels) {
      width += product(part);
      widths += (widths.empty() ? "" : " + ") + text(part);
    }
    const double elements = static_cast<double>(outline_.state_layers) *
                            (product(recurrent) + static_cast<double>(taps) * width);
    if (elements > kMostWeights) {
      throw LoadError(fields_.source() + ": a sequence has a state of " +
                      FormatDecimal(elements, 0) + " elements; allowed: 2^53");
    }
    outline_.state_elements = static_cast<int64_t>(elements);
    outline_.state_formula = FormatCount(outline_.state_layers) +
                             (outline_.state_layers == 1 ? " layer x (" : " layers x (") +
                             text(recurrent) + " + " + std::to_string(taps) + " x (" + widths +
                             "))";
    outline_.unknown.push_back(
        "the format of states is not in the file: bytes are of float32, and a server that keeps "
        "the state of a prefix, to share it, needs more");
  }

  // ---- Weights ----

  void TakeWeights() {
    std::string why;
    OutlineWeights weights;
    if (outline_.state_layers > 0 || layers_.Count(OutlineLayer::kNothing) > 0) {
      why = "layers that are not attention and an MLP";
    } else if (fields_.Has("hidden_size_per_layer_input")) {
      why = "embeddings of every layer";
    } else if (type().starts_with("llama4")) {
      why = "Llama 4's two widths of MLPs";
    } else if (NameIn(fields_, {"ngram_vocab_size_ratio", "oe_vocab_size_ratio"})) {
      why = "tables of n-grams";
    } else if (!fields_.Has("vocab_size")) {
      why = "vocab_size is not in the file";
    } else if (!AddBlocks(weights)) {
      why = "the width of its MLPs is not in the file";
    }
    if (!why.empty()) {
      outline_.unknown.push_back("the number of weights is not known (" + why + ")");
      return;
    }
    const bool tied =
        fields_.Bool(NameIn(fields_, {"tie_word_embeddings"}).value_or("tied_embeddings"),
                     IsOneOf(type(), {"gemma", "gemma2", "gemma3_text", "falcon", "gpt2", "bloom",
                                      "mpt", "cohere", "cohere2", "minicpm3", "starcoder2"}));
    const double table =
        static_cast<double>(RequiredInt(fields_, {"vocab_size"}, config_limits::kVocabulary)) *
        static_cast<double>(hidden_);
    weights.always += table;
    if (!tied) weights.embedding = table;
    if (weights.All() > kMostWeights) {
      throw LoadError(fields_.source() + ": a model has " + FormatDecimal(weights.All(), 0) +
                      " weights; allowed: 2^53");
    }
    outline_.weights = weights;
  }

  double AttentionWeights(bool caches) const {
    const auto d = static_cast<double>(hidden_), heads = static_cast<double>(heads_);
    const auto key = static_cast<double>(key_), value = static_cast<double>(value_);
    const double output = heads * value * d;
    if (latent_ == 0) {
      const auto groups = static_cast<double>(key_value_heads_);
      return d * heads * key + output + (caches ? d * groups * (key + value) : 0);
    }
    const auto rank = static_cast<double>(latent_), rope = static_cast<double>(rope_);
    const auto query = static_cast<double>(query_rank_);
    const double from = query > 0 ? query : d;
    double all = output + (query > 0 ? d * query : 0) + from * heads * key;
    if (caches) all += d * (rank + rope) + rank * heads * (static_cast<double>(nope_) + value);
    const auto index = static_cast<double>(indexer_), indices = static_cast<double>(indexer_heads_);
    return all + from * index * indices + d * index + d * indices;
  }

  // False if the width of the MLPs is not known.
  bool AddBlocks(OutlineWeights& weights) {
    const int64_t cached =
        layers_.Count(OutlineLayer::kFull) + layers_.Count(OutlineLayer::kSliding);
    weights.always += static_cast<double>(cached) * AttentionWeights(true) +
                      static_cast<double>(Attending() - cached) * AttentionWeights(false);
    const auto d = static_cast<double>(hidden_);
    const double matrices = GatesMlp() ? 3 : 2;
    const std::optional<double> inner = MlpWidth();
    JsonFields& fields = OfExperts();
    weights.experts =
        OptionalInt(fields,
                    {"n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"},
                    {0, config_limits::kExperts.high})
            .value_or(0);
    if (weights.experts == 0) {
      if (!inner) return false;
      weights.always += static_cast<double>(num_layers_) * matrices * d * *inner;
      return true;
    }
    weights.chosen = RequiredInt(fields,
                                 {"num_experts_per_tok", "experts_per_token",
                                  "num_experts_per_token", "moe_topk", "moe_top_k"},
                                 {1, weights.experts});
    const std::optional<int64_t> width =
        OptionalInt(fields,
                    {"moe_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size",
                     "expert_hidden_dim"},
                    kWidth);
    if (!width && !inner) return false;
    const double expert = width ? static_cast<double>(*width) : *inner;
    const auto sparse = static_cast<double>(paired_ ? num_layers_ / 2 : SparseLayers());
    const double dense = static_cast<double>(num_layers_) - (paired_ ? 0 : sparse);
    if (dense > 0 && !inner) return false;
    if (paired_) SayEmptyExperts(weights);
    weights.expert = sparse * matrices * d * expert;
    weights.always += dense * matrices * d * inner.value_or(0) +
                      sparse * (d * static_cast<double>(weights.experts + empty_experts_) +
                                matrices * d * SharedWidth(expert));
    return true;
  }

  // LongCat's routed experts that return their input.
  void SayEmptyExperts(const OutlineWeights& weights) {
    outline_.facts.push_back("a token chooses " + FormatCount(weights.chosen) + " of " +
                             FormatCount(weights.experts + empty_experts_) + " experts, " +
                             FormatCount(empty_experts_) +
                             " of which have no weights: it uses at most those printed");
  }

  JsonFields& OfExperts() { return experts_ ? *experts_ : fields_; }

  bool GatesMlp() {
    if (IsOneOf(type(), {"falcon", "gpt2", "gpt_neox", "gptj", "opt", "bloom", "mpt", "phi",
                         "gpt_bigcode", "starcoder2", "nemotron", "persimmon"})) {
      return false;
    }
    const Json& all = fields_.left_over();
    for (const char* field : {"hidden_act", "mlp_hidden_act", "mlp"}) {
      const Json act = all.value(field, Json());
      if (act == "relu2" || (field == std::string_view("mlp") && act == "gelu")) return false;
    }
    return true;
  }

  // Falcon, GPT-2, BLOOM and MPT have no field of it.
  std::optional<double> MlpWidth() {
    const auto name =
        NameIn(fields_, {"intermediate_size", "ffn_hidden_size", "n_inner", "hidden_dim"});
    if (name && !fields_.left_over().at(*name).is_number_integer()) return std::nullopt;
    if (name) return static_cast<double>(fields_.Int(*name, kWidth));
    if (IsOneOf(type(), {"falcon", "gpt2", "bloom", "mpt", "gptj", "gpt_bigcode"})) {
      return 4 * static_cast<double>(hidden_);
    }
    return std::nullopt;
  }

  double SharedWidth(double expert) {
    JsonFields& fields = OfExperts();
    constexpr Range<int64_t> kOptional = config_limits::kOptionalWidth;
    if (const auto width = OptionalInt(fields, {"shared_expert_intermediate_size"}, kOptional)) {
      return static_cast<double>(*width);
    }
    return expert *
           static_cast<double>(OptionalInt(fields, {"n_shared_experts", "num_shared_experts"},
                                           {0, config_limits::kExperts.high})
                                   .value_or(0));
  }

  // Layers with experts.
  int64_t SparseLayers() {
    JsonFields& fields = OfExperts();
    constexpr Range<int64_t> kCount{0, 1 << 20};
    std::vector<bool> sparse(num_layers_, true);
    const auto keep = [&](const auto& keeps) {
      for (int64_t layer = 0; layer < num_layers_; ++layer) {
        sparse[layer] = sparse[layer] && keeps(layer);
      }
    };
    if (fields.Has("mlp_layer_types")) {
      const Json types = fields.List("mlp_layer_types");
      keep([&](int64_t layer) { return layer < std::ssize(types) && types[layer] == "sparse"; });
      return std::count(sparse.begin(), sparse.end(), true);
    }
    const int64_t first = OptionalInt(fields, {"first_k_dense_replace"}, kCount).value_or(0);
    keep([&](int64_t layer) { return layer >= first; });
    auto every = OptionalInt(fields, {"route_every_n"}, {1, kCount.high});
    if (fields.left_over().value("moe_layer_freq", Json()).is_number()) {
      every = fields.Int("moe_layer_freq", {1, kCount.high});
    }
    if (every) keep([&](int64_t layer) { return layer % *every == 0; });
    if (const auto step = OptionalInt(fields, {"decoder_sparse_step"}, {1, kCount.high})) {
      keep([&](int64_t layer) { return (layer + 1) % *step == 0; });
    }
    if (fields.Has("mlp_only_layers")) {
      for (const Json& layer : fields.List("mlp_only_layers")) {
        sparse[fields.CheckedInt("mlp_only_layers", layer, {0, num_layers_ - 1})] = false;
      }
    }
    if (fields.Has("sparse_layers")) {
      const Json flags = fields.List("sparse_layers");
      keep([&](int64_t layer) { return layer < std::ssize(flags) && flags[layer] == 1; });
    }
    return std::count(sparse.begin(), sparse.end(), true);
  }

  JsonFields fields_;
  std::optional<JsonFields> attention_, experts_;  // nested fields
  ModelOutline outline_;
  OutlineLayers layers_;
  int64_t num_layers_ = 0, heads_ = 0, hidden_ = 0, key_value_heads_ = 1;
  int64_t key_ = 0, value_ = 0;                                // of one head
  int64_t latent_ = 0, rope_ = 0, nope_ = 0, query_rank_ = 0;  // of MLA; latent_ 0: none
  int64_t indexer_ = 0, indexer_heads_ = 0, indexer_top_ = 0;  // 0: none
  int64_t empty_experts_ = 0;  // of LongCat, which return their input
  bool paired_ = false;        // num_layers_ counts halves
};

}  // namespace

ModelOutline ParseModelOutline(JsonFields fields) { return Reader(std::move(fields)).Read(); }

}  // namespace triptych::checkpoint
