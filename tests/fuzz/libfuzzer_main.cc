// Entry point of libFuzzer, for the target TRIPTYCH_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  triptych::TRIPTYCH_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
