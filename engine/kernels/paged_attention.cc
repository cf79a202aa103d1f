#include "engine/kernels/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "engine/base/ceil_div.h"
#include "engine/kernels/attention_tiles.h"
#include "engine/kernels/elements.h"
#include "engine/kernels/hadamard.h"

namespace triptych::kernels {
namespace {

// Up to kSplitQueries queries that are attended together: a run's queries of one group, counted
// token by token, from `first` on, for each of `groups` groups.
struct QueryBundle {
  const TokenRun* run;
  const PagedScores* scores;
  int64_t token;   // index in q and out of the run's first token
  int64_t shared;  // heads that read one group
  int64_t group;   // the first one
  int64_t groups;
  int64_t first;
  int64_t queries;      // of each group
  int64_t begin_split;  // of the context: the first one that the first query needs
  int64_t splits;       // from there to the last one that the last query needs
  int64_t first_split;  // the sum of `splits` over all bundles before
  int64_t first_row;    // the sum of rows() * splits over all bundles before

  // Rows are the queries of the first group, then those of the next one.
  int64_t rows() const { return groups * queries; }
  int64_t end_split() const { return begin_split + splits; }
  int64_t Position(int64_t row) const { return run->start + (first + row % queries) / shared; }
  // A row attends positions Begin(row) to End(row) - 1.
  int64_t Begin(int64_t row) const { return scores->Begin(Position(row)); }
  int64_t End(int64_t row) const { return Position(row) + 1; }
  // The splits of the context that a row needs: BeginSplit(row) to EndSplit(row) - 1.
  int64_t BeginSplit(int64_t row) const { return Begin(row) / kSplitPositions; }
  int64_t EndSplit(int64_t row) const { return CeilDiv(End(row), kSplitPositions); }
};

// Division of one call into bundles, splits and tasks.
struct Plan {
  std::span<const QueryBundle> bundles;
  int64_t splits = 0;  // of all bundles
  int64_t rows = 0;    // of all bundles, counted once per split
  int64_t tasks = 1;   // KernelContext::pool.TaskCount of the work

  int64_t count() const { return std::ssize(bundles); }
  // Index of the bundle of split i, counted over all bundles.
  int64_t Find(int64_t i) const {
    return std::partition_point(
               bundles.begin(), bundles.end(),
               [&](const QueryBundle& bundle) { return bundle.first_split + bundle.splits <= i; }) -
           bundles.begin();
  }
};

// The bundles are in the workspace.
Plan MakePlan(const PagedRowLayout& layout, const PagedScores& scores,
              std::span<const TokenRun> runs, KernelContext& context) {
  const int64_t shared = layout.heads / layout.groups;
  // Positions that the first `end` tokens of a sequence attend, together.
  const auto attended = [&](int64_t end) {
    const int64_t rising = std::min(end, scores.window);
    return rising * (rising + 1) / 2 + (end - rising) * rising;
  };
  int64_t work = 0, group_splits = 0;  // multiply-adds; splits, for one group
  for (const TokenRun& run : runs) {
    const int64_t end = run.start + run.count;
    work += (attended(end) - attended(run.start)) * layout.heads *
            (layout.key_width + layout.value_width);
    group_splits += (CeilDiv(end, kSplitPositions) - scores.Begin(run.start) / kSplitPositions) *
                    CeilDiv(run.count * shared, kSplitQueries);
  }
  Plan plan;
  plan.tasks = context.pool.TaskCount(work);
  // Most groups per bundle that leave enough bundles for all tasks.
  const int64_t most_groups = std::max<int64_t>(layout.groups * group_splits / plan.tasks, 1);
  const auto groups_together = [&](const TokenRun& run) {
    return std::clamp<int64_t>(kSplitQueries / (run.count * shared), 1, most_groups);
  };

  int64_t count = 0;
  for (const TokenRun& run : runs) {
    count +=
        CeilDiv(layout.groups, groups_together(run)) * CeilDiv(run.count * shared, kSplitQueries);
  }
  auto* const bundles = context.workspace.Take<QueryBundle>(count);
  plan.bundles = {bundles, static_cast<size_t>(count)};
  QueryBundle* bundle = bundles;
  int64_t token = 0;
  for (const TokenRun& run : runs) {
    const int64_t queries = run.count * shared, groups = groups_together(run);
    for (int64_t group = 0; group < layout.groups; group += groups) {
      for (int64_t first = 0; first < queries; first += kSplitQueries, ++bundle) {
        *bundle = {.run = &run,
                   .scores = &scores,
                   .token = token,
                   .shared = shared,
                   .group = group,
                   .groups = std::min(groups, layout.groups - group),
                   .first = first,
                   .queries = std::min(kSplitQueries, queries - first),
                   .begin_split = 0,
                   .splits = 0,
                   .first_split = plan.splits,
                   .first_row = plan.rows};
        bundle->begin_split = bundle->BeginSplit(0);
        bundle->splits = bundle->EndSplit(bundle->queries - 1) - bundle->begin_split;
        plan.splits += bundle->splits;
        plan.rows += bundle->rows() * bundle->splits;
      }
    }
    token += run.count;
  }
  return plan;
}

// Results of one split for the rows of a bundle.
struct SplitResults {
  float* max;  // [rows]
  float* sum;  // [rows]
  float* out;  // [rows, value_width]; a row's first split uses the call's `out` instead
};

// Takes memory for the results of `rows` rows.
SplitResults TakeResults(int64_t rows, int64_t value_width, Workspace& workspace) {
  float* const floats = workspace.Floats(rows * (value_width + 2));
  return {floats, floats + rows, floats + rows * 2};
}

// The results of all rows from `row` on.
SplitResults From(const SplitResults& all, int64_t row, int64_t value_width) {
  return {all.max + row, all.sum + row, all.out + row * value_width};
}

// Element type of copied panels.
template <typename Element>
using Gathered = std::conditional_t<kHasScale<Element>, float, Element>;

// Scratch memory of one thread.
template <typename Element>
struct Scratch {
  float* q;                     // [kSplitQueries, key_width]
  float* scores;                // [kSplitQueries, kSplitPositions]
  float* scaled;                // likewise; or empty
  float* sums;                  // [kSplitQueries, value_width, kPanelPositions]
  float* norms;                 // [inverse_norms, kSplitPositions]; or empty
  Gathered<Element>* gathered;  // [kSplitPanels, keys, then values, kPanelPositions]; or empty
  SplitResults results;         // of 2 * kSplitQueries rows
};

// Scratch for each thread of the pool: [threads].
template <typename Element>
const Scratch<Element>* TakeScratch(const Plan& plan, const PagedRowLayout& layout,
                                    const PagedCache& cache, KernelContext& context) {
  Workspace& workspace = context.workspace;
  const int64_t threads = context.pool.threads();
  int64_t gathered = 0;
  if (cache.block_positions % kPanelPositions != 0) {
    for (const QueryBundle& bundle : plan.bundles) gathered = std::max(gathered, bundle.groups);
    gathered *= (layout.key_width + layout.value_width) * kSplitPositions;
  }
  auto* const all = workspace.Take<Scratch<Element>>(threads);
  for (int64_t i = 0; i < threads; ++i) {
    all[i] = {.q = workspace.Floats(kSplitQueries * layout.key_width),
              .scores = workspace.Floats(kSplitQueries * kSplitPositions),
              .scaled = workspace.Floats(kHasScale<Element> ? kSplitQueries * kSplitPositions : 0),
              .sums = workspace.Floats(kSplitQueries * layout.value_width * kPanelPositions),
              .norms = workspace.Floats(cache.inverse_norms * kSplitPositions),
              .gathered = workspace.Take<Gathered<Element>>(gathered),
              .results = TakeResults(2 * kSplitQueries, layout.value_width, workspace)};
  }
  return all;
}

// The arguments of one call, and the computations of a bundle.
template <typename Element>
class BundleAttention {
 public:
  BundleAttention(const float* q, int64_t q_stride, const PagedCache& cache,
                  const Element* elements, const PagedRowLayout& layout, const PagedScores& scores,
                  float* out, int64_t out_stride)
      : q_(q),
        q_stride_(q_stride),
        cache_(cache),
        elements_(elements),
        block_elements_(cache.block_bytes() / static_cast<int64_t>(sizeof(Element))),
        layout_(layout),
        scale_((scores.softcap > 0 ? scores.scale / scores.softcap
                                   : scores.scale * std::numbers::log2e_v<float>) /
               static_cast<float>(cache.rotation)),
        softcap_(scores.softcap * std::numbers::log2e_v<float>),
        out_(out),
        out_stride_(out_stride) {}

  int64_t value_width() const { return layout_.value_width; }

  // Attends one split of the context.
  void AttendOne(const QueryBundle& bundle, int64_t split, const SplitResults& results,
                 const Scratch<Element>& scratch) const {
    const int64_t split_begin = split * kSplitPositions, split_end = split_begin + kSplitPositions;
    // Earlier queries may attend no position of a later split, and later ones none of an earlier.
    int64_t skipped = 0, attending = bundle.queries;
    while (bundle.End(skipped) <= split_begin) ++skipped;
    while (bundle.Begin(attending - 1) >= split_end) --attending;
    const int64_t queries = attending - skipped;
    // Panels before the window of the first query are not read.
    const int64_t begin =
        std::max(split_begin, bundle.Begin(skipped) / kPanelPositions * kPanelPositions);
    int64_t hidden[kSplitQueries], visible[kSplitQueries];
    for (int64_t i = 0; i < queries; ++i) {
      hidden[i] = std::max<int64_t>(bundle.Begin(skipped + i) - begin, 0);
      visible[i] = std::min(bundle.End(skipped + i), split_end) - begin;
    }
    // The bundle's row of the i-th row that attends this split.
    const auto row_of = [&](int64_t i) {
      return i / queries * bundle.queries + skipped + i % queries;
    };
    const int64_t rows = bundle.groups * queries;
    float* out[kSplitQueries];
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = row_of(i);
      CopyQuery(bundle, row, scratch.q + i * layout_.key_width);
      out[i] = split == bundle.BeginSplit(row) ? Out(bundle, row)
                                               : results.out + row * layout_.value_width;
    }
    const float* norms[kSplitQueries];
    if (cache_.inverse_norms > 0) {
      ReadNorms(bundle, begin, hidden[0], visible[queries - 1], scratch.norms);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t head = TokenAndHead(bundle, row_of(i)).head;
        norms[i] = scratch.norms + head % cache_.inverse_norms * kSplitPositions;
      }
    }
    float max[kSplitQueries], sum[kSplitQueries];
    const auto attend = [&]<typename Read>(const auto& point) {
      const Read* panels[2 * kSplitPanels + kStreams];  // of keys, of values, to prefetch
      const uint16_t* scales[kSplitPanels + kStreams];
      AttentionSplit<Read> s{.groups = bundle.groups,
                             .queries = queries,
                             .q = scratch.q,
                             .hidden = hidden,
                             .visible = visible,
                             .panels = CeilDiv(visible[queries - 1], kPanelPositions),
                             .keys = panels,
                             .values = nullptr,
                             .scales = scales,
                             .key_offset = KeyOffset(bundle),
                             .value_offset = ValueOffset(bundle),
                             .scaled = scratch.scaled,
                             .stride = kPanelPositions,
                             .key_width = layout_.key_width,
                             .value_width = layout_.value_width,
                             .inverse_norms = cache_.inverse_norms > 0 ? norms : nullptr,
                             .softcap = softcap_,
                             .scores = scratch.scores,
                             .sums = scratch.sums,
                             .max = max,
                             .sum = sum,
                             .out = out};
      s.values = panels + s.panels;
      point(panels, scales, s);
      AttendSplit(s);
    };
    if (cache_.block_positions % kPanelPositions == 0) {
      attend.template operator()<Element>([&](auto& panels, auto& scales, auto& s) {
        PointAtPanels(bundle, begin, panels, scales, s);
      });
    } else {
      attend.template operator()<Gathered<Element>>([&](auto& panels, auto&, auto& s) {
        GatherPanels(bundle, begin, scratch.gathered, panels, s);
      });
    }
    for (int64_t i = 0; i < rows; ++i) {
      results.max[row_of(i)] = max[i];
      results.sum[row_of(i)] = sum[i];
    }
  }

  // Merges the result of a later split into a row. Not inlined, so that every caller rounds alike.
  [[gnu::noinline]] void Merge(const QueryBundle& bundle, int64_t row, const SplitResults& later,
                               const SplitResults& sofar) const {
    const float max = std::max(sofar.max[row], later.max[row]);
    const float keep = std::exp2(sofar.max[row] - max), add = std::exp2(later.max[row] - max);
    const float* from = later.out + row * layout_.value_width;
    float* to = Out(bundle, row);
    for (int64_t c = 0; c < layout_.value_width; ++c) to[c] = to[c] * keep + from[c] * add;
    sofar.sum[row] = sofar.sum[row] * keep + later.sum[row] * add;
    sofar.max[row] = max;
  }

  // Divides a merged row by its sum of weights, and undoes the rotation of its values.
  void Normalize(const QueryBundle& bundle, int64_t row, const SplitResults& sofar) const {
    const float inverse = 1 / sofar.sum[row] / static_cast<float>(cache_.rotation);
    float* out = Out(bundle, row);
    Hadamard(out, layout_.value_width, cache_.rotation);
    for (int64_t c = 0; c < layout_.value_width; ++c) out[c] *= inverse;
  }

 private:
  struct TokenHead {
    int64_t token;
    int64_t head;
  };
  // Head h = j * G + group.
  TokenHead TokenAndHead(const QueryBundle& bundle, int64_t row) const {
    const int64_t query = bundle.first + row % bundle.queries;
    const int64_t group = bundle.group + row / bundle.queries;
    return {bundle.token + query / bundle.shared, query % bundle.shared * layout_.groups + group};
  }
  float* Out(const QueryBundle& bundle, int64_t row) const {
    const auto [token, head] = TokenAndHead(bundle, row);
    return out_ + token * out_stride_ + head * layout_.value_width;
  }
  // The block of a position.
  const Element* BlockAt(const QueryBundle& bundle, int64_t position) const {
    return elements_ + bundle.run->BlockOf(position, cache_.block_positions) * block_elements_;
  }
  // The first element of the panel that begins at a position.
  const Element* At(const QueryBundle& bundle, int64_t position) const {
    return BlockAt(bundle, position) + position % cache_.block_positions / kNumbers<Element>;
  }
  // The first scale of a position's row.
  const uint16_t* ScalesAt(const QueryBundle& bundle, int64_t position) const {
    const auto* const scales = reinterpret_cast<const uint16_t*>(
        reinterpret_cast<const std::byte*>(BlockAt(bundle, position)) + cache_.scales_offset());
    return scales + position % cache_.block_positions;
  }
  // Elements of a row before the bundle's keys, and before its values.
  int64_t KeyOffset(const QueryBundle& bundle) const { return bundle.group * layout_.key_width; }
  int64_t ValueOffset(const QueryBundle& bundle) const {
    return layout_.value_offset + bundle.group * layout_.value_width;
  }

  // Copies a row's query, scaled.
  void CopyQuery(const QueryBundle& bundle, int64_t row, float* to) const {
    const auto [token, head] = TokenAndHead(bundle, row);
    const float* from = q_ + token * q_stride_ + head * layout_.key_width;
    for (int64_t k = 0; k < layout_.key_width; ++k) to[k] = scale_ * from[k];
  }

  // Reads the inverse norms of positions `hidden` to `visible` - 1 from `begin` on. The others,
  // which no query attends, are zero.
  void ReadNorms(const QueryBundle& bundle, int64_t begin, int64_t hidden, int64_t visible,
                 float* norms) const {
    std::fill_n(norms, cache_.inverse_norms * kSplitPositions, 0.0f);
    const TokenRun run{bundle.run->blocks, begin + hidden, visible - hidden, bundle.run->stride};
    ReadInverseNorms(cache_, run, norms + hidden, kSplitPositions);
  }

  // Points a split at panels in the cache.
  void PointAtPanels(const QueryBundle& bundle, int64_t begin, const Element** panels,
                     const uint16_t** scales, AttentionSplit<Element>& s) const {
    s.stride = cache_.block_positions;
    const int64_t key = KeyOffset(bundle) * s.stride / kNumbers<Element>;
    const int64_t value = ValueOffset(bundle) * s.stride / kNumbers<Element>;
    const Element** const values = panels + s.panels;
    for (int64_t i = 0; i < s.panels; ++i) {
      const Element* panel = At(bundle, begin + i * kPanelPositions);
      panels[i] = panel + key;
      values[i] = panel + value;
      if constexpr (kHasScale<Element>) scales[i] = ScalesAt(bundle, begin + i * kPanelPositions);
    }
    const int64_t length = bundle.End(bundle.rows() - 1);
    const int64_t next_split = (begin / kSplitPositions + 1) * kSplitPositions;
    for (int64_t i = 0; i < kStreams; ++i) {
      const int64_t next = next_split + i * kPanelPositions;
      const bool there = next < length;
      values[s.panels + i] = there ? At(bundle, next) + key : panels[0];
      if constexpr (kHasScale<Element>) {
        scales[s.panels + i] = there ? ScalesAt(bundle, next) : scales[0];
      }
    }
  }

  // Copies panels that straddle blocks, and points a split at the copies.
  void GatherPanels(const QueryBundle& bundle, int64_t begin, Gathered<Element>* gathered,
                    const Gathered<Element>** panels, AttentionSplit<Gathered<Element>>& s) const {
    const int64_t key = KeyOffset(bundle), value = ValueOffset(bundle);
    const int64_t key_elements = bundle.groups * layout_.key_width;
    const int64_t elements = key_elements + bundle.groups * layout_.value_width;
    const int64_t panel_elements = elements * kPanelPositions;
    for (int64_t i = 0; i < s.panels; ++i) {
      panels[i] = gathered + i * panel_elements;
      panels[s.panels + i] = panels[i] + key_elements * kPanelPositions;
    }
    std::fill_n(panels + 2 * s.panels, kStreams, gathered);
    // Nothing may be copied to the beginning of the first panel and to the end of the last one.
    for (const int64_t panel : {int64_t{0}, s.panels - 1}) {
      std::fill_n(gathered + panel * panel_elements, panel_elements, Gathered<Element>{0});
    }
    for (int64_t p = s.hidden[0]; p < s.visible[s.queries - 1]; ++p) {
      const Element* const block = BlockAt(bundle, begin + p);
      const int64_t column = (begin + p) % cache_.block_positions;
      [[maybe_unused]] const uint16_t* scales = nullptr;
      if constexpr (kHasScale<Element>) scales = ScalesAt(bundle, begin + p);
      Gathered<Element>* to = gathered + p / kPanelPositions * panel_elements + p % kPanelPositions;
      for (int64_t e = 0; e < elements; ++e, to += kPanelPositions) {
        const int64_t element = e < key_elements ? key + e : value + e - key_elements;
        if constexpr (kHasScale<Element>) {
          *to = static_cast<float>(IntegerAt(block, element, column, cache_.block_positions)) *
                FromBFloat16(scales[element / kQuantizationGroup * cache_.block_positions]);
        } else {
          *to = block[element * cache_.block_positions + column];
        }
      }
    }
  }

  const float* q_;
  int64_t q_stride_;
  const PagedCache& cache_;
  const Element* elements_;  // of the cache
  int64_t block_elements_;   // from one block to the next
  const PagedRowLayout& layout_;
  float scale_;    // of scores, including log2(e), or 1 / softcap
  float softcap_;  // times log2(e)
  float* out_;
  int64_t out_stride_;
};

// Attends the splits of a bundle in order and merges each at once.
template <typename Element>
void AttendWhole(const BundleAttention<Element>& attention, const QueryBundle& bundle,
                 const Scratch<Element>& scratch) {
  const SplitResults sofar = scratch.results;
  const SplitResults later = From(sofar, kSplitQueries, attention.value_width());
  for (int64_t split = bundle.begin_split; split < bundle.end_split(); ++split) {
    attention.AttendOne(bundle, split, later, scratch);
    for (int64_t row = 0; row < bundle.rows(); ++row) {
      if (split == bundle.BeginSplit(row)) {
        sofar.max[row] = later.max[row], sofar.sum[row] = later.sum[row];
      } else if (split > bundle.BeginSplit(row) && split < bundle.EndSplit(row)) {
        attention.Merge(bundle, row, later, sofar);
      }
    }
  }
  for (int64_t row = 0; row < bundle.rows(); ++row) attention.Normalize(bundle, row, sofar);
}

// The layout of rows as they are stored: in elements, wide numbers first.
PagedRowLayout StoredLayout(PagedRowLayout layout, const PagedCache& cache) {
  layout.key_width += cache.wide;
  layout.value_offset += 2 * cache.wide;
  return layout;
}

// The queries of stored rows: [tokens, heads, key_width + wide], in the workspace. Their products
// with these are `rotation` times those with the rows.
const float* StoredQueries(const float* q, int64_t q_stride, const PagedRowLayout& layout,
                           std::span<const TokenRun> runs, const PagedCache& cache,
                           KernelContext& context) {
  int64_t tokens = 0;
  for (const TokenRun& run : runs) tokens += run.count;
  const int64_t wide = cache.wide, others = layout.key_width - wide;
  const int64_t width = layout.key_width + wide;
  float* const stored = context.workspace.Floats(tokens * layout.heads * width);
  const int64_t tasks = std::min(tokens, context.pool.TaskCount(tokens * layout.heads * width * 8));
  const auto rotation = static_cast<float>(cache.rotation);
  context.pool.Run(tasks, [&](int64_t task) {
    for (int64_t t = tokens * task / tasks; t < tokens * (task + 1) / tasks; ++t) {
      for (int64_t head = 0; head < layout.heads; ++head) {
        const float* const from = q + t * q_stride + head * layout.key_width;
        float* const to = stored + (t * layout.heads + head) * width;
        for (int64_t c = 0; c < wide; ++c) {
          to[2 * c] = rotation * from[others + c];
          to[2 * c + 1] = to[2 * c] / static_cast<float>(kWideSteps);
        }
        std::copy_n(from, others, to + 2 * wide);
        Hadamard(to + 2 * wide, others, cache.rotation);
      }
    }
  });
  return stored;
}

// Each bundle is attended by one thread.
template <typename Element>
void RunWhole(const BundleAttention<Element>& attention, const Plan& plan,
              const Scratch<Element>* scratch, KernelContext& context) {
  const int64_t tasks = std::min(plan.tasks, plan.count());
  context.pool.Run(tasks, [&](int64_t task, int thread) {
    // The bundles that begin in this task's part of all splits.
    const int64_t begin = plan.splits * task / tasks, end = plan.splits * (task + 1) / tasks;
    int64_t i = plan.Find(begin);
    if (plan.bundles[i].first_split < begin) ++i;
    for (; i < plan.count() && plan.bundles[i].first_split < end; ++i) {
      AttendWhole(attention, plan.bundles[i], scratch[thread]);
    }
  });
}

// For few bundles, which threads share: attends all splits separately, then merges them.
template <typename Element>
void RunShared(const BundleAttention<Element>& attention, const Plan& plan,
               const Scratch<Element>* scratch, KernelContext& context) {
  const int64_t value_width = attention.value_width();
  const SplitResults all = TakeResults(plan.rows, value_width, context.workspace);
  const auto results = [&](const QueryBundle& bundle, int64_t split) {
    return From(all, bundle.first_row + (split - bundle.begin_split) * bundle.rows(), value_width);
  };
  const int64_t tasks = std::min(plan.tasks, plan.splits);
  context.pool.Run(tasks, [&](int64_t task, int thread) {
    for (int64_t i = plan.splits * task / tasks; i < plan.splits * (task + 1) / tasks; ++i) {
      const QueryBundle& bundle = plan.bundles[plan.Find(i)];
      const int64_t split = bundle.begin_split + i - bundle.first_split;
      attention.AttendOne(bundle, split, results(bundle, split), scratch[thread]);
    }
  });
  const int64_t rows = plan.count() * kSplitQueries;
  const int64_t merge_tasks =
      std::min(rows, context.pool.TaskCount(plan.splits * kSplitQueries * value_width));
  context.pool.Run(merge_tasks, [&](int64_t task) {
    for (int64_t i = rows * task / merge_tasks; i < rows * (task + 1) / merge_tasks; ++i) {
      const QueryBundle& bundle = plan.bundles[i / kSplitQueries];
      const int64_t row = i % kSplitQueries;
      if (row >= bundle.rows()) continue;
      const int64_t first = bundle.BeginSplit(row);
      const SplitResults sofar = results(bundle, first);
      for (int64_t split = first + 1; split < bundle.EndSplit(row); ++split) {
        attention.Merge(bundle, row, results(bundle, split), sofar);
      }
      attention.Normalize(bundle, row, sofar);
    }
  });
}

}  // namespace

void PagedAttention(const float* q, int64_t q_stride, const PagedCache& cache,
                    const PagedRowLayout& layout, const PagedScores& scores,
                    std::span<const TokenRun> runs, float* out, int64_t out_stride,
                    KernelContext& context) {
  if (runs.empty()) return;
  const Workspace::Scope scope(context.workspace);
  const PagedRowLayout stored = StoredLayout(layout, cache);
  const Plan plan = MakePlan(stored, scores, runs, context);
  if (cache.rotation > 1 || cache.wide > 0) {
    q = StoredQueries(q, q_stride, layout, runs, cache, context);
    q_stride = stored.heads * stored.key_width;
  }
  VisitElements(cache.format, cache.elements, [&]<typename Element>(Element* elements) {
    const BundleAttention<Element> attention(q, q_stride, cache, elements, stored, scores, out,
                                             out_stride);
    const Scratch<Element>* scratch = TakeScratch<Element>(plan, stored, cache, context);
    if (plan.tasks == 1 || plan.count() >= int64_t{4} * context.pool.threads()) {
      RunWhole(attention, plan, scratch, context);
    } else {
      RunShared(attention, plan, scratch, context);
    }
  });
}

}  // namespace triptych::kernels
