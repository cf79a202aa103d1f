// Mutexes and condition variables whose use clang checks (-Wthread-safety). Declarations state
// which data a mutex guards and which functions require it. Other compilers see plain mutexes.
//
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#ifndef TRIPTYCH_ENGINE_BASE_MUTEX_H_
#define TRIPTYCH_ENGINE_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define TRIPTYCH_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define TRIPTYCH_THREAD_SAFETY(attribute)
#endif

// A member that is read and written only while the mutex is held.
#define TRIPTYCH_GUARDED_BY(mutex) TRIPTYCH_THREAD_SAFETY(guarded_by(mutex))
// A function whose caller holds the mutex.
#define TRIPTYCH_REQUIRES(mutex) TRIPTYCH_THREAD_SAFETY(requires_capability(mutex))
// A function whose caller does not hold the mutex.
#define TRIPTYCH_EXCLUDES(mutex) TRIPTYCH_THREAD_SAFETY(locks_excluded(mutex))

namespace triptych {

class TRIPTYCH_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() TRIPTYCH_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void Unlock() TRIPTYCH_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex during its own lifetime.
class TRIPTYCH_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TRIPTYCH_THREAD_SAFETY(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() TRIPTYCH_THREAD_SAFETY(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable. Wait in a loop: there are no waits with a predicate, since clang cannot see
// that a lambda runs under the lock.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Releases the mutex while it waits. May return without a notification.
  void Wait(Mutex& mutex) TRIPTYCH_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();  // the caller still holds the mutex
  }
  // Like Wait, but returns false once `deadline` has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      TRIPTYCH_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = changed_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_MUTEX_H_
