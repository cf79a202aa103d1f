// Threads of kernels on the CPU: every thread of a block is a fiber, one block runs after another.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_KERNEL_THREADS_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_KERNEL_THREADS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace triptych::emulation {

// CUDA's built-in variables of the thread that runs.
extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;
extern unsigned char* dynamic_shared;

// Runs a kernel's blocks. Shared memory holds 0xff at the start of a block. Throws
// std::runtime_error for a fault. In every other block threads run in descending order and
// asynchronous copies end at once, so that a missing barrier changes results.
void RunBlocks(dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& kernel);

// Ends the kernel with a fault. For the thread that runs.
[[noreturn]] void Fault(const std::string& what);

// __syncthreads()
void BlockBarrier();

// The words that a lane gives to an operation of its warp and gets back.
struct LaneRegisters {
  uint32_t words[10];
  const void* address;
};

// The registers of the lane that runs.
extern LaneRegisters* my_registers;

// Waits until all 32 lanes of the warp have called it with the same arguments; the last one runs
// operation(the registers of the 32 lanes, argument). It is a fault if a lane has exited or calls
// it with other arguments.
using WarpOperation = void (*)(LaneRegisters* lanes, int argument);
void RunOnWarp(WarpOperation operation, int argument);

// cp.async: a copy of 16 bytes, or zeros if not `seen`. It ends when its thread waits for it, if
// not at once.
void StartCopy(void* to, const void* from, bool seen);
void CommitStartedCopies();
void WaitUntilPending(int groups);

// Checks a launch and enqueues it. Returns CUDA's error if a GPU would refuse the launch.
cudaError_t Launch(const void* kernel, dim3 grid, int threads, size_t shared_bytes,
                   std::function<void()> run);
cudaError_t AllowShared(const void* kernel, size_t bytes);

// Puts work on the one stream: into the graph that is being captured, or at the end of the queue.
// The queue runs when the host waits for the device.
void Enqueue(std::function<void()> work);

}  // namespace triptych::emulation

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_KERNEL_THREADS_H_
