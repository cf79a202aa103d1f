// Kernel launches, and wrappers of tensor-core and asynchronous-copy instructions.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_CUH_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_CUH_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/device_memory.h"

namespace triptych::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = ~0u;

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
            cudaStream_t stream, const Arguments&... arguments) {
  kernel<<<grid, threads, shared_bytes, stream>>>(arguments...);
  Check(cudaGetLastError());
}

// Raises a kernel's limit of dynamic shared memory to `bytes`. Call once, before its first launch.
template <typename... Parameters>
void AllowShared(void (*kernel)(Parameters...), size_t bytes) {
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)));
}

// The launch's dynamic shared memory.
__device__ inline unsigned char* DynamicShared() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

__device__ inline float ToFloat(BFloat16 x) { return __bfloat162float(x); }
__device__ inline BFloat16 ToBFloat16(float x) { return __float2bfloat16(x); }

// Two bfloat16, x in the lower half.
__device__ inline uint32_t Pack(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// c += a b, tiles [16, 16] and [16, 8] of bfloat16, row by column.
__device__ inline void Mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads 16 bytes that are read once. Not for memory that the same kernel writes.
__device__ inline uint4 LoadOnce(const BFloat16* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Loads four tiles [8, 8] of bfloat16; lane i passes row i % 8 of tile i / 8.
__device__ inline void LoadTiles(uint32_t v[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ inline void LoadTilesTransposed(uint32_t v[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Starts to copy 16 bytes into shared memory, zeros if not `seen`.
__device__ inline void CopyAsync(BFloat16* to, const BFloat16* from, bool seen) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)),
               "l"(from), "r"(seen ? 16 : 0)
               : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending groups of this thread's copies are pending.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// 2^x; 0 for results below the smallest normal number.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float WarpSum(float x) {
  for (int d = kWarp / 2; d > 0; d /= 2) x += __shfl_xor_sync(kAllLanes, x, d);
  return x;
}
__device__ inline float WarpMax(float x) {
  for (int d = kWarp / 2; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, d));
  return x;
}

}  // namespace triptych::cuda

#include "engine/backend/cuda/block_reduction.cuh"

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_CUH_
