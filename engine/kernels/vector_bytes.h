// Vector width of the instruction set that kernels run on.
#ifndef TRIPTYCH_ENGINE_KERNELS_VECTOR_BYTES_H_
#define TRIPTYCH_ENGINE_KERNELS_VECTOR_BYTES_H_

#include <cstdint>

namespace triptych::kernels {

// Bytes of a vector that kernels compute with on this machine: 64 with AVX-512, 32 with AVX2, 16
// with lesser sets and on ARM, 1 if the compiler has none. Thread-safe.
int64_t VectorBytes();

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_VECTOR_BYTES_H_
