#include "engine/kernels/logits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/logits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/base/ceil_div.h"
#include "engine/kernels/power-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using DoubleTag = hn::CappedTag<double, 8>;
using DoubleVec = hn::Vec<DoubleTag>;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr int64_t kDoubleLanes = hn::MaxLanes(DoubleTag());
// A block's sum has this many partial sums, each of every 16th weight, on every instruction set.
constexpr int64_t kSums = 16;
static_assert(kLogitBlock % kSums == 0 && kSums % kLanes == 0);

// The logits of a block. Those of at least `least` count; none if that is NaN.
struct Block {
  const float* logits;  // [size]
  int64_t size;         // a multiple of kSums
  float least;
};

// The next larger float; NaN after the last one.
HWY_INLINE float Next(float x) {
  return x == kLargest ? std::numeric_limits<float>::quiet_NaN() : std::nextafter(x, kLargest);
}

// The block that begins at token `first`, in which only the likeliest tokens count. Copies the
// block to `room` [kLogitBlock] if it is partial or likeliest.last is within it.
HWY_INLINE Block LikeliestOfBlock(const float* logits, int64_t count, int64_t first,
                                  const LikeliestTokens& likeliest, float* room) {
  const int64_t size = std::min(count - first, kLogitBlock);
  const bool after = likeliest.last < first, within = !after && likeliest.last < first + size - 1;
  const float least = after ? Next(likeliest.least) : likeliest.least;
  if (size == kLogitBlock && !within) return {logits + first, size, least};
  const int64_t padded = CeilDiv(size, kSums) * kSums;
  std::fill(std::copy_n(logits + first, size, room), room + padded, -INFINITY);
  for (int64_t i = within ? likeliest.last + 1 - first : size; i < size; ++i) {
    if (std::min(room[i], kLargest) == least) room[i] = -INFINITY;
  }
  return {room, padded, least};
}

//   weights: [block.size], zero for logits that do not count
HWY_INLINE void WeighBlock(const Block& block, const LogitWeight& weight, float* weights) {
  const FloatTag d;
  const FloatVec least = hn::Set(d, block.least), most = hn::Set(d, kLargest);
  const FloatVec largest = hn::Set(d, weight.largest), scale = hn::Set(d, weight.scale);
  for (int64_t i = 0; i < block.size; i += kLanes) {
    const FloatVec x = hn::LoadU(d, block.logits + i);
    const FloatVec power = PowerOfTwo(d, hn::Mul(hn::Sub(hn::Min(x, most), largest), scale));
    hn::StoreU(hn::IfThenElseZero(hn::Ge(x, least), power), d, weights + i);
  }
}

HWY_INLINE double SumOfBlock(const Block& block, const LogitWeight& weight) {
  HWY_ALIGN float weights[kLogitBlock];
  WeighBlock(block, weight, weights);
  const DoubleTag d;
  const hn::Rebind<float, DoubleTag> narrow;
  constexpr int64_t kVectors = kSums / kDoubleLanes;
  DoubleVec sums[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t i = 0; i < block.size; i += kSums) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto some = hn::Load(narrow, weights + i + v * kDoubleLanes);
      sums[v] = hn::Add(sums[v], hn::PromoteTo(d, some));
    }
  }
  HWY_ALIGN double all[kSums];
  for (int64_t v = 0; v < kVectors; ++v) hn::Store(sums[v], d, all + v * kDoubleLanes);
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) all[i] += all[i + half];
  }
  return all[0];
}

void Maxima(const float* logits, int64_t count, float* maxima) {
  const FloatTag d;
  float room[kLogitBlock];
  for (int64_t first = 0; first < count; first += kLogitBlock, ++maxima) {
    const Block block = LikeliestOfBlock(logits, count, first, {}, room);
    FloatVec largest = hn::Set(d, -INFINITY);
    for (int64_t i = 0; i < block.size; i += kLanes) {
      const FloatVec x = hn::LoadU(d, block.logits + i);
      largest = hn::IfThenElse(hn::Gt(x, largest), x, largest);  // a NaN is not greater
    }
    // Highway's emulated vectors do not support MaxOfLanes if all lanes are -inf.
    HWY_ALIGN float lanes[kLanes];
    hn::Store(largest, d, lanes);
    *maxima = std::min(*std::max_element(lanes, lanes + kLanes), kLargest);
  }
}

void Weigh(const float* logits, int64_t count, const LogitWeight& weight, float* weights) {
  float room[kLogitBlock];
  for (int64_t first = 0; first < count; first += kLogitBlock) {
    const Block block = LikeliestOfBlock(logits, count, first, {}, room);
    if (count - first >= kLogitBlock) {
      WeighBlock(block, weight, weights + first);
    } else {
      WeighBlock(block, weight, room);
      std::copy_n(room, count - first, weights + first);
    }
  }
}

void Sum(const float* logits, int64_t count, const float* maxima, const LogitWeight& weight,
         const LikeliestTokens& likeliest, double* sums) {
  float room[kLogitBlock];
  for (int64_t first = 0; first < count; first += kLogitBlock, ++maxima, ++sums) {
    *sums = *maxima < likeliest.least
                ? 0
                : SumOfBlock(LikeliestOfBlock(logits, count, first, likeliest, room), weight);
  }
}

void Find(const float* logits, int64_t count, const float* maxima, const LikeliestTokens& likeliest,
          Candidates& found) {
  const FloatTag d;
  const IntTag ints;
  const auto lanes = hn::Iota(ints, 0);
  float room[kLogitBlock];
  int64_t size = 0;
  for (int64_t first = 0; first < count; first += kLogitBlock, ++maxima) {
    if (*maxima < likeliest.least) continue;
    const Block block = LikeliestOfBlock(logits, count, first, likeliest, room);
    const FloatVec least = hn::Set(d, block.least), most = hn::Set(d, kLargest);
    for (int64_t i = 0; i < block.size; i += kLanes) {
      const FloatVec x = hn::LoadU(d, block.logits + i);
      const auto counts = hn::Ge(x, least);
      if (hn::AllFalse(d, counts)) continue;
      const auto tokens = hn::Add(lanes, hn::Set(ints, static_cast<int32_t>(first + i)));
      hn::StoreU(hn::Compress(tokens, hn::RebindMask(ints, counts)), ints, found.tokens + size);
      hn::StoreU(hn::Compress(hn::Min(x, most), counts), d, found.logits + size);
      size += static_cast<int64_t>(hn::CountTrue(d, counts));
    }
  }
  found.count = size;
}

// Maps logits to integers in the same order; both zeros map to one integer.
HWY_INLINE hn::Vec<IntTag> Order(const float* logits) {
  const FloatTag d;
  const IntTag ints;
  const auto bits = hn::BitCast(ints, hn::Add(hn::LoadU(d, logits), hn::Zero(d)));
  return hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(ints, 0x7fffffff)));
}

// Sums a vector's floats in float64, as a tree.
HWY_INLINE double SumOfLanes(const float* lanes) {
  double sums[kLanes];
  std::copy_n(lanes, kLanes, sums);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

// Splits the candidates by their logits into parts of equal width under Order, keeps the part in
// which `enough` is reached, and repeats until all remaining logits are equal.
int32_t Last(double enough, Candidates& candidates) {
  constexpr int kMostBits = 11;
  double sums[1 << kMostBits];  // of the weights of each part, the likeliest first
  double reached = 0;           // by tokens likelier than all that remain
  const FloatTag d;
  const IntTag ints;
  const WordTag words;
  int32_t* const tokens = candidates.tokens;
  float* const logits = candidates.logits;
  float* const weights = candidates.weights;
  int64_t count = candidates.count;
  while (true) {
    std::fill_n(logits + count, kLanes, logits[0]);  // fills the last vector
    auto least = Order(logits), most = least;
    for (int64_t i = kLanes; i < count; i += kLanes) {
      const auto order = Order(logits + i);
      least = hn::Min(least, order);
      most = hn::Max(most, order);
    }
    const auto top = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(ints, most)));
    const uint32_t range = top - static_cast<uint32_t>(hn::GetLane(hn::MinOfLanes(ints, least)));
    if (range == 0) break;
    // About one part per candidate.
    const int bits =
        std::min(static_cast<int>(std::bit_width(static_cast<uint64_t>(count))), kMostBits);
    const int shift = std::max(static_cast<int>(std::bit_width(range)) - bits, 0);
    const auto parts_at = [&](int64_t i) {
      const auto order = hn::BitCast(words, Order(logits + i));
      return hn::ShiftRightSame(hn::Sub(hn::Set(words, top), order), shift);
    };
    std::fill_n(sums, (range >> shift) + 1, 0.0);
    for (int64_t i = 0; i < count; i += kLanes) {
      HWY_ALIGN uint32_t parts[kLanes];
      const auto vector = parts_at(i);
      hn::Store(vector, words, parts);
      const int64_t end = std::min(kLanes, count - i);
      if (end == kLanes && hn::AllTrue(words, hn::Eq(vector, hn::Set(words, parts[0])))) {
        // One addition: with equal logits, each addition would wait for the one before it.
        sums[parts[0]] += SumOfLanes(weights + i);
        continue;
      }
      for (int64_t j = 0; j < end; ++j) sums[parts[j]] += weights[i + j];
    }
    uint32_t part = 0;
    while (part < range >> shift && reached + sums[part] < enough) reached += sums[part++];
    int64_t left = 0;
    for (int64_t i = 0; i < count; i += kLanes) {
      auto stays = hn::Eq(parts_at(i), hn::Set(words, part));
      if (i + kLanes > count) {
        stays = hn::And(stays, hn::FirstN(words, static_cast<size_t>(count - i)));
      }
      if (hn::AllFalse(words, stays)) continue;
      const auto keep = [&](auto tag, auto* of_all) {
        const auto kept = hn::Compress(hn::LoadU(tag, of_all + i), hn::RebindMask(tag, stays));
        hn::StoreU(kept, tag, of_all + left);
      };
      keep(ints, tokens);
      keep(d, logits);
      keep(d, weights);
      left += static_cast<int64_t>(hn::CountTrue(words, stays));
    }
    count = left;
  }
  candidates.count = count;
  const double more = std::ceil((enough - reached) / static_cast<double>(weights[0]));
  if (!(more < static_cast<double>(count))) return tokens[count - 1];
  return tokens[std::max<int64_t>(static_cast<int64_t>(more), 1) - 1];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {

HWY_EXPORT(Maxima);
HWY_EXPORT(Weigh);
HWY_EXPORT(Sum);
HWY_EXPORT(Find);
HWY_EXPORT(Last);

}  // namespace

void LogitMaxima(const float* logits, int64_t count, float* maxima) {
  HWY_DYNAMIC_DISPATCH(Maxima)(logits, count, maxima);
}

void WeighLogits(const float* logits, int64_t count, const LogitWeight& weight, float* weights) {
  HWY_DYNAMIC_DISPATCH(Weigh)(logits, count, weight, weights);
}

void SumLogitWeights(const float* logits, int64_t count, const float* maxima,
                     const LogitWeight& weight, const LikeliestTokens& likeliest, double* sums) {
  HWY_DYNAMIC_DISPATCH(Sum)(logits, count, maxima, weight, likeliest, sums);
}

void FindLikeliest(const float* logits, int64_t count, const float* maxima,
                   const LikeliestTokens& likeliest, Candidates& found) {
  HWY_DYNAMIC_DISPATCH(Find)(logits, count, maxima, likeliest, found);
}

int32_t LastToSum(double enough, Candidates& candidates) {
  return HWY_DYNAMIC_DISPATCH(Last)(enough, candidates);
}

}  // namespace triptych::kernels
#endif  // HWY_ONCE
