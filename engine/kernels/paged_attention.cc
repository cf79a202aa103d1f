#include "engine/kernels/paged_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

// Compiled once for each instruction set; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/paged_attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

HWY_INLINE FloatVec LoadRow(FloatTag d, const float* row) { return hn::LoadU(d, row); }
HWY_INLINE FloatVec LoadRow(FloatTag d, const uint16_t* row) {
  const hn::Rebind<uint16_t, FloatTag> narrow;
  const hn::RebindToUnsigned<FloatTag> wide;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, row))));
}

HWY_INLINE float LoadScalar(const float* row) { return *row; }
HWY_INLINE float LoadScalar(const uint16_t* row) {
  return std::bit_cast<float>(static_cast<uint32_t>(*row) << 16);
}

template <typename Row>
HWY_INLINE float Dot(const float* q, const Row* key, int64_t width) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, q + i), LoadRow(d, key + i), sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < width; ++i) total += q[i] * LoadScalar(key + i);
  return total;
}

// out += weight * value
template <typename Row>
HWY_INLINE void Accumulate(float weight, const Row* value, int64_t width, float* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec weights = hn::Set(d, weight);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::StoreU(hn::MulAdd(weights, LoadRow(d, value + i), hn::LoadU(d, out + i)), d, out + i);
  }
  for (; i < width; ++i) out[i] += weight * LoadScalar(value + i);
}

// scores become exp(scores - max); returns their sum. `scores` has room for a whole last vector.
HWY_INLINE float ExpInPlace(float* scores, int64_t count) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec max = hn::Set(d, *std::max_element(scores, scores + count));
  for (int64_t i = 0; i < count; i += lanes) {
    hn::StoreU(hn::Exp(d, hn::Sub(hn::LoadU(d, scores + i), max)), d, scores + i);
  }
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += scores[i];
  return sum;
}

// One new token and one key/value group: every query head of the group, over `length` positions.
template <typename Row>
void AttendGroup(const float* q, const Row* cache, const int32_t* blocks, int64_t length,
                 int64_t block_positions, const PagedRowLayout& layout, int64_t group, float scale,
                 std::vector<float>& scores, float* out) {
  const int64_t shared = layout.heads / layout.groups;
  const int64_t stride = length + static_cast<int64_t>(hn::Lanes(FloatTag()));  // of one head
  scores.resize(shared * stride);
  const auto for_each_row = [&](const auto& visit) {
    for (int64_t first = 0; first < length; first += block_positions) {
      const Row* row = cache + blocks[first / block_positions] * block_positions * layout.row_width;
      const int64_t last = std::min(first + block_positions, length);
      for (int64_t p = first; p < last; ++p, row += layout.row_width) visit(p, row);
    }
  };
  // Head h = j * G + group.
  const auto head = [&](int64_t j) { return j * layout.groups + group; };

  for_each_row([&](int64_t p, const Row* row) {
    const Row* key = row + group * layout.key_width;
    for (int64_t j = 0; j < shared; ++j) {
      scores[j * stride + p] = scale * Dot(q + head(j) * layout.key_width, key, layout.key_width);
    }
  });
  for (int64_t j = 0; j < shared; ++j) {
    const float inverse = 1.0f / ExpInPlace(&scores[j * stride], length);
    for (int64_t p = 0; p < length; ++p) scores[j * stride + p] *= inverse;
    std::fill_n(out + head(j) * layout.value_width, layout.value_width, 0.0f);
  }
  for_each_row([&](int64_t p, const Row* row) {
    const Row* value = row + layout.value_offset + group * layout.value_width;
    for (int64_t j = 0; j < shared; ++j) {
      Accumulate(scores[j * stride + p], value, layout.value_width,
                 out + head(j) * layout.value_width);
    }
  });
}

void AttendGroupFloat(const float* q, const float* cache, const int32_t* blocks, int64_t length,
                      int64_t block_positions, const PagedRowLayout& layout, int64_t group,
                      float scale, std::vector<float>& scores, float* out) {
  AttendGroup(q, cache, blocks, length, block_positions, layout, group, scale, scores, out);
}
void AttendGroupBFloat16(const float* q, const uint16_t* cache, const int32_t* blocks,
                         int64_t length, int64_t block_positions, const PagedRowLayout& layout,
                         int64_t group, float scale, std::vector<float>& scores, float* out) {
  AttendGroup(q, cache, blocks, length, block_positions, layout, group, scale, scores, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych {
namespace {

HWY_EXPORT(AttendGroupFloat);
HWY_EXPORT(AttendGroupBFloat16);

void Store(float value, float* to) { *to = value; }
// The nearest bfloat16, ties to even.
void Store(float value, uint16_t* to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  *to =
      std::isnan(value) ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

auto Dispatch(const float*) { return HWY_DYNAMIC_DISPATCH(AttendGroupFloat); }
auto Dispatch(const uint16_t*) { return HWY_DYNAMIC_DISPATCH(AttendGroupBFloat16); }

}  // namespace

template <typename Row>
void PagedAttention(const float* q, int64_t q_stride, const Row* cache, int64_t block_positions,
                    const PagedRowLayout& layout, float scale,
                    const std::vector<PagedSequence>& sequences, float* out, ThreadPool& pool) {
  // One piece of work is a token and a group; a task is some of them.
  struct Token {
    const int32_t* blocks;
    int64_t length;  // positions it sees
  };
  thread_local std::vector<Token> kept;
  std::vector<Token>& tokens = kept;  // this thread's, for all of the pool's
  tokens.clear();
  int64_t positions = 0;  // of all tokens
  for (const PagedSequence& sequence : sequences) {
    for (int64_t i = 0; i < sequence.count; ++i) {
      tokens.push_back({sequence.blocks, sequence.start + i + 1});
      positions += tokens.back().length;
    }
  }
  const auto attend = Dispatch(cache);
  const auto pieces = static_cast<int64_t>(tokens.size()) * layout.groups;
  const int64_t tasks = std::min(
      pieces, pool.TasksWorth(positions * layout.heads * (layout.key_width + layout.value_width)));
  pool.Run(tasks, [&](int64_t task) {
    thread_local std::vector<float> scores;
    for (int64_t piece = pieces * task / tasks; piece < pieces * (task + 1) / tasks; ++piece) {
      const int64_t token = piece / layout.groups;
      attend(q + token * q_stride, cache, tokens[token].blocks, tokens[token].length,
             block_positions, layout, piece % layout.groups, scale, scores,
             out + token * layout.heads * layout.value_width);
    }
  });
}

template void PagedAttention(const float*, int64_t, const float*, int64_t, const PagedRowLayout&,
                             float, const std::vector<PagedSequence>&, float*, ThreadPool&);
template void PagedAttention(const float*, int64_t, const uint16_t*, int64_t, const PagedRowLayout&,
                             float, const std::vector<PagedSequence>&, float*, ThreadPool&);

template <typename Row>
void WritePagedRows(const float* rows, int64_t rows_stride, int64_t row_width,
                    int64_t block_positions, const std::vector<PagedSequence>& sequences,
                    Row* cache) {
  for (const PagedSequence& sequence : sequences) {
    for (int64_t p = sequence.start; p < sequence.start + sequence.count; ++p) {
      const int64_t block = sequence.blocks[p / block_positions];
      Row* to = cache + (block * block_positions + p % block_positions) * row_width;
      for (int64_t i = 0; i < row_width; ++i) Store(rows[i], to + i);
      rows += rows_stride;
    }
  }
}

template void WritePagedRows(const float*, int64_t, int64_t, int64_t,
                             const std::vector<PagedSequence>&, float*);
template void WritePagedRows(const float*, int64_t, int64_t, int64_t,
                             const std::vector<PagedSequence>&, uint16_t*);

}  // namespace triptych
#endif  // HWY_ONCE
