// What a server's process takes beside its models. Torch-free.
#ifndef TRIPTYCH_ENGINE_BACKEND_SERVER_BYTES_H_
#define TRIPTYCH_ENGINE_BACKEND_SERVER_BYTES_H_

#include <cstdint>

namespace triptych {

// What it holds beside the cache, at the least: measured with the three shipped models.
inline constexpr int64_t kServerBytes = int64_t{96} << 20;

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_SERVER_BYTES_H_
