// Threads that share one piece of work at a time.
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

// Fork and join. Tasks are claimed one by one by whichever thread is running, so a thread that
// the system has descheduled delays at most the task it holds. A pool belongs to the one thread
// that calls it.
class ThreadPool {
 public:
  // `threads` >= 1 counts the thread that calls Run.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // How many tasks `multiply_adds` of work are best cut into: one if it is too little to share.
  int64_t TaskCount(int64_t multiply_adds) const {
    return std::clamp<int64_t>(multiply_adds / kTaskWork, 1,
                               workers_.empty() ? 1 : int64_t{4} * threads());
  }

  // Calls task(i), or task(i, thread) if it takes two arguments, once for each i from 0 to
  // tasks - 1, in no particular order, and returns when all have ended. `thread` is the index of
  // the thread that runs the task, 0 to threads() - 1: 0 is the calling one. If a task throws, that
  // is thrown from here, once no task is running; whether tasks that had not begun by then were run
  // is not said. Tasks must not call Run.
  template <typename Task>
  void Run(int64_t tasks, const Task& task) {
    if (tasks <= 1 || workers_.empty()) {
      for (int64_t i = 0; i < tasks; ++i) Invoke<Task>(&task, i, /*thread=*/0);
      return;
    }
    RunShared(tasks, Invoke<Task>, &task);
  }

  // Calls visit(i) once for each i from 0 to count - 1, in as many tasks as the whole work is
  // worth.
  template <typename Visit>
  void ForEach(int64_t count, int64_t multiply_adds, const Visit& visit) {
    const int64_t tasks = std::min(count, TaskCount(multiply_adds));
    Run(tasks, [&](int64_t task) {
      const int64_t end = count * (task + 1) / tasks;
      for (int64_t i = count * task / tasks; i < end; ++i) visit(i);
    });
  }

 private:
  // So many multiply-adds take about as long as handing a task to another thread.
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
  // Runs one task, if any is unclaimed.
  bool RunOne(int thread);

  Call call_ = nullptr;         // runs the tasks that unclaimed_ counts
  const void* task_ = nullptr;  // what call_ is called with
  std::exception_ptr failure_;  // written by the one that sets failed_
  std::atomic<bool> failed_ = false;
  bool spin_;                                    // whether there is a CPU for every thread
  alignas(64) std::atomic<int> unclaimed_ = 0;   // tasks; kStop to end the workers
  alignas(64) std::atomic<int> unfinished_ = 0;  // tasks
  std::vector<std::thread> workers_;             // last: they use all of the above
};

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_THREAD_POOL_H_
