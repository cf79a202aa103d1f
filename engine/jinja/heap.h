// Budget of one rendering: steps, and memory of its values.
#ifndef TRIPTYCH_ENGINE_JINJA_HEAP_H_
#define TRIPTYCH_ENGINE_JINJA_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/jinja/error.h"

namespace triptych::jinja {

// Throws Failure of kLimit beyond a bound. Values that are charged to it must not outlive it.
class Heap {
 public:
  Heap(int64_t max_steps, size_t max_bytes)
      : max_steps_(max_steps), max_bytes_(max_bytes), steps_left_(max_steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  void Step(int64_t steps = 1) {
    if (steps <= steps_left_) {
      steps_left_ -= steps;
      return;
    }
    throw Failure("rendering takes more than " + std::to_string(max_steps_) + " steps",
                  RenderError::kLimit);
  }
  // Count work on that many bytes: copies and comparisons; searches and code points one by one; and
  // properties of code points, such as their case.
  void Work(size_t bytes) { Step(1 + static_cast<int64_t>(bytes / 128)); }
  void Scan(size_t bytes) { Step(1 + static_cast<int64_t>(bytes / 16)); }
  void Look(size_t bytes) { Step(1 + static_cast<int64_t>(bytes / 4)); }

  // Throws unless this number of bytes fits in addition.
  void Require(size_t bytes) const {
    if (bytes <= max_bytes_ - held_) return;
    throw Failure("values take more than " + std::to_string(max_bytes_) + " bytes",
                  RenderError::kLimit);
  }
  // Bytes of one object, until it is destroyed.
  class Charge {
   public:
    Charge() = default;
    Charge(Heap& heap, size_t bytes) : heap_(&heap) { Add(bytes); }
    ~Charge() {
      if (heap_ != nullptr) heap_->held_ -= bytes_;
    }
    // REQUIRES: it has a heap.
    void Add(size_t bytes) {
      heap_->Require(bytes);
      heap_->held_ += bytes;
      bytes_ += bytes;
    }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

   private:
    Heap* heap_ = nullptr;
    size_t bytes_ = 0;
  };

 private:
  const int64_t max_steps_;
  const size_t max_bytes_;
  int64_t steps_left_;
  size_t held_ = 0;
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_HEAP_H_
