// Memory of a server process besides its models.
#ifndef TRIPTYCH_ENGINE_BACKEND_SERVER_BYTES_H_
#define TRIPTYCH_ENGINE_BACKEND_SERVER_BYTES_H_

#include <cstdint>

namespace triptych {

// Lower bound in bytes, measured with the three shipped models.
inline constexpr int64_t kServerBytes = int64_t{96} << 20;

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_SERVER_BYTES_H_
