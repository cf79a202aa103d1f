// Reductions over a thread block. Included by device.cuh, which has the functions of a warp.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_BLOCK_REDUCTION_CUH_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_BLOCK_REDUCTION_CUH_

namespace triptych::cuda {

// The sum over all threads of a block, in a fixed order; returned to each of them.
//   shared: [kWarp], scratch
__device__ inline float BlockSum(float x, float* shared) {
  x = WarpSum(x);
  __syncthreads();  // all earlier reads of `shared` are done
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = 0;
  for (unsigned i = 0; i < blockDim.x / kWarp; ++i) x += shared[i];
  return x;
}
// The maximum, likewise.
__device__ inline float BlockMax(float x, float* shared) {
  x = WarpMax(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = shared[0];
  for (unsigned i = 1; i < blockDim.x / kWarp; ++i) x = fmaxf(x, shared[i]);
  return x;
}

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_BLOCK_REDUCTION_CUH_
