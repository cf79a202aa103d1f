// Emulation of the CUDA runtime functions that the backend calls, for a GPU with one stream.
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/backend/cuda/emulation/emulation.h"
#include "tests/backend/cuda/emulation/kernel_threads.h"

namespace triptych::emulation {
namespace {

constexpr size_t kPageBytes = 4 << 10;
constexpr int64_t kUnaskedSharedBytes = 48 << 10;  // limit of a launch without AllowShared

using Works = std::vector<std::function<void()>>;

Limits limits;
cudaError_t last_error = cudaSuccess;
cudaError_t lost = cudaSuccess;  // after a fault: the error that all work returns
Works queue;
std::unique_ptr<Works> captured;
std::map<const void*, size_t> allowed_shared;

// A file of 0xff, mapped as memory that was never written.
int PoisonFile(size_t bytes) {
  const int file = memfd_create("poison", 0);
  const std::vector<unsigned char> poison(bytes, 0xff);
  if (file < 0 || write(file, poison.data(), bytes) != static_cast<ssize_t>(bytes)) {
    throw std::runtime_error("emulation: cannot make a file in memory");
  }
  return file;
}

// An array of 0xff between two guard pages. It ends at the second, up to alignment to 16 bytes. The
// bytes between the first guard page and the array must not change.
class Allocation {
 public:
  explicit Allocation(size_t bytes) : bytes_(bytes) {
    constexpr size_t kPoisonBytes = 4 << 20, kAlignment = 16;
    static const int poison = PoisonFile(kPoisonBytes);
    const size_t aligned = RoundUp(bytes, kAlignment), pages = RoundUp(aligned, kPageBytes);
    mapped_ = kPageBytes + pages + kPageBytes;
    void* const base = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<unsigned char*>(base);
    unsigned char* const usable = base_ + kPageBytes;
    for (size_t at = 0; at < pages; at += kPoisonBytes) {
      mmap(usable + at, std::min(kPoisonBytes, pages - at), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_FIXED, poison, 0);
    }
    array_ = usable + pages - aligned;
  }
  ~Allocation() {
    if (!std::all_of(base_ + kPageBytes, array_, [](unsigned char byte) { return byte == 0xff; })) {
      std::fprintf(stderr, "emulation: bytes before an array of %zu bytes were written\n", bytes_);
      std::abort();
    }
    munmap(base_, mapped_);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  void* array() const { return array_; }
  size_t bytes() const { return bytes_; }

 private:
  static size_t RoundUp(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
  }

  size_t bytes_;
  size_t mapped_ = 0;
  unsigned char* base_ = nullptr;
  unsigned char* array_ = nullptr;
};

using Allocations = std::map<void*, std::unique_ptr<Allocation>>;
Allocations device_memory, host_memory;

cudaError_t Fail(cudaError_t error) {
  last_error = error;
  return error;
}

// Success if the host can wait for the device now.
cudaError_t MayWait() {
  if (lost != cudaSuccess) return Fail(lost);
  return captured != nullptr ? Fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t EnqueueUnlessLost(std::function<void()> work) {
  if (lost != cudaSuccess) return Fail(lost);
  Enqueue(std::move(work));
  return cudaSuccess;
}

cudaError_t Allocate(Allocations& allocations, void** array, size_t bytes) {
  if (const cudaError_t error = MayWait(); error != cudaSuccess) return error;
  auto allocation = std::make_unique<Allocation>(bytes);
  *array = allocation->array();
  allocations.emplace(*array, std::move(allocation));
  return cudaSuccess;
}

// Like a GPU, waits for work that can use the memory.
cudaError_t Free(Allocations& allocations, void* array) {
  if (array == nullptr) return cudaSuccess;
  const cudaError_t error = cudaDeviceSynchronize();
  if (allocations.erase(array) == 0) return Fail(cudaErrorInvalidValue);
  return error;
}

}  // namespace

const Limits& CurrentLimits() { return limits; }

LimitsScope::LimitsScope(const Limits& of_scope) : before_(limits) { limits = of_scope; }
LimitsScope::~LimitsScope() { limits = before_; }

LostDeviceScope::LostDeviceScope() { lost = cudaErrorLaunchFailure; }
LostDeviceScope::~LostDeviceScope() { lost = last_error = cudaSuccess; }

int64_t MemoryInUse() {
  int64_t bytes = 0;
  for (const auto& [array, allocation] : device_memory) {
    bytes += static_cast<int64_t>(allocation->bytes());
  }
  return bytes;
}

void Enqueue(std::function<void()> work) {
  (captured != nullptr ? *captured : queue).push_back(std::move(work));
}

cudaError_t Launch(const void* kernel, dim3 grid, int threads, size_t shared_bytes,
                   std::function<void()> run) {
  constexpr unsigned kMostBlocks = 65535;  // in the second and third dimension
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > kMostBlocks || grid.z > kMostBlocks ||
      threads < 1 || threads > 1024 || threads % 32 != 0) {
    return Fail(cudaErrorInvalidConfiguration);
  }
  const auto asked = allowed_shared.find(kernel);
  const size_t allowed = asked == allowed_shared.end() ? kUnaskedSharedBytes : asked->second;
  if (shared_bytes > allowed || static_cast<int64_t>(shared_bytes) > limits.shared_bytes) {
    return Fail(cudaErrorInvalidValue);
  }
  return EnqueueUnlessLost([grid, threads, shared_bytes, run = std::move(run)] {
    RunBlocks(grid, threads, shared_bytes, run);
  });
}

cudaError_t AllowShared(const void* kernel, size_t bytes) {
  if (static_cast<int64_t>(bytes) > limits.shared_bytes) return Fail(cudaErrorInvalidValue);
  allowed_shared[kernel] = bytes;
  return cudaSuccess;
}

}  // namespace triptych::emulation

using namespace triptych::emulation;  // NOLINT: CUDA's functions are in no namespace

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "unknown error";
  }
}

// --- Devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : Fail(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return Fail(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  properties->major = 9;
  properties->totalGlobalMem = static_cast<size_t>(limits.memory_bytes);
  properties->sharedMemPerBlockOptin = static_cast<size_t>(limits.shared_bytes);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return Fail(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(limits.shared_bytes);
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = limits.multiprocessors;
      return cudaSuccess;
    default:
      return Fail(cudaErrorInvalidValue);
  }
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = MayWait(); error != cudaSuccess) return error;
  const Works works = std::exchange(queue, {});
  try {
    for (const auto& work : works) work();
  } catch (const std::runtime_error& fault) {
    std::fprintf(stderr, "emulation: %s\n", fault.what());
    return Fail(lost = cudaErrorLaunchFailure);
  }
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
  return AllowShared(kernel, static_cast<size_t>(value));
}

// --- Memory

cudaError_t cudaMalloc(void** array, size_t bytes) {
  if (static_cast<int64_t>(bytes) > limits.memory_bytes - MemoryInUse()) {
    return Fail(cudaErrorMemoryAllocation);
  }
  return Allocate(device_memory, array, bytes);
}
cudaError_t cudaFree(void* array) { return Free(device_memory, array); }
cudaError_t cudaMallocHost(void** array, size_t bytes) {
  return Allocate(host_memory, array, bytes);
}
cudaError_t cudaFreeHost(void* array) { return Free(host_memory, array); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (lost != cudaSuccess) return Fail(lost);
  *total = static_cast<size_t>(limits.memory_bytes);
  *free = static_cast<size_t>(std::max<int64_t>(limits.memory_bytes - MemoryInUse(), 0));
  return cudaSuccess;
}

// Like a GPU, does not wait for a non-blocking stream.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (const cudaError_t error = MayWait(); error != cudaSuccess) return error;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  return EnqueueUnlessLost([=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return EnqueueUnlessLost([=] { std::memset(to, value, bytes); });
}

// --- Streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(&queue);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(&queue);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

// --- Graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  captured = std::make_unique<Works>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(captured.release());
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Works*>(graph);
  return cudaSuccess;
}
// A launched graph runs even if it is destroyed first.
using SharedWorks = std::shared_ptr<const Works>;
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(
      new SharedWorks(std::make_shared<const Works>(*reinterpret_cast<const Works*>(graph))));
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<SharedWorks*>(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  if (limits.graph_launches-- == 0) lost = cudaErrorLaunchFailure;
  return EnqueueUnlessLost([works = *reinterpret_cast<const SharedWorks*>(executable)] {
    for (const auto& work : *works) work();
  });
}
