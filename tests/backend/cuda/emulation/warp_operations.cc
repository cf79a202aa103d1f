#include "tests/backend/cuda/emulation/warp_operations.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace triptych::emulation {
namespace {

constexpr int kWarp = 32;

inline float ToFloat(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline float LowerHalf(uint32_t word) { return ToFloat(word << 16); }
inline float UpperHalf(uint32_t word) { return ToFloat(word & 0xffff0000u); }

template <typename Combine>
void Reduce(LaneRegisters* lanes, const Combine& combine) {
  float x[kWarp], next[kWarp];
  for (int i = 0; i < kWarp; ++i) x[i] = ToFloat(lanes[i].words[0]);
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    for (int i = 0; i < kWarp; ++i) next[i] = combine(x[i], x[i ^ mask]);
    std::memcpy(x, next, sizeof x);
  }
  for (int i = 0; i < kWarp; ++i) std::memcpy(lanes[i].words, &x[i], sizeof x[i]);
}

}  // namespace

// The tests spend most of their time here.
__attribute__((target_clones("avx2", "default"))) void MultiplyTiles(LaneRegisters* lanes, int) {
  using Row = float __attribute__((vector_size(32)));
  alignas(32) float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const uint32_t* const words = lanes[lane].words;
    const int r = lane / 4, t = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      float* const pair = &a[r + i % 2 * 8][t + i / 2 * 8];
      pair[0] = LowerHalf(words[i]);
      pair[1] = UpperHalf(words[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[t + i * 8][r] = LowerHalf(words[4 + i]);
      b[t + i * 8 + 1][r] = UpperHalf(words[4 + i]);
    }
    std::memcpy(&c[r][t], words + 6, 8);
    std::memcpy(&c[r + 8][t], words + 8, 8);
  }
  Row of_b[16];
  std::memcpy(of_b, b, sizeof b);
  for (int row = 0; row < 16; ++row) {
    Row even = {}, odd = {};
    for (int k = 0; k < 16; k += 2) {
      even += a[row][k] * of_b[k];
      odd += a[row][k + 1] * of_b[k + 1];
    }
    Row sum;
    std::memcpy(&sum, c[row], sizeof sum);
    sum += even + odd;
    std::memcpy(c[row], &sum, sizeof sum);
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    const int r = lane / 4, t = lane % 4 * 2;
    std::memcpy(lanes[lane].words + 6, &c[r][t], 8);
    std::memcpy(lanes[lane].words + 8, &c[r + 8][t], 8);
  }
}

void DistributeTiles(LaneRegisters* lanes, int transposed) {
  for (int lane = 0; lane < kWarp; ++lane) {
    const int r = lane / 4, t = lane % 4 * 2;
    for (int tile = 0; tile < 4; ++tile) {
      uint16_t pair[2];
      for (int j = 0; j < 2; ++j) {
        const int row = transposed != 0 ? t + j : r, column = transposed != 0 ? r : t + j;
        pair[j] = static_cast<const uint16_t*>(lanes[tile * 8 + row].address)[column];
      }
      std::memcpy(&lanes[lane].words[tile], pair, sizeof pair);
    }
  }
}

void ExchangeLanes(LaneRegisters* lanes, int mask) {
  uint32_t words[kWarp];
  for (int i = 0; i < kWarp; ++i) words[i] = lanes[i].words[0];
  for (int i = 0; i < kWarp; ++i) lanes[i].words[0] = words[i ^ mask];
}

void CollectVotes(LaneRegisters* lanes, int) {
  uint32_t votes = 0;
  for (int i = 0; i < kWarp; ++i) votes |= (lanes[i].words[0] != 0 ? 1u : 0u) << i;
  for (int i = 0; i < kWarp; ++i) lanes[i].words[0] = votes;
}

void SumLanes(LaneRegisters* lanes, int) {
  Reduce(lanes, [](float x, float y) { return x + y; });
}
void MaxOfLanes(LaneRegisters* lanes, int) {
  Reduce(lanes, [](float x, float y) { return std::fmax(x, y); });
}

}  // namespace triptych::emulation
