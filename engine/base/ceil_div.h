// Integer division that rounds up.
#ifndef TRIPTYCH_ENGINE_BASE_CEIL_DIV_H_
#define TRIPTYCH_ENGINE_BASE_CEIL_DIV_H_

#include <cstdint>

namespace triptych {

// The least integer not below a / b. REQUIRES: a >= 0, b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_CEIL_DIV_H_
