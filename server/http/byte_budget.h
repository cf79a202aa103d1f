// What requests and answers may take in memory, all connections together.
#ifndef TRIPTYCH_SERVER_HTTP_BYTE_BUDGET_H_
#define TRIPTYCH_SERVER_HTTP_BYTE_BUDGET_H_

#include <cstdint>

namespace triptych {

// Not thread-safe: the I/O thread's. Outlives its shares.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t bytes) : left_(bytes) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // What one of them has taken; given back at its end.
  class Share {
   public:
    explicit Share(ByteBudget& budget) : budget_(budget) {}
    ~Share() { Release(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // False, and nothing is taken, if there is not so much left.
    bool Take(int64_t bytes) {
      if (bytes > budget_.left_) return false;
      budget_.left_ -= bytes;
      taken_ += bytes;
      return true;
    }
    void Release() {
      budget_.left_ += taken_;
      taken_ = 0;
    }
    int64_t taken() const { return taken_; }

   private:
    ByteBudget& budget_;
    int64_t taken_ = 0;
  };

 private:
  int64_t left_;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_HTTP_BYTE_BUDGET_H_
