// Owners of CUDA memory, streams, events and graphs, and CUDA's errors as exceptions.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_MEMORY_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_MEMORY_H_

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace triptych::cuda {

using BFloat16 = __nv_bfloat16;

// An allocation that does not fit in the memory of the device.
class OutOfDeviceMemory : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "CUDA: out of memory"; }
};

// Any other error of CUDA or cuBLASLt. The message is one line.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws OutOfDeviceMemory or CudaError.
inline void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears it, so that the next call does not report it again
  if (error == cudaErrorMemoryAllocation) throw OutOfDeviceMemory();
  throw CudaError(std::string("CUDA: ") + cudaGetErrorString(error));
}

// Blocks in the second and in the third dimension of a grid, at most. Kernels map rows to them.
inline constexpr int kMostGridRows = 65535;

// Limits of the current device.
struct DeviceLimits {
  int multiprocessors = 0;
  int64_t shared_bytes = 0;  // shared memory of a thread block, at most
};
inline DeviceLimits CurrentLimits() {
  int device = 0, multiprocessors = 0, shared_bytes = 0;
  Check(cudaGetDevice(&device));
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  Check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return {multiprocessors, shared_bytes};
}

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};
struct FreePinned {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};

// An array of trivial elements in the memory of the current device.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(int64_t size) : size_(size) {
    if (size == 0) return;
    void* memory = nullptr;
    Check(cudaMalloc(&memory, static_cast<size_t>(bytes())));
    memory_.reset(static_cast<T*>(memory));
  }
  // Copies from the host. `From` has the size of T.
  template <typename From>
  explicit DeviceArray(const std::vector<From>& elements)
      : DeviceArray(static_cast<int64_t>(elements.size())) {
    static_assert(sizeof(From) == sizeof(T));
    if (elements.empty()) return;
    Check(cudaMemcpy(get(), elements.data(), static_cast<size_t>(bytes()), cudaMemcpyHostToDevice));
  }

  T* get() const { return memory_.get(); }  // null if empty
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  std::unique_ptr<T, FreeDevice> memory_;
  int64_t size_ = 0;
};

// An array in page-locked host memory, which the device copies from and to asynchronously.
template <typename T>
class PinnedArray {
 public:
  PinnedArray() = default;
  explicit PinnedArray(int64_t size) : size_(size) {
    if (size == 0) return;
    void* memory = nullptr;
    Check(cudaMallocHost(&memory, static_cast<size_t>(size) * sizeof(T)));
    memory_.reset(static_cast<T*>(memory));
  }

  T* get() const { return memory_.get(); }  // null if empty
  int64_t size() const { return size_; }

 private:
  std::unique_ptr<T, FreePinned> memory_;
  int64_t size_ = 0;
};

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

inline Stream MakeStream() {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}
inline Event MakeEvent() {
  cudaEvent_t event = nullptr;
  Check(cudaEventCreate(&event));
  return Event(event);
}

// Records what `enqueue` puts on the stream as a graph, without running it.
template <typename Enqueue>
Graph Capture(cudaStream_t stream, const Enqueue& enqueue) {
  cudaGraph_t graph = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // clears it, so that the next call does not report it again
    throw;
  }
  Check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  Check(error);
  return Graph(executable);
}

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_DEVICE_MEMORY_H_
