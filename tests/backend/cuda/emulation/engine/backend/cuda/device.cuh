// Emulation of the engine's header of the same name, for kernels that run on the CPU. Found first
// in the order of includes.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_CUH_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_CUH_

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/backend/cuda/device_memory.h"
#include "tests/backend/cuda/emulation/kernel_threads.h"
#include "tests/backend/cuda/emulation/warp_operations.h"

#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__

#define threadIdx ::triptych::emulation::thread_index
#define blockIdx ::triptych::emulation::block_index
#define blockDim ::triptych::emulation::block_size
#define gridDim ::triptych::emulation::grid_size

namespace triptych::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = ~0u;

// --- CUDA's own functions

inline void __syncthreads() { emulation::BlockBarrier(); }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline int atomicAdd(int* sum, int added) {  // one thread runs at a time
  const int before = *sum;
  *sum += added;
  return before;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = (uint64_t{y} << 32) | x;
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t which = (selector >> (4 * i)) & 7;
    bytes |= static_cast<uint32_t>((both >> (8 * which)) & 0xff) << (8 * i);
  }
  return bytes;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }

inline unsigned __ballot_sync(unsigned, bool vote) {
  emulation::LaneRegisters& mine = *emulation::my_registers;
  mine.words[0] = vote ? 1 : 0;
  emulation::RunOnWarp(emulation::CollectVotes, 0);
  return mine.words[0];
}

inline float __shfl_xor_sync(unsigned, float x, int mask) {
  emulation::LaneRegisters& mine = *emulation::my_registers;
  std::memcpy(mine.words, &x, sizeof x);
  emulation::RunOnWarp(emulation::ExchangeLanes, mask);
  std::memcpy(&x, mine.words, sizeof x);
  return x;
}

// --- Functions of the engine's header

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
            cudaStream_t, const Arguments&... arguments) {
  Check(emulation::Launch(reinterpret_cast<const void*>(kernel), grid, threads, shared_bytes,
                          [=] { kernel(arguments...); }));
}

template <typename... Parameters>
void AllowShared(void (*kernel)(Parameters...), size_t bytes) {
  Check(emulation::AllowShared(reinterpret_cast<const void*>(kernel), bytes));
}

inline unsigned char* DynamicShared() { return emulation::dynamic_shared; }

inline float ToFloat(BFloat16 x) { return __bfloat162float(x); }
inline BFloat16 ToBFloat16(float x) { return __float2bfloat16(x); }

inline uint32_t Pack(float x, float y) {
  const BFloat16 pair[2] = {ToBFloat16(x), ToBFloat16(y)};
  uint32_t word;
  std::memcpy(&word, pair, sizeof word);
  return word;
}

namespace internal {

inline void RequireAligned(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) emulation::Fault("misaligned address");
}

inline void LoadTilesAs(bool transposed, uint32_t v[4], const void* row) {
  RequireAligned(row);
  emulation::LaneRegisters& mine = *emulation::my_registers;
  mine.address = row;
  emulation::RunOnWarp(emulation::DistributeTiles, transposed ? 1 : 0);
  std::memcpy(v, mine.words, 4 * sizeof *v);
}

}  // namespace internal

inline void Mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  emulation::LaneRegisters& mine = *emulation::my_registers;
  std::memcpy(mine.words, a, 4 * sizeof *a);
  mine.words[4] = b0;
  mine.words[5] = b1;
  std::memcpy(mine.words + 6, c, 4 * sizeof *c);
  emulation::RunOnWarp(emulation::MultiplyTiles, 0);
  std::memcpy(c, mine.words + 6, 4 * sizeof *c);
}

inline uint4 LoadOnce(const BFloat16* from) {
  internal::RequireAligned(from);
  uint4 v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

inline void LoadTiles(uint32_t v[4], const void* row) { internal::LoadTilesAs(false, v, row); }
inline void LoadTilesTransposed(uint32_t v[4], const void* row) {
  internal::LoadTilesAs(true, v, row);
}

inline void CopyAsync(BFloat16* to, const BFloat16* from, bool seen) {
  internal::RequireAligned(to);
  internal::RequireAligned(from);
  emulation::StartCopy(to, from, seen);
}
inline void CommitCopies() { emulation::CommitStartedCopies(); }
template <int kPending>
inline void WaitForCopies() {
  emulation::WaitUntilPending(kPending);
}

inline float Exp2(float x) { return std::exp2(x); }

namespace internal {

inline float Reduce(emulation::WarpOperation operation, float x) {
  emulation::LaneRegisters& mine = *emulation::my_registers;
  std::memcpy(mine.words, &x, sizeof x);
  emulation::RunOnWarp(operation, 0);
  std::memcpy(&x, mine.words, sizeof x);
  return x;
}

}  // namespace internal

inline float WarpSum(float x) { return internal::Reduce(emulation::SumLanes, x); }
inline float WarpMax(float x) { return internal::Reduce(emulation::MaxOfLanes, x); }

}  // namespace triptych::cuda

#include "engine/backend/cuda/block_reduction.cuh"

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_CUH_
