// Fork-join thread pool.
#ifndef TRIPTYCH_ENGINE_KERNELS_THREAD_POOL_H_
#define TRIPTYCH_ENGINE_KERNELS_THREAD_POOL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <type_traits>
#include <vector>

namespace triptych::kernels {

// Runs one piece of work at a time, as tasks. Running threads claim tasks one by one, so a
// descheduled thread delays at most the task it holds. Not thread-safe: one thread calls Run and
// ForEach.
class ThreadPool {
 public:
  // `threads` >= 1 counts the thread that calls Run.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Best number of tasks for `multiply_adds` of work; 1 if that is too little to share.
  int64_t TaskCount(int64_t multiply_adds) const {
    return std::clamp<int64_t>(multiply_adds / kTaskWork, 1,
                               workers_.empty() ? 1 : int64_t{4} * threads());
  }

  // Calls task(i), or task(i, thread) if it takes two arguments, once for each i from 0 to
  // tasks - 1, in no particular order, and returns when all have ended. `thread` is the index of
  // the thread that runs the task, 0 to threads() - 1: 0 is the calling one. Throws the first
  // exception of a task, once no task is running; tasks that had not begun when it was thrown may
  // or may not run. REQUIRES: tasks do not call Run.
  template <typename Task>
  void Run(int64_t tasks, const Task& task) {
    if (tasks <= 1 || workers_.empty()) {
      for (int64_t i = 0; i < tasks; ++i) Invoke<Task>(&task, i, /*thread=*/0);
      return;
    }
    RunShared(tasks, Invoke<Task>, &task);
  }

  // Calls visit(i) once for each i from 0 to count - 1, in at most TaskCount(multiply_adds) tasks.
  template <typename Visit>
  void ForEach(int64_t count, int64_t multiply_adds, const Visit& visit) {
    const int64_t tasks = std::min(count, TaskCount(multiply_adds));
    Run(tasks, [&](int64_t task) {
      const int64_t end = count * (task + 1) / tasks;
      for (int64_t i = count * task / tasks; i < end; ++i) visit(i);
    });
  }

 private:
  // Multiply-adds that take about as long as handing a task to another thread.
  static constexpr int64_t kTaskWork = 1 << 15;

  using Call = void (*)(const void* task, int64_t i, int thread);

  template <typename Task>
  static void Invoke(const void* task, int64_t i, int thread) {
    if constexpr (std::is_invocable_v<const Task&, int64_t, int>) {
      (*static_cast<const Task*>(task))(i, thread);
    } else {
      (*static_cast<const Task*>(task))(i);
    }
  }

  // Ends the workers.
  void Stop();
  void RunShared(int64_t tasks, Call call, const void* task);
  void Work(int thread);
  // Runs one task. Returns false if none is unclaimed.
  bool RunOne(int thread);

  Call call_ = nullptr;         // runs the tasks that unclaimed_ counts
  const void* task_ = nullptr;  // argument of call_
  std::exception_ptr failure_;  // written by the thread that sets failed_
  std::atomic<bool> failed_ = false;
  bool spin_;                                    // whether there is a CPU for every thread
  alignas(64) std::atomic<int> unclaimed_ = 0;   // tasks; kStop to end the workers
  alignas(64) std::atomic<int> unfinished_ = 0;  // tasks
  std::vector<std::thread> workers_;             // last: they use all of the above
};

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_THREAD_POOL_H_
