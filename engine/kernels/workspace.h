// Scratch memory for the steps of a model, kept from one step to the next.
#ifndef TRIPTYCH_ENGINE_KERNELS_WORKSPACE_H_
#define TRIPTYCH_ENGINE_KERNELS_WORKSPACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace triptych {

// Buffers are taken in stack order: what is taken within a Scope is given back when it ends.
// Memory only grows, and takes of sizes that were taken before in the same order never allocate.
// For one thread at a time.
class Workspace {
  // Where the next buffer starts, if it fits there.
  struct Top {
    size_t block = 0;
    int64_t offset = 0;
  };

 public:
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), top_(workspace.top_) {}
    ~Scope() { workspace_.top_ = top_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    Top top_;
  };

  // `count` floats of any value, 64-byte aligned. REQUIRES: a scope is open; they are the caller's
  // until the innermost one ends.
  float* Floats(int64_t count) {
    count = (count + kAlignment - 1) / kAlignment * kAlignment;
    while (top_.block < blocks_.size() && count > blocks_[top_.block].size - top_.offset) {
      top_ = {.block = top_.block + 1};
    }
    if (top_.block == blocks_.size()) Grow(count);
    float* const floats = blocks_[top_.block].floats.get() + top_.offset;
    top_.offset += count;
    return floats;
  }

 private:
  static constexpr int64_t kAlignment = 16;  // floats

  struct Free {
    void operator()(float* floats) const {
      ::operator delete (floats, std::align_val_t{kAlignment * sizeof(float)});
    }
  };
  struct Block {
    std::unique_ptr<float, Free> floats;
    int64_t size;
  };

  // Adds a block as large as all before it, so that there are few.
  void Grow(int64_t count) {
    int64_t size = std::max<int64_t>(count, 1 << 14);
    int64_t held = 0;
    for (const Block& block : blocks_) held += block.size;
    size = std::max(size, held);
    void* const memory =
        ::operator new (size * sizeof(float), std::align_val_t{kAlignment * sizeof(float)});
    blocks_.push_back({std::unique_ptr<float, Free>(static_cast<float*>(memory)), size});
  }

  std::vector<Block> blocks_;
  Top top_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_WORKSPACE_H_
