#include "engine/kernels/thread_pool.h"

#include <chrono>
#include <utility>

namespace triptych::kernels {
namespace {

constexpr int kStop = -1;

// Longer than the gap between two products of a decode step, shorter than a time slice.
constexpr std::chrono::microseconds kSpin{50};

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until value != `old`; spins at first if `spin`. RunShared and Stop notify of new values of
// unclaimed_, the last task of that of unfinished_.
void Await(const std::atomic<int>& value, int old, bool spin) {
  if (spin) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        Pause();
      }
      std::this_thread::yield();  // to another process that needs the CPU
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : spin_(threads <= static_cast<int>(std::thread::hardware_concurrency())) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
  } catch (...) {  // the system has no more threads
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  unclaimed_.store(kStop);
  unclaimed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunShared(int64_t tasks, Call call, const void* task) {
  // No thread reads these before a task can be claimed, nor after the last one has finished.
  call_ = call;
  task_ = task;
  unfinished_.store(static_cast<int>(tasks), std::memory_order_relaxed);
  unclaimed_.store(static_cast<int>(tasks));  // seq_cst, so that no notification is missed
  unclaimed_.notify_all();
  while (RunOne(/*thread=*/0)) {
  }
  for (int left; (left = unfinished_.load(std::memory_order_acquire)) != 0;) {
    Await(unfinished_, left, spin_);
  }
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

bool ThreadPool::RunOne(int thread) {
  int left = unclaimed_.load(std::memory_order_relaxed);
  do {
    if (left <= 0) return false;
  } while (!unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  try {
    call_(task_, left - 1, thread);
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
  }
  if (unfinished_.fetch_sub(1) == 1) unfinished_.notify_one();
  return true;
}

void ThreadPool::Work(int thread) {
  while (unclaimed_.load(std::memory_order_acquire) != kStop) {
    if (!RunOne(thread)) Await(unclaimed_, 0, spin_);
  }
}

}  // namespace triptych::kernels
