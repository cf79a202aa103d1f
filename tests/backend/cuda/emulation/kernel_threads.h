// Kernel threads on the CPU: every thread of a block is a fiber, and blocks run one after another.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_KERNEL_THREADS_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_KERNEL_THREADS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace triptych::emulation {

// CUDA's built-in variables of the running thread.
extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;
extern unsigned char* dynamic_shared;

// Runs a kernel's blocks. Shared memory contains 0xff at the start of a block. Throws
// std::runtime_error for a fault. In every other block, threads run in descending order and
// asynchronous copies complete at once, so that a missing barrier changes results.
void RunBlocks(dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& kernel);

// Ends the kernel with a fault. Called by the running thread.
[[noreturn]] void Fault(const std::string& what);

// __syncthreads()
void BlockBarrier();

// A lane's words for an operation of its warp: arguments, then results.
struct LaneRegisters {
  uint32_t words[10];
  const void* address;
};

// The registers of the running lane.
extern LaneRegisters* my_registers;

// Waits until all 32 lanes of the warp have called it with the same arguments; the last lane runs
// operation(registers of the 32 lanes, argument). It is a fault if a lane has exited, or calls it
// with other arguments.
using WarpOperation = void (*)(LaneRegisters* lanes, int argument);
void RunOnWarp(WarpOperation operation, int argument);

// cp.async: a copy of 16 bytes, or of zeros if not `seen`. It completes at once, or when its thread
// waits for it.
void StartCopy(void* to, const void* from, bool seen);
void CommitStartedCopies();
void WaitUntilPending(int groups);

// Checks a launch and enqueues it. Returns CUDA's error if a GPU would refuse the launch.
cudaError_t Launch(const void* kernel, dim3 grid, int threads, size_t shared_bytes,
                   std::function<void()> run);
cudaError_t AllowShared(const void* kernel, size_t bytes);

// Adds work to the stream: to the graph that is being captured, or to the queue, which runs when
// the host waits for the device.
void Enqueue(std::function<void()> work);

}  // namespace triptych::emulation

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_EMULATION_KERNEL_THREADS_H_
