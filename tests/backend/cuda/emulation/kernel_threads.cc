// Compiled without sanitizers, which do not expect that threads leave frames without returning.
#include "tests/backend/cuda/emulation/kernel_threads.h"

#include <sys/mman.h>

#ifdef TRIPTYCH_ADDRESS_SANITIZER
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/backend/cuda/emulation/asynchronous_copy.h"

// Saves the registers that a called function keeps and the stack pointer; restores another fiber's.
extern "C" void triptych_switch_fiber(void** from, void* const* to);
asm(R"(
.text
.globl triptych_switch_fiber
triptych_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace triptych::emulation {

uint3 thread_index, block_index;
dim3 block_size, grid_size;
unsigned char* dynamic_shared;
LaneRegisters* my_registers;

namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 80 << 10, kGuardBytes = 4 << 10;
constexpr std::align_val_t kSharedAlignment{128};

struct Stack {
  char* bottom = nullptr;  // lowest address
  char* top = nullptr;
};

// A thread of a block.
struct Fiber {
  void* stack_pointer = nullptr;  // null before it runs for the first time
  Stack stack;                    // once it has run
  std::vector<Copy> copies;       // started copies, in order
  std::vector<size_t> committed;  // by group: number of copies up to its end
};

constexpr int kMostThreads = 1024;

template <int kMost>
class ThreadList {
 public:
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  void clear() { size_ = 0; }
  void push_back(int thread) { threads_[size_++] = thread; }
  int pop_back() { return threads_[--size_]; }
  int operator[](int i) const { return threads_[i]; }

 private:
  int size_ = 0;
  std::array<int, kMost> threads_;
};

struct Warp {
  int alive = kWarp;
  WarpOperation operation = nullptr;
  int argument = 0;
  ThreadList<kWarp> waiting;
  std::array<LaneRegisters, kWarp> registers;
};

// The running block.
struct Block {
  const std::function<void()>* kernel = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  ThreadList<kMostThreads> ready;  // the last runs next, so that a warp keeps running
  ThreadList<kMostThreads> at_barrier;
  int alive = 0;
  int current = 0;
  bool descending = false;  // the order of threads
  void* host_stack_pointer = nullptr;
  Stack host_stack;
  std::string fault;
};
Block block;

// A new stack, with a guard page below. Tops are spread over the cache's sets, because the threads
// of a warp use their stacks in turn.
Stack MakeStack() {
  constexpr size_t kColors = 32, kColorBytes = 11 * 64;
  static size_t made = 0;
  void* const memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuardBytes, PROT_NONE);
  char* const bottom = static_cast<char*>(memory) + kGuardBytes;
  return {bottom, bottom + kStackBytes - made++ % kColors * kColorBytes};
}

std::vector<Stack> free_stacks;

#ifdef TRIPTYCH_ADDRESS_SANITIZER
// AddressSanitizer knows the bounds of the stack in use.
Stack HostStack() {
  pthread_attr_t attributes;
  void* bottom = nullptr;
  size_t size = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &size);
  pthread_attr_destroy(&attributes);
  return {static_cast<char*>(bottom), static_cast<char*>(bottom) + size};
}
// `fake_stack`: null if the stack in use is left for good.
void BeforeSwitch(void** fake_stack, const Stack& to) {
  __sanitizer_start_switch_fiber(fake_stack, to.bottom, to.top - to.bottom);
}
void AfterSwitch(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}
#else
Stack HostStack() { return {}; }
void BeforeSwitch(void** /*fake_stack*/, const Stack& /*to*/) {}
void AfterSwitch(void* /*fake_stack*/) {}
#endif

Stack TakeStack() {
  if (free_stacks.empty()) return MakeStack();
  const Stack stack = free_stacks.back();
  free_stacks.pop_back();
  return stack;
}

// Stores the current stack pointer in `from`, and continues on another stack.
void Switch(void** from, void* const* to, const Stack& stack) {
  void* fake_stack = nullptr;
  BeforeSwitch(&fake_stack, stack);
  triptych_switch_fiber(from, to);
  AfterSwitch(fake_stack);
}

// Continues on another stack for good.
[[noreturn]] void Leave(void* const* to, const Stack& stack) {
  void* unused = nullptr;
  BeforeSwitch(nullptr, stack);
  triptych_switch_fiber(&unused, to);
  __builtin_unreachable();
}

[[noreturn]] void LeaveForHost() { Leave(&block.host_stack_pointer, block.host_stack); }

// Removes the next thread to run from the list.
int NextReady() {
  if (block.ready.empty()) {
    block.fault = "threads wait for each other at different barriers";
    LeaveForHost();
  }
  const int next = block.ready.pop_back();
  block.current = next;
  thread_index = {static_cast<unsigned>(next), 0, 0};
  my_registers = &block.warps[next / kWarp].registers[next % kWarp];
  return next;
}

void RunThreads();

// Prepares a stack so that the first switch to its fiber starts RunThreads.
void* FirstFrame(const Stack& stack) {
  constexpr int kSavedRegisters = 6;
  auto** top = reinterpret_cast<void**>(stack.top);
  *--top = nullptr;  // as if called: the stack is aligned to 16 bytes before a return address
  *--top = reinterpret_cast<void*>(&RunThreads);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  return top;
}

// Switches to a thread; stores the current stack pointer in `from`.
void SwitchTo(int next, void** from) {
  Fiber& fiber = block.fibers[next];
  if (from == &fiber.stack_pointer) return;
  if (fiber.stack_pointer == nullptr) {
    fiber.stack = TakeStack();
    fiber.stack_pointer = FirstFrame(fiber.stack);
  }
  Switch(from, &fiber.stack_pointer, fiber.stack);
}

void Wait() {
  void** const from = &block.fibers[block.current].stack_pointer;
  SwitchTo(NextReady(), from);
}

template <int kMost>
void Wake(ThreadList<kMost>& waiting) {
  for (int i = 0; i < waiting.size(); ++i) block.ready.push_back(waiting[i]);
  waiting.clear();
}

// Called when the running thread has returned from the kernel.
void Exit() {
  Warp& warp = block.warps[block.current / kWarp];
  --warp.alive;
  if (!warp.waiting.empty()) Fault("a lane exits while others of its warp wait for it");
  --block.alive;
  if (block.alive > 0 && block.at_barrier.size() == block.alive) Wake(block.at_barrier);
}

// Runs the current thread, then others that have not started yet, on the same stack. Most kernels
// have no barriers, so all their threads run without a switch.
void RunThreads() {
  AfterSwitch(nullptr);
  const Stack stack = block.fibers[block.current].stack;
  for (;;) {
    (*block.kernel)();
    Exit();
    if (block.alive == 0) break;
    const int next = NextReady();
    if (block.fibers[next].stack_pointer == nullptr) {
      block.fibers[next].stack = stack;
      continue;
    }
    free_stacks.push_back(stack);
    Leave(&block.fibers[next].stack_pointer, block.fibers[next].stack);
  }
  free_stacks.push_back(stack);
  LeaveForHost();
}

std::string Name(const uint3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

void RunBlock(int threads) {
  block.fibers.resize(threads);
  block.warps.resize(threads / kWarp);
  block.ready.clear();
  block.at_barrier.clear();
  block.alive = threads;
  block.fault.clear();
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.stack_pointer = nullptr;
    fiber.copies.clear();
    fiber.committed.clear();
    block.ready.push_back(block.descending ? i : threads - 1 - i);
  }
  for (Warp& warp : block.warps) {
    warp.alive = kWarp;
    warp.waiting.clear();
  }
  SwitchTo(NextReady(), &block.host_stack_pointer);
  if (!block.fault.empty()) {
    throw std::runtime_error("a kernel's fault in block " + Name(block_index) + ", thread " +
                             std::to_string(block.current) + ": " + block.fault);
  }
}

}  // namespace

void RunBlocks(dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& kernel) {
  // The allocation has the size of the launch, so that AddressSanitizer reports accesses beyond it.
  constexpr auto kDelete = [](void* memory) { ::operator delete(memory, kSharedAlignment); };
  const std::unique_ptr<void, decltype(kDelete)> shared(
      ::operator new(shared_bytes, kSharedAlignment), kDelete);
  dynamic_shared = static_cast<unsigned char*>(shared.get());
  block_size = dim3(static_cast<unsigned>(threads));
  grid_size = grid;
  block.kernel = &kernel;
  static thread_local const Stack host_stack = HostStack();
  block.host_stack = host_stack;
  block.descending = false;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = {x, y, z};
        std::memset(dynamic_shared, 0xff, shared_bytes);
        RunBlock(threads);
        block.descending = !block.descending;
      }
    }
  }
}

void Fault(const std::string& what) {
  block.fault = what;
  LeaveForHost();
}

void BlockBarrier() {
  block.at_barrier.push_back(block.current);
  if (block.at_barrier.size() == block.alive) Wake(block.at_barrier);
  Wait();
}

void RunOnWarp(WarpOperation operation, int argument) {
  Warp& warp = block.warps[block.current / kWarp];
  if (warp.alive != kWarp) Fault("an operation of a warp of which a lane has exited");
  if (warp.waiting.empty()) {
    warp.operation = operation;
    warp.argument = argument;
  } else if (warp.operation != operation || warp.argument != argument) {
    Fault("lanes of one warp run different operations");
  }
  if (warp.waiting.size() < kWarp - 1) {
    warp.waiting.push_back(block.current);
    Wait();
    return;
  }
  operation(warp.registers.data(), argument);
  Wake(warp.waiting);
}

void StartCopy(void* to, const void* from, bool seen) {
  const Copy copy{to, from, seen};
  if (block.descending) {
    Perform(copy);
  } else {
    block.fibers[block.current].copies.push_back(copy);
  }
}

void CommitStartedCopies() {
  Fiber& fiber = block.fibers[block.current];
  fiber.committed.push_back(fiber.copies.size());
}

void WaitUntilPending(int groups) {
  Fiber& fiber = block.fibers[block.current];
  const auto over = std::ssize(fiber.committed) - groups;
  if (over <= 0) return;
  const size_t end = fiber.committed[over - 1];
  for (size_t i = 0; i < end; ++i) Perform(fiber.copies[i]);
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<std::ptrdiff_t>(end));
  fiber.committed.erase(fiber.committed.begin(), fiber.committed.begin() + over);
  for (size_t& group : fiber.committed) group -= end;
}

}  // namespace triptych::emulation
