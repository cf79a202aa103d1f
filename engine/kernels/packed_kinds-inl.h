// Products of packed weights (packed_format.h) and prepared inputs, for each weight format and
// instruction set. packed_product-inl.h includes this file once for each instruction set.
#if defined(TRIPTYCH_ENGINE_KERNELS_PACKED_KINDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_ENGINE_KERNELS_PACKED_KINDS_INL_H_
#undef TRIPTYCH_ENGINE_KERNELS_PACKED_KINDS_INL_H_
#else
#define TRIPTYCH_ENGINE_KERNELS_PACKED_KINDS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/base/bfloat16.h"
#include "engine/kernels/packed_format.h"
#include "engine/kernels/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, kPanel>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using FloatVec = hn::Vec<FloatTag>;
using BitsVec = hn::Vec<BitsTag>;
using IntVec = hn::Vec<IntTag>;

constexpr int kVectors = static_cast<int>(kPanel / hn::MaxLanes(FloatTag()));  // of a panel
constexpr int64_t kLanes = kPanel / kVectors;

// Loads a word of x.
template <typename T>
HWY_INLINE T LoadWord(const std::byte* x) {
  static_assert(sizeof(T) == kWordBytes);
  T word;
  std::memcpy(&word, x, kWordBytes);
  return word;
}

// The types below define how one step of weights and its words of x are added to an accumulator, in
// kParts parts of one word of x each. kHeld: registers of a vector of weights, or of an input.
// kScratch: further registers of an addition.
struct Float32 {
  static constexpr WeightFormat kFormat = WeightFormat::kFloat32;
  static constexpr int kParts = 1;
  static constexpr int kHeld = 1;
  static constexpr int kScratch = HWY_NATIVE_FMA ? 0 : 1;  // a product
  using Sum = FloatVec;
  template <int kPart>
  static HWY_INLINE FloatVec Weights(const std::byte* w) {
    return hn::LoadU(FloatTag(), reinterpret_cast<const float*>(w));
  }
  static HWY_INLINE FloatVec Input(const std::byte* x) {
    return hn::Set(FloatTag(), LoadWord<float>(x));
  }
  static HWY_INLINE FloatVec Add(FloatVec sum, FloatVec w, FloatVec x) {
    return hn::MulAdd(w, x, sum);
  }
};

// The lower half of a word is the first weight of a pair. Inputs are float32 values that are exact
// in bfloat16.
struct BFloat16 : Float32 {
  static constexpr WeightFormat kFormat = WeightFormat::kBFloat16;
  static constexpr int kParts = 2;
  static constexpr int kHeld = 2;  // both weights of a pair
  template <int kPart>
  static HWY_INLINE FloatVec Weights(const std::byte* w) {
    const BitsTag d;
    const BitsVec pairs = hn::LoadU(d, reinterpret_cast<const uint32_t*>(w));
    return hn::BitCast(FloatTag(), kPart == 0 ? hn::ShiftLeft<16>(pairs)
                                              : hn::And(pairs, hn::Set(d, 0xffff0000u)));
  }
};

#if TRIPTYCH_AVX3_DL
// Weights and inputs are both pairs of bfloat16.
struct BFloat16Dot {
  static constexpr WeightFormat kFormat = WeightFormat::kBFloat16;
  static constexpr int kParts = 1;
  static constexpr int kHeld = 1, kScratch = 0;
  using Sum = FloatVec;
  template <int kPart>
  static HWY_INLINE BitsVec Weights(const std::byte* w) {
    return hn::LoadU(BitsTag(), reinterpret_cast<const uint32_t*>(w));
  }
  static HWY_INLINE BitsVec Input(const std::byte* x) {
    return hn::Set(BitsTag(), LoadWord<uint32_t>(x));
  }
  static HWY_INLINE FloatVec Add(FloatVec sum, BitsVec w, BitsVec x) {
    return AddBFloat16Products(sum, w, x);
  }
};
#endif

// Integer weights times inputs rounded to 8 bits, with one scale per row and unit. Sums within a
// unit are exact. A unit's inputs are in words of kInputs each. Two words follow them: the
// correction, which is the sum of the inputs times -PackedZero and removes the offset of the
// weights, and the scale. A unit's accumulators begin as Start and are 32-bit integers after
// Finish.

#if TRIPTYCH_ADDS_QUADS || TRIPTYCH_ADDS_BYTE_PAIRS
// Four inputs per word, in order.
template <WeightFormat kIntegers>
struct Quads {
  static constexpr WeightFormat kFormat = kIntegers;
  static constexpr int kInputs = 4;  // of a word
  static constexpr int kParts = 8 / PackedBits(kFormat);
  static constexpr int kHeld = 1;
  static HWY_INLINE BitsVec Input(const std::byte* x) {
    return hn::Set(BitsTag(), LoadWord<uint32_t>(x));
  }
  template <int kPart>
  static HWY_INLINE BitsVec Weights(const std::byte* w) {
    const BitsTag d;
    const BitsVec words = hn::LoadU(d, reinterpret_cast<const uint32_t*>(w));
    if constexpr (kParts == 1) return words;
    const BitsVec mask = hn::Set(d, 0x0f0f0f0fu);
    if constexpr (kPart == 0) return hn::And(words, mask);
    return hn::And(hn::ShiftRight<4>(words), mask);
  }
};
#endif

#if TRIPTYCH_ADDS_QUADS
// Added four at a time.
template <WeightFormat kIntegers>
struct QuadsAtOnce : Quads<kIntegers> {
  static constexpr int kScratch = 0;
  using Sum = IntVec;
  static HWY_INLINE Sum Start(IntVec correction) { return correction; }
  static HWY_INLINE IntVec Finish(Sum sum, IntVec) { return sum; }
  static HWY_INLINE Sum Add(Sum sum, BitsVec w, BitsVec x) { return AddByteProducts(sum, w, x); }
};
#endif

#if TRIPTYCH_ADDS_BYTE_PAIRS
// Added two at a time, to 16-bit lanes.
template <WeightFormat kIntegers>
struct QuadsInPairs : Quads<kIntegers> {
  // A lane adds half of a group's products, with inputs down to -128.
  static_assert(kQuantizationGroup / 2 * (2 * PackedZero(kIntegers) - 1) * 128 <= INT16_MAX);
  static constexpr int kScratch = 2;  // a product, and the mask of the lower bits
  using ShortTag = hn::RepartitionToNarrow<IntTag>;
  using Sum = hn::Vec<ShortTag>;
  static HWY_INLINE Sum Start(IntVec) { return hn::Zero(ShortTag()); }
  static HWY_INLINE IntVec Finish(Sum sum, IntVec correction) {
    return AddPairProducts(correction, sum, hn::Set(ShortTag(), 1));
  }
  static HWY_INLINE Sum Add(Sum sum, BitsVec w, BitsVec x) {
    return AddBytePairProducts(sum, w, x);
  }
};
#endif

// Bits kBit to kBit + kBits - 1 of each lane.
template <int kBit, int kBits, class D>
HWY_INLINE hn::Vec<D> BitsOf(D, hn::Vec<D> words) {
  constexpr int kWidth = 8 * sizeof(hn::TFromD<D>);
  if constexpr (kBit == 0) return hn::And(words, hn::Set(D(), (1 << kBits) - 1));
  if constexpr (kBit + kBits < kWidth) words = hn::ShiftLeft<kWidth - kBit - kBits>(words);
  return hn::ShiftRight<kWidth - kBits>(words);
}

#if TRIPTYCH_ADDS_PAIRS
using ShortTag = hn::RepartitionToNarrow<IntTag>;
using Pair = hn::Vec<ShortTag>;

HWY_INLINE Pair InputPair(uint32_t word) {
  return hn::BitCast(ShortTag(), hn::Set(BitsTag(), word));
}
template <int kBit, int kBits>
HWY_INLINE Pair WeightPair(const std::byte* w) {
  const hn::RebindToUnsigned<ShortTag> d;
  const auto words = hn::LoadU(d, reinterpret_cast<const uint16_t*>(w));
  return hn::BitCast(ShortTag(), BitsOf<kBit, kBits>(d, words));
}
#else
struct Pair {
  HWY_INLINE Pair() {}  // an implicit one would lack the target attribute
  HWY_INLINE Pair(IntVec first_in, IntVec second_in) : first(first_in), second(second_in) {}

  IntVec first, second;
};

HWY_INLINE Pair InputPair(uint32_t word) {
  const IntTag d;
  return {hn::Set(d, static_cast<int16_t>(word)), hn::Set(d, static_cast<int16_t>(word >> 16))};
}
template <int kBit, int kBits>
HWY_INLINE Pair WeightPair(const std::byte* w) {
  const BitsTag d;
  const BitsVec words = hn::LoadU(d, reinterpret_cast<const uint32_t*>(w));
  return {hn::BitCast(IntTag(), BitsOf<kBit, kBits>(d, words)),
          hn::BitCast(IntTag(), BitsOf<kBit + 16, kBits>(d, words))};
}
HWY_INLINE IntVec AddPairProducts(IntVec sum, const Pair& w, const Pair& x) {
  return hn::Add(hn::Add(sum, hn::Mul(w.first, x.first)), hn::Mul(w.second, x.second));
}
#endif

// Two 16-bit inputs per word: of each four, the first and the third, then the other two.
template <WeightFormat kIntegers>
struct Pairs {
  static constexpr WeightFormat kFormat = kIntegers;
  static constexpr int kInputs = 2;  // of a word
  static constexpr int kParts = 16 / PackedBits(kFormat);
  static constexpr int kHeld = TRIPTYCH_ADDS_PAIRS ? 1 : 2;
  static constexpr int kScratch = 1;  // a product; masks are read from memory
  using Sum = IntVec;
  static HWY_INLINE Sum Start(IntVec correction) { return correction; }
  static HWY_INLINE IntVec Finish(Sum sum, IntVec) { return sum; }
  static HWY_INLINE Pair Input(const std::byte* x) { return InputPair(LoadWord<uint32_t>(x)); }
  template <int kPart>
  static HWY_INLINE Pair Weights(const std::byte* w) {
    return WeightPair<kPart % 2 * 8 + kPart / 2 * 4, PackedBits(kFormat)>(w);
  }
  static HWY_INLINE Sum Add(Sum sum, const Pair& w, const Pair& x) {
    return AddPairProducts(sum, w, x);
  }
};

// The kinds of every processor of the set. With TRIPTYCH_SOME_ADD_BYTES, those that add bytes take
// QuadsAtOnce.
#if TRIPTYCH_AVX3_DL
using Int8 = QuadsAtOnce<WeightFormat::kInt8>;
using Int4 = QuadsAtOnce<WeightFormat::kInt4>;
#else
using Int8 = Pairs<WeightFormat::kInt8>;
#if TRIPTYCH_ADDS_BYTE_PAIRS
using Int4 = QuadsInPairs<WeightFormat::kInt4>;
#else
using Int4 = Pairs<WeightFormat::kInt4>;
#endif
#endif

// Words of x for a unit of weights.
template <class Kind>
constexpr int64_t UnitWords() {
  constexpr PackedFormat kPacked = Packed(Kind::kFormat);
  return kPacked.steps * Kind::kParts + (kPacked.scale_bytes > 0 ? 2 : 0);
}

#if TRIPTYCH_AVX3_DL
// Rounds to bfloat16, in pairs; an odd last input is followed by zero.
inline void RoundToPairs(const float* x, int64_t inputs, std::byte* words) {
  for (int64_t i = 0; i < inputs + inputs % 2; ++i) {
    const uint16_t rounded = i < inputs ? ToBFloat16(x[i]) : uint16_t{0};
    std::memcpy(words + i * 2, &rounded, 2);
  }
}
#endif

// Rounds to bfloat16, stored as float32; an odd last input is followed by zero.
inline void RoundToFloats(const float* x, int64_t inputs, std::byte* words) {
  for (int64_t i = 0; i < inputs + inputs % 2; ++i) {
    const float rounded = i < inputs ? FromBFloat16(ToBFloat16(x[i])) : 0.0f;
    std::memcpy(words + i * kWordBytes, &rounded, kWordBytes);
  }
}

// Rounds groups to 8 bits: the largest magnitude of each becomes 127 times the scale. A non-finite
// input makes the scale NaN.
template <class Kind>
void RoundToIntegers(const float* x, int64_t inputs, std::byte* words) {
  constexpr float kMost = 127;
  // Smaller maxima could put the scale or its reciprocal outside of float32's normal range.
  constexpr float kLeast = 0x1p-110f;
  const hn::CappedTag<float, kQuantizationGroup> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> db;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; inputs > 0; x += kQuantizationGroup, inputs -= kQuantizationGroup) {
    float padded[kQuantizationGroup] = {};
    const float* group = x;
    if (inputs < kQuantizationGroup) {
      std::copy_n(x, inputs, padded);
      group = padded;
    }
    auto largest = hn::Zero(d), nan = hn::Zero(d);
    for (int64_t i = 0; i < kQuantizationGroup; i += lanes) {
      const auto value = hn::LoadU(d, group + i);
      largest = hn::Max(largest, hn::Abs(value));
      nan = hn::Add(nan, hn::Mul(value, hn::Zero(d)));
    }
    const float most = hn::GetLane(hn::MaxOfLanes(d, largest));
    const auto step = hn::Set(d, most > kLeast ? kMost / most : 0.0f);
    int8_t bytes[kQuantizationGroup];
    auto sum = hn::Zero(di);
    for (int64_t i = 0; i < kQuantizationGroup; i += lanes) {
      const auto integers =
          hn::DemoteTo(db, hn::NearestInt(hn::Mul(hn::LoadU(d, group + i), step)));
      hn::StoreU(integers, db, bytes + i);
      sum = hn::Add(sum, hn::PromoteTo(di, integers));  // fits even if an input is not finite
    }
    if constexpr (Kind::kInputs == 4) {
      std::memcpy(words, bytes, sizeof(bytes));
    } else {
      for (int64_t i = 0; i < kQuantizationGroup; i += 4) {
        const int16_t pairs[] = {bytes[i], bytes[i + 2], bytes[i + 1], bytes[i + 3]};
        std::memcpy(words + 2 * i, pairs, sizeof(pairs));
      }
    }
    words += kQuantizationGroup / Kind::kInputs * kWordBytes;
    // Any number, if an input is not finite.
    const auto total = static_cast<uint32_t>(hn::GetLane(hn::SumOfLanes(di, sum)));
    const uint32_t correction = 0u - static_cast<uint32_t>(PackedZero(Kind::kFormat)) * total;
    const float scale = (most > kLeast ? most / kMost : 0.0f) + hn::GetLane(hn::SumOfLanes(d, nan));
    std::memcpy(words, &correction, kWordBytes);
    std::memcpy(words + kWordBytes, &scale, kWordBytes);
    words += 2 * kWordBytes;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#endif
