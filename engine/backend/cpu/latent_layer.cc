#include "engine/backend/cpu/latent_layer.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/rotation.h"
#include "engine/kernels/row_layout.h"

namespace triptych::cpu {

LatentLayer::LatentLayer(const LatentShape& shape, Weights weights)
    : shape_(shape),
      layout_(kernels::LatentRowLayout(shape.heads, shape.rank, shape.d_rope)),
      scale_(static_cast<float>(shape.reduced_scale())),
      weights_(std::move(weights)) {}

int64_t LatentLayer::weight_bytes() const {
  int64_t bytes = weights_.in.bytes() + weights_.o.bytes();
  if (weights_.low_rank_queries) bytes += weights_.low_rank_queries->up.bytes();
  if (weights_.factors) {
    const auto& [uk, uv, expand_keys] = *weights_.factors;
    bytes += uk.bytes() + uv.bytes() + (expand_keys ? expand_keys->bytes() : 0);
  }
  return bytes;
}

int64_t LatentLayer::expanded_width() const {
  if (!weights_.factors || !weights_.factors->expand_keys) return 0;
  return shape_.heads * (shape_.d_qk + shape_.d_rope + shape_.d_v);
}

void LatentLayer::Attend(const float* x, const LayerStep& step, const kernels::PagedCache& cache,
                         kernels::KernelContext& context, float* y) const {
  const kernels::Workspace::Scope scope(context.workspace);
  const int64_t tokens = step.tokens(), stride = projected_width();
  float* const projected = context.workspace.Floats(tokens * stride);
  Project(x, tokens, projected, context);
  NormAndRotate(step, projected, context);
  kernels::WritePagedRows(projected + query_width(), stride, step.runs, cache, context);

  // [tokens, H, d_v]; premultiplied: [tokens, H, r]
  const int64_t width = shape_.heads * (weights_.factors ? shape_.d_v : shape_.rank);
  float* const attended = context.workspace.Floats(tokens * width);
  if (weights_.factors) {
    AttendFactored(step, projected, cache, context, attended);
  } else {
    kernels::PagedAttention(projected, stride, cache, layout_, {scale_}, step.runs, attended, width,
                            context);
  }
  weights_.o.Apply(attended, tokens, y, context);
}

void LatentLayer::Project(const float* x, int64_t tokens, float* projected,
                          kernels::KernelContext& context) const {
  if (!weights_.low_rank_queries) {
    weights_.in.Apply(x, tokens, projected, context);
    return;
  }
  const kernels::Workspace::Scope scope(context.workspace);
  const auto& [norm, up] = *weights_.low_rank_queries;
  const int64_t width = weights_.in.shape().outputs, rank = width - row_width();
  const int64_t stride = projected_width();
  float* const low = context.workspace.Floats(tokens * width);  // [tokens, query_rank + r + d_R]
  weights_.in.Apply(x, tokens, low, context);
  kernels::RmsNormRows(low, width, tokens, rank, norm.data(), static_cast<float>(shape_.norm_eps),
                       low, width, context);
  up.Apply(low, {width, 0}, tokens, projected, {stride, 0}, context);
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(low + t * width + rank, row_width(), projected + t * stride + query_width());
  }
}

void LatentLayer::NormAndRotate(const LayerStep& step, float* projected,
                                kernels::KernelContext& context) const {
  const int64_t tokens = step.tokens(), stride = projected_width(), d_rope = shape_.d_rope;
  float* const rows = projected + query_width();
  if (!weights_.latent_norm.empty()) {
    kernels::RmsNormRows(rows, stride, tokens, shape_.rank, weights_.latent_norm.data(),
                         static_cast<float>(shape_.norm_eps), rows, stride, context);
  }
  const int64_t head = query_width() / shape_.heads;
  if (shape_.normed_keys > 0) {
    const auto eps = static_cast<float>(shape_.norm_eps);
    float* const keys = rows + row_width();
    kernels::DivideByNorms(projected, stride, tokens, shape_.heads, head, shape_.d_qk, eps,
                           context);
    kernels::InverseNorms(keys, stride, tokens, shape_.normed_keys, shape_.d_qk, eps, keys, stride,
                          context);
  }
  if (d_rope == 0) return;
  const float* const table = weights_.rotation->data();
  kernels::RotateHeads(table, step.positions.data(), tokens,
                       {.heads = 1, .dim = d_rope, .head_stride = 0, .row_stride = stride},
                       rows + shape_.rank, context);
  kernels::RotateHeads(
      table, step.positions.data(), tokens,
      {.heads = shape_.heads, .dim = d_rope, .head_stride = head, .row_stride = stride},
      projected + head - d_rope, context);
}

void LatentLayer::AttendFactored(const LayerStep& step, const float* projected,
                                 const kernels::PagedCache& cache, kernels::KernelContext& context,
                                 float* values) const {
  const std::span<const kernels::TokenRun> runs = step.runs;
  int64_t token = 0;
  for (size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    // Consecutive reduced runs are attended together, an expanded run by itself.
    const bool expand = weights_.factors->expand_keys && step.expand[begin];
    for (end = begin + 1; !expand && end < runs.size(); ++end) {
      if (weights_.factors->expand_keys && step.expand[end]) break;
    }
    int64_t count = 0;
    for (size_t i = begin; i < end; ++i) count += runs[i].count;
    const Span span{.runs = runs.subspan(begin, end - begin),
                    .tokens = count,
                    .queries = projected + token * projected_width(),
                    .values = values + token * shape_.heads * shape_.d_v};
    if (expand) {
      AttendExpanded(span, step.kept[begin], cache, context);
    } else {
      AttendReduced(span, cache, context);
    }
    token += count;
  }
}

void LatentLayer::AttendReduced(const Span& span, const kernels::PagedCache& cache,
                                kernels::KernelContext& context) const {
  const kernels::Workspace::Scope scope(context.workspace);
  const int64_t heads = shape_.heads, rank = shape_.rank, d_rope = shape_.d_rope;
  const int64_t head = shape_.d_qk + d_rope, reduced_head = rank + d_rope;
  const int64_t width = heads * reduced_head;
  float* const queries = context.workspace.Floats(span.tokens * width);  // [tokens, H, r + d_R]
  weights_.factors->uk.Apply(span.queries, {projected_width(), head}, span.tokens, queries,
                             {width, reduced_head}, context);
  for (int64_t t = 0; t < span.tokens && d_rope > 0; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      std::copy_n(span.queries + t * projected_width() + h * head + shape_.d_qk, d_rope,
                  queries + t * width + h * reduced_head + rank);
    }
  }
  float* const latents = context.workspace.Floats(span.tokens * heads * rank);  // [tokens, H, r]
  kernels::PagedAttention(queries, width, cache, layout_, {scale_}, span.runs, latents,
                          heads * rank, context);
  weights_.factors->uv.Apply(latents, span.tokens, span.values, context);
}

void LatentLayer::AttendExpanded(const Span& span, ExpandedRows* kept,
                                 const kernels::PagedCache& cache,
                                 kernels::KernelContext& context) const {
  const kernels::Workspace::Scope scope(context.workspace);
  const kernels::TokenRun& run = span.runs.front();
  const int64_t key_width = shape_.d_qk + shape_.d_rope, end = run.start + run.count;
  const int64_t panels = CeilDiv(end, kernels::kPanelPositions);
  // Heads whose keys and values are expanded at once.
  const int64_t heads = kept != nullptr ? shape_.heads : 1;
  const kernels::PagedRowLayout layout =
      kernels::GroupedRowLayout(heads, heads, key_width, shape_.d_v);
  const int64_t width = heads * (key_width + shape_.d_v);
  const kernels::PagedCache keys_and_values =
      kept != nullptr
          ? kept->cache
          : kernels::PagedCache{
                .elements = context.workspace.Floats(panels * kernels::kPanelPositions * width),
                .format = CacheFormat::kFloat32,
                .row_width = width,
                .block_positions = kernels::kPanelPositions};
  auto* const blocks = context.workspace.Take<int32_t>(panels);
  std::iota(blocks, blocks + panels, 0);

  const int64_t first = kept != nullptr ? kept->length : 0;
  float* const latents = context.workspace.Floats((end - first) * row_width());
  kernels::ReadPagedRows(cache, {run.blocks, first, end - first}, latents);
  float* const norms = context.workspace.Floats((end - first) * shape_.normed_keys);
  kernels::ReadInverseNorms(cache, {run.blocks, first, end - first}, norms, end - first);
  const kernels::TokenRun queries{blocks, run.start, run.count};
  for (int64_t h = 0; h < shape_.heads; h += heads) {
    Expand(latents, norms, h, heads, {blocks, first, end - first}, keys_and_values, context);
    kernels::PagedAttention(span.queries + h * key_width, projected_width(), keys_and_values,
                            layout, {scale_}, {&queries, 1}, span.values + h * shape_.d_v,
                            shape_.heads * shape_.d_v, context);
  }
  if (kept != nullptr) kept->length = end;
}

void LatentLayer::Expand(const float* latents, const float* norms, int64_t head, int64_t heads,
                         const kernels::TokenRun& to, const kernels::PagedCache& keys_and_values,
                         kernels::KernelContext& context) const {
  constexpr int64_t kRows = 256;  // at a time, to stay in the cache
  const kernels::Workspace::Scope scope(context.workspace);
  const int64_t rank = shape_.rank, d_rope = shape_.d_rope, d_v = shape_.d_v;
  const int64_t key_width = shape_.d_qk + d_rope, width = heads * (key_width + d_v);
  // [rows, keys of these heads, then values]
  float* const rows = context.workspace.Floats(std::min(to.count, kRows) * width);
  for (int64_t done = 0; done < to.count; done += kRows) {
    const int64_t count = std::min(to.count - done, kRows);
    const float* const from = latents + done * row_width();
    for (int64_t h = 0; h < heads; ++h) {
      float* const keys = rows + h * key_width;
      weights_.factors->expand_keys->ApplyGroup(head + h, from, row_width(), count, keys, width,
                                                context);
      for (int64_t i = 0; i < count && d_rope > 0; ++i) {
        std::copy_n(from + i * row_width() + rank, d_rope, keys + i * width + shape_.d_qk);
      }
      for (int64_t i = 0; i < count && shape_.normed_keys > 0; ++i) {
        const float norm = norms[(head + h) % shape_.normed_keys * to.count + done + i];
        float* const key = keys + i * width;
        std::for_each(key, key + key_width, [=](float& element) { element *= norm; });
      }
      weights_.factors->uv.ApplyGroup(head + h, from, row_width(), count,
                                      rows + heads * key_width + h * d_v, width, context);
    }
    const kernels::TokenRun piece{to.blocks, to.start + done, count};
    kernels::WritePagedRows(rows, width, {&piece, 1}, keys_and_values, context);
  }
}

}  // namespace triptych::cpu
