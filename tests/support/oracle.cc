#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

namespace triptych::oracle {
namespace {

double DotProduct(const double* a, const double* b, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

Matrix Apply(const Linear& linear, const Matrix& x) {
  Matrix y(x.rows, linear.weight.rows);
  for (int64_t i = 0; i < y.rows; ++i) {
    for (int64_t j = 0; j < y.cols; ++j) {
      y(i, j) = DotProduct(&x.data[i * x.cols], &linear.weight.data[j * x.cols], x.cols);
      if (!linear.bias.empty()) y(i, j) += linear.bias(0, j);
    }
  }
  return y;
}

// One head. q: [L1, d_qk], k: [L2, d_qk], v: [L2, d_v] -> [L1, d_v].
Matrix AttendOneHead(const Matrix& q, const Matrix& k, const Matrix& v, double scale,
                     const Masking& masking) {
  Matrix out(q.rows, v.cols);
  for (int64_t i = 0; i < q.rows; ++i) {
    std::vector<double> scores;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < k.rows; ++j) {
      if (masking.causal && j > i + masking.causal_shift) break;
      scores.push_back(scale * DotProduct(&q.data[i * q.cols], &k.data[j * k.cols], q.cols));
      largest = std::max(largest, scores.back());
    }
    double total = 0;
    for (double& score : scores) total += score = std::exp(score - largest);
    for (size_t j = 0; j < scores.size(); ++j) {
      for (int64_t c = 0; c < v.cols; ++c) {
        out(i, c) += scores[j] / total * v(static_cast<int64_t>(j), c);
      }
    }
  }
  return out;
}

Matrix Columns(const Matrix& x, int64_t first, int64_t count) {
  Matrix out(x.rows, count);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < count; ++j) out(i, j) = x(i, first + j);
  }
  return out;
}

Matrix RotateRows(const Rotation& rotation, Matrix x) {
  for (int64_t i = 0; i < x.rows; ++i) Rotate(rotation, i, x.data.data() + i * x.cols, x.cols);
  return x;
}

void CopyColumns(const Matrix& from, Matrix& to, int64_t first) {
  for (int64_t i = 0; i < from.rows; ++i) {
    for (int64_t j = 0; j < from.cols; ++j) to(i, first + j) = from(i, j);
  }
}

Matrix RmsNorm(Matrix x, const Matrix& weight, double eps) {
  for (int64_t i = 0; i < x.rows; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < x.cols; ++j) squares += x(i, j) * x(i, j);
    const double norm = std::sqrt(squares / static_cast<double>(x.cols) + eps);
    for (int64_t j = 0; j < x.cols; ++j) x(i, j) = x(i, j) / norm * weight(0, j);
  }
  return x;
}

// Divides each row of x by the root mean square of the same row of `normed`.
void DivideByNorms(const Matrix& normed, double eps, Matrix& x) {
  for (int64_t i = 0; i < x.rows; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < normed.cols; ++j) squares += normed(i, j) * normed(i, j);
    const double norm = std::sqrt(squares / static_cast<double>(normed.cols) + eps);
    for (int64_t j = 0; j < x.cols; ++j) x(i, j) /= norm;
  }
}

Matrix LayerNorm(Matrix x, const Matrix& weight, const Matrix& bias, double eps) {
  const auto width = static_cast<double>(x.cols);
  for (int64_t i = 0; i < x.rows; ++i) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < x.cols; ++j) mean += x(i, j) / width;
    for (int64_t j = 0; j < x.cols; ++j) variance += (x(i, j) - mean) * (x(i, j) - mean) / width;
    for (int64_t j = 0; j < x.cols; ++j) {
      x(i, j) = (x(i, j) - mean) / std::sqrt(variance + eps) * weight(0, j);
      if (!bias.empty()) x(i, j) += bias(0, j);
    }
  }
  return x;
}

double Activate(HiddenAct act, double x) {
  switch (act) {
    case HiddenAct::kGelu:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case HiddenAct::kGeluExact:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case HiddenAct::kSilu:
      return x / (1 + std::exp(-x));
    case HiddenAct::kRelu2:
      return x > 0 ? x * x : 0;
  }
  return 0;
}

// The tensors of one model.
class Model {
 public:
  Model(const ModelConfig& config, const Arrays& weights) : config_(config), weights_(weights) {}

  Matrix Find(const std::string& name) const {
    const auto found = weights_.find(name);
    return found == weights_.end() ? Matrix() : found->second;
  }
  Linear FindLinear(const std::string& name) const {
    return {weights_.at(name + ".weight"), Find(name + ".bias")};
  }

  Matrix Normalize(const std::string& name, const Matrix& x) const {
    const Matrix& weight = weights_.at(name + ".weight");
    return config_.norm == NormKind::kRmsNorm
               ? RmsNorm(x, weight, config_.norm_eps)
               : LayerNorm(x, weight, Find(name + ".bias"), config_.norm_eps);
  }

  Matrix Embed(const std::vector<int64_t>& ids) const {
    const Matrix& tokens = weights_.at("model.embed_tokens.weight");
    Matrix x(static_cast<int64_t>(ids.size()), config_.hidden_size);
    for (int64_t p = 0; p < x.rows; ++p) {
      for (int64_t j = 0; j < x.cols; ++j) {
        x(p, j) = tokens(ids[p], j);
        if (config_.position_embedding == PositionEmbedding::kLearned) {
          x(p, j) += weights_.at("model.embed_positions.weight")(p, j);
        } else if (config_.position_embedding == PositionEmbedding::kSinusoidal) {
          const double exponent = static_cast<double>(j / 2 * 2) / static_cast<double>(x.cols);
          const double angle = static_cast<double>(p) / std::pow(10000.0, exponent);
          x(p, j) += j % 2 == 0 ? std::sin(angle) : std::cos(angle);
        }
      }
    }
    return x;
  }

  Matrix Attend(int64_t layer, const Matrix& x) const {
    const std::string self = "model.layers." + std::to_string(layer) + ".self_attn.";
    Rotation rotation;
    if (config_.position_embedding == PositionEmbedding::kRope) {
      rotation = {config_.rope_theta, !config_.rope_interleave};
    }
    if (config_.attention == AttentionKind::kMla) {
      const LatentAttention attention{.heads = config_.num_attention_heads,
                                      .d_qk = config_.head_dim,
                                      .d_v = config_.head_dim,
                                      .rank = config_.kv_lora_rank[layer],
                                      .d_rope = config_.qk_rope_head_dim,
                                      .q = FindLinear(self + "q_proj"),
                                      .kv_a = Find(self + "kv_a_proj_with_mqa.weight"),
                                      .latent_norm = Find(self + "kv_a_layernorm.weight"),
                                      .norm_eps = config_.norm_eps,
                                      .kv_b = Find(self + "kv_b_proj.weight"),
                                      .o = FindLinear(self + "o_proj"),
                                      .k = Find(self + "k_proj.weight"),
                                      .q_norm = Find(self + "q_norm.weight"),
                                      .rotation = rotation,
                                      .masking = {.causal = true}};
      return attention(x, x);
    }
    const GroupedAttention attention{
        .heads = config_.num_attention_heads,
        .groups = config_.num_key_value_heads,
        .q = FindLinear(self + "q_proj"),
        .k = FindLinear(self + "k_proj"),
        .v = FindLinear(self + "v_proj"),
        .o = FindLinear(self + "o_proj"),
        .q_norm = Find(self + "q_norm.weight"),
        .k_norm = Find(self + "k_norm.weight"),
        .norm_eps = config_.norm_eps,
        .contiguous = config_.head_grouping == HeadGrouping::kContiguous,
        .rotation = rotation,
        .masking = {.causal = true}};
    return attention(x, x);
  }

  Matrix Mlp(int64_t layer, const Matrix& x) const {
    const std::string mlp = "model.layers." + std::to_string(layer) + ".mlp.";
    return config_.HasExperts(layer) ? Mixture(mlp, x) : Mlp(mlp, x);
  }

 private:
  Matrix Mlp(const std::string& mlp, const Matrix& x) const {
    Matrix inner = Apply(FindLinear(mlp + "up_proj"), x);
    if (config_.mlp == MlpKind::kSwiglu) {
      const Matrix gate = Apply(FindLinear(mlp + "gate_proj"), x);
      for (size_t i = 0; i < inner.data.size(); ++i) {
        inner.data[i] *= Activate(config_.hidden_act, gate.data[i]);
      }
    } else {
      for (double& value : inner.data) value = Activate(config_.hidden_act, value);
    }
    return Apply(FindLinear(mlp + "down_proj"), inner);
  }

  // engine/definitions.md#experts, position by position.
  Matrix Mixture(const std::string& mlp, const Matrix& x) const {
    const Matrix logits = Apply({weights_.at(mlp + "gate.weight"), {}}, x);
    const Matrix bias = Find(mlp + "gate.e_score_correction_bias");
    Matrix sum(x.rows, x.cols);
    for (int64_t i = 0; i < x.rows; ++i) {
      const Matrix row = Rows(x, i);
      if (config_.experts.shared_expert_intermediate_size > 0) {
        double gate = 1;
        if (config_.experts.shared_expert_gate) {
          const Matrix z = Apply({weights_.at(mlp + "shared_expert_gate.weight"), {}}, row);
          gate = 1 / (1 + std::exp(-z(0, 0)));
        }
        AddScaled(gate, Mlp(mlp + "shared_experts.", row), i, sum);
      }
      const std::vector<double> shares = Shares(Rows(logits, i), bias);
      for (size_t e = 0; e < shares.size(); ++e) {
        if (shares[e] == 0) continue;
        AddScaled(shares[e], Mlp(mlp + "experts." + std::to_string(e) + ".", row), i, sum);
      }
    }
    return sum;
  }

  // The weights of a position's experts; 0 for those that are not chosen.
  std::vector<double> Shares(const Matrix& logits, const Matrix& bias) const {
    const ExpertsConfig& experts = config_.experts;
    const int64_t count = experts.n_routed_experts, size = count / experts.n_group;
    double all = 0;
    for (const double z : logits.data) all += std::exp(z);
    std::vector<double> scores, ranks, of_groups;
    for (int64_t e = 0; e < count; ++e) {
      const double z = logits(0, e);
      scores.push_back(experts.scoring_func == ScoringFunc::kSigmoid ? 1 / (1 + std::exp(-z))
                                                                     : std::exp(z) / all);
      ranks.push_back(scores.back() + (bias.empty() ? 0 : bias(0, e)));
    }
    for (int64_t g = 0; g < experts.n_group; ++g) {
      std::vector<double> own(ranks.begin() + g * size, ranks.begin() + (g + 1) * size);
      std::sort(own.begin(), own.end(), std::greater<>());
      const bool two = experts.topk_method == TopkMethod::kNoauxTc && size > 1;
      of_groups.push_back(two ? own[0] + own[1] : own[0]);
    }
    // Number of others that come before one: the better ones, and equal ones of a lower index.
    const auto before = [](const std::vector<double>& values, int64_t at) {
      int64_t better = 0;
      for (int64_t i = 0; i < std::ssize(values); ++i) {
        better += values[i] > values[at] || (values[i] == values[at] && i < at) ? 1 : 0;
      }
      return better;
    };
    for (int64_t e = 0; e < count; ++e) {
      if (before(of_groups, e / size) >= experts.topk_group) {
        ranks[e] = -std::numeric_limits<double>::infinity();
      }
    }
    std::vector<double> shares(scores.size());
    double sum = 1e-20;
    for (int64_t e = 0; e < count; ++e) {
      if (before(ranks, e) < experts.num_experts_per_tok) sum += shares[e] = scores[e];
    }
    for (double& share : shares) {
      share *= experts.routed_scaling_factor / (experts.norm_topk_prob ? sum : 1);
    }
    return shares;
  }

  static Matrix Rows(const Matrix& x, int64_t row) {
    Matrix one(1, x.cols);
    std::copy_n(x.data.begin() + row * x.cols, x.cols, one.data.begin());
    return one;
  }
  static void AddScaled(double factor, const Matrix& from, int64_t row, Matrix& to) {
    for (int64_t j = 0; j < to.cols; ++j) to(row, j) += factor * from(0, j);
  }

  const ModelConfig& config_;
  const Arrays& weights_;
};

void Add(const Matrix& what, Matrix& to) {
  for (size_t i = 0; i < to.data.size(); ++i) to.data[i] += what.data[i];
}

}  // namespace

void Rotate(const Rotation& rotation, int64_t position, double* x, int64_t dim) {
  if (rotation.theta == 0) return;
  for (int64_t i = 0; i < dim / 2; ++i) {
    double& first = rotation.halves ? x[i] : x[2 * i];
    double& second = rotation.halves ? x[i + dim / 2] : x[2 * i + 1];
    const double angle =
        static_cast<double>(position) *
        std::pow(rotation.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    const double a = first, b = second;
    first = a * std::cos(angle) - b * std::sin(angle);
    second = a * std::sin(angle) + b * std::cos(angle);
  }
}

Matrix GroupedAttention::operator()(const Matrix& x, const Matrix& y) const {
  const int64_t d_qk = q.weight.rows / heads;
  const int64_t d_v = v.weight.rows / groups;
  const Matrix queries = Apply(q, x), keys = Apply(k, y), values = Apply(v, y);
  Matrix concatenated(x.rows, heads * d_v);
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t g = contiguous ? h / (heads / groups) : h % groups;
    Matrix query = Columns(queries, h * d_qk, d_qk), key = Columns(keys, g * d_qk, d_qk);
    if (!q_norm.empty()) query = RmsNorm(query, q_norm, norm_eps);
    if (!k_norm.empty()) key = RmsNorm(key, k_norm, norm_eps);
    const Matrix head = AttendOneHead(RotateRows(rotation, query), RotateRows(rotation, key),
                                      Columns(values, g * d_v, d_v),
                                      score_factor / std::sqrt(static_cast<double>(d_qk)), masking);
    CopyColumns(head, concatenated, h * d_v);
  }
  return Apply(o, concatenated);
}

Matrix LatentAttention::operator()(const Matrix& x, const Matrix& y) const {
  const Matrix queries = Apply(q, x);
  const Matrix projected = Apply({kv_a, {}}, y);
  Matrix latent = Columns(projected, 0, rank);
  if (!latent_norm.empty()) latent = RmsNorm(latent, latent_norm, norm_eps);
  const Matrix shared_key = RotateRows(rotation, Columns(projected, rank, d_rope));
  const Matrix expanded = Apply({kv_b, {}}, latent);

  const int64_t width = d_qk + d_rope;
  Matrix concatenated(x.rows, heads * d_v);
  for (int64_t h = 0; h < heads; ++h) {
    Matrix head_q(x.rows, width), head_k(y.rows, width);
    CopyColumns(Columns(queries, h * width, d_qk), head_q, 0);
    CopyColumns(RotateRows(rotation, Columns(queries, h * width + d_qk, d_rope)), head_q, d_qk);
    CopyColumns(Columns(expanded, h * (d_qk + d_v), d_qk), head_k, 0);
    CopyColumns(shared_key, head_k, d_qk);
    if (!k.empty()) {
      const int64_t g = h % (k.rows / d_qk);
      DivideByNorms(Columns(queries, h * width, d_qk), norm_eps, head_q);
      DivideByNorms(Columns(Apply({k, {}}, y), g * d_qk, d_qk), norm_eps, head_k);
      for (int64_t i = 0; i < head_q.rows; ++i) {
        for (int64_t j = 0; j < d_qk; ++j) head_q(i, j) *= q_norm(0, h * d_qk + j);
      }
    }
    const Matrix head =
        AttendOneHead(head_q, head_k, Columns(expanded, h * (d_qk + d_v) + d_qk, d_v),
                      score_factor / std::sqrt(static_cast<double>(width)), masking);
    CopyColumns(head, concatenated, h * d_v);
  }
  return Apply(o, concatenated);
}

Matrix Logits(const ModelConfig& config, const Arrays& weights, const std::vector<int64_t>& ids) {
  const Model model(config, weights);
  Matrix x = model.Embed(ids);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    Add(model.Attend(layer, model.Normalize(prefix + "input_layernorm", x)), x);
    Add(model.Mlp(layer, model.Normalize(prefix + "post_attention_layernorm", x)), x);
  }
  const Matrix& out =
      weights.at(config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  return Apply({out, {}}, model.Normalize("model.norm", x));
}

}  // namespace triptych::oracle
