#include "engine/attention/packed_latent_attention.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/attention/cost_model.h"
#include "engine/attention/latent_attention.h"
#include "engine/base/ceil_div.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/threads.h"

namespace triptych {

PackedLatentAttention::PackedLatentAttention(const LatentShape& shape,
                                             const ReducedWeights& weights, Rotary rotary,
                                             bool vanilla)
    : heads_(shape.heads),
      d_qk_(shape.d_qk),
      d_v_(shape.d_v),
      rank_(shape.rank),
      d_rope_(shape.d_rope),
      factored_(weights.form == ReducedForm::kFactored),
      scale_(static_cast<float>(shape.reduced_scale())),
      q_width_(weights.q.weight.size(0)),
      norm_eps_(static_cast<float>(shape.norm_eps)),
      rotary_(std::move(rotary)),
      latent_norm_(ToFloats(weights.latent_norm)),
      packed_in_(Pack({weights.q, weights.kv_a})),
      packed_o_(Pack({weights.o})) {
  if (!factored_) return;
  packed_uk_ = PackHeads(weights.uk.transpose(1, 2));
  packed_uv_ = PackHeads(weights.uv);
  if (!vanilla || !VanillaCanPay(shape)) return;
  const at::Tensor gap = at::zeros({d_rope_, rank_}, weights.uk.options());
  for (int64_t h = 0; h < heads_; ++h) {
    packed_kv_.push_back(Pack({{at::cat({weights.uk[h], gap, weights.uv[h]}), {}}}));
  }
}

void PackedLatentAttention::Attend(const float* x, const PagedStep& step, const at::Tensor& cache,
                                   Workspace& workspace, float* y) const {
  const Workspace::Scope scope(workspace);
  const int64_t tokens = step.tokens(), stride = in_width(), row_width = rank_ + d_rope_;
  float* const projected = workspace.Floats(tokens * stride);  // [tokens, q_width + r + d_R]
  packed_in_.Apply(x, tokens, projected, ComputeContext());
  float* const rows = projected + q_width_;
  if (!latent_norm_.empty()) {
    RmsNormRows(rows, stride, tokens, rank_, latent_norm_.data(), norm_eps_, rows, stride,
                ComputeContext());
  }
  if (d_rope_ > 0) {
    const int64_t head = q_width_ / heads_;
    rotary_.Apply({.heads = 1, .dim = d_rope_, .head_stride = 0, .row_stride = stride},
                  step.positions, rows + rank_);
    rotary_.Apply({.heads = heads_, .dim = d_rope_, .head_stride = head, .row_stride = stride},
                  step.positions, projected + head - d_rope_);
  }
  WriteRows(rows, stride, step.sequences, cache);

  if (!factored_) {
    const int64_t width = heads_ * rank_;
    float* const latents = workspace.Floats(tokens * width);  // [tokens, H, r]
    triptych::Attend(projected, stride, cache, LatentRowLayout(heads_, rank_, d_rope_), scale_,
                     step.sequences, latents, width);
    packed_o_.Apply(latents, tokens, y, ComputeContext());
    return;
  }
  float* const values = workspace.Floats(tokens * heads_ * d_v_);  // [tokens, H, d_v]
  const bool any_vanilla =
      !packed_kv_.empty() && std::count(step.vanilla.begin(), step.vanilla.end(), true) > 0;
  if (!any_vanilla) {
    AttendReduced({step.sequences, tokens, projected, values}, cache, workspace);
  } else {
    int64_t token = 0;
    std::vector<TokenRun> together;
    for (size_t i = 0; i < step.sequences.size(); ++i) {
      together.push_back(step.sequences[i]);
      const bool vanilla = step.vanilla[i];
      if (!vanilla && i + 1 < step.sequences.size() && !step.vanilla[i + 1]) continue;
      int64_t count = 0;
      for (const TokenRun& sequence : together) count += sequence.count;
      const Tokens some{together, count, projected + token * stride,
                        values + token * heads_ * d_v_};
      if (vanilla) {
        AttendVanilla(some, cache, workspace);
      } else {
        AttendReduced(some, cache, workspace);
      }
      token += count;
      together.clear();
    }
  }
  packed_o_.Apply(values, tokens, y, ComputeContext());
}

void PackedLatentAttention::AttendReduced(const Tokens& tokens, const at::Tensor& cache,
                                          Workspace& workspace) const {
  const Workspace::Scope scope(workspace);
  const int64_t head = d_qk_ + d_rope_, reduced_head = rank_ + d_rope_;
  const int64_t width = heads_ * reduced_head;
  float* const queries = workspace.Floats(tokens.count * width);  // [tokens, H, r + d_R]
  packed_uk_.Apply(tokens.queries, {in_width(), head}, tokens.count, queries, {width, reduced_head},
                   ComputeContext());
  for (int64_t t = 0; t < tokens.count && d_rope_ > 0; ++t) {
    for (int64_t h = 0; h < heads_; ++h) {
      std::copy_n(tokens.queries + t * in_width() + h * head + d_qk_, d_rope_,
                  queries + t * width + h * reduced_head + rank_);
    }
  }
  float* const latents = workspace.Floats(tokens.count * heads_ * rank_);  // [tokens, H, r]
  triptych::Attend(queries, width, cache, LatentRowLayout(heads_, rank_, d_rope_), scale_,
                   tokens.sequences, latents, heads_ * rank_);
  packed_uv_.Apply(latents, tokens.count, tokens.values, ComputeContext());
}

void PackedLatentAttention::AttendVanilla(const Tokens& tokens, const at::Tensor& cache,
                                          Workspace& workspace) const {
  constexpr int64_t kBlockPositions = 16;
  const Workspace::Scope scope(workspace);
  const TokenRun& sequence = tokens.sequences.front();
  const int64_t length = sequence.start + sequence.count;
  const int64_t row_width = rank_ + d_rope_, width = d_qk_ + d_rope_ + d_v_;
  float* const rows = workspace.Floats(length * row_width);  // [length, r + d_R]
  ReadRows(cache, sequence.blocks, length, rows);
  // A cache of one head: a row is its key, then its value.
  const int64_t blocks = CeilDiv(length, kBlockPositions);
  float* const expanded = workspace.Floats(length * width);  // [length, d_qk + d_R + d_v]
  float* const head_cache = workspace.Floats(blocks * kBlockPositions * width);  // the same, paged
  std::vector<int32_t> table(blocks);
  std::iota(table.begin(), table.end(), 0);
  const PagedRowLayout layout{.heads = 1,
                              .groups = 1,
                              .key_width = d_qk_ + d_rope_,
                              .value_offset = d_qk_ + d_rope_,
                              .value_width = d_v_};
  const PagedCache head_rows{head_cache, CacheFormat::kFloat32, width, kBlockPositions};
  const TokenRun all{table.data(), 0, length};
  const TokenRun added{table.data(), sequence.start, sequence.count};
  for (int64_t h = 0; h < heads_; ++h) {
    packed_kv_[h].Apply(rows, {row_width, 0}, length, expanded, {width, 0}, ComputeContext());
    for (int64_t p = 0; p < length && d_rope_ > 0; ++p) {
      std::copy_n(rows + p * row_width + rank_, d_rope_, expanded + p * width + d_qk_);
    }
    WritePagedRows(expanded, width, {&all, 1}, head_rows, ComputeContext());
    PagedAttention(tokens.queries + h * (d_qk_ + d_rope_), in_width(), head_rows, layout, scale_,
                   {&added, 1}, tokens.values + h * d_v_, heads_ * d_v_, ComputeContext());
  }
}

}  // namespace triptych
