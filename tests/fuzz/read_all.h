// Contract of every source of tensors, checked by fuzz targets.
#ifndef TRIPTYCH_TESTS_FUZZ_READ_ALL_H_
#define TRIPTYCH_TESTS_FUZZ_READ_ALL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/checkpoint/tensors/tensor_source.h"
#include "tests/fuzz/input.h"

namespace triptych {

// Reads every tensor, each of at most `most_bytes`.
inline void ReadAll(const checkpoint::TensorSource& source, size_t most_bytes) {
  for (const std::string& name : source.TensorNames()) {
    const checkpoint::StoredTensor* const stored = source.Find(name);
    Promise(stored != nullptr, "a tensor that is listed is found");
    Promise(stored->bytes <= most_bytes, "tensors lie in the file");
    for (const int64_t extent : stored->shape) Promise(extent >= 0, "a shape is not negative");
    std::string data(stored->bytes, '\0');
    source.Read(name, std::as_writable_bytes(std::span(data)));
  }
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_FUZZ_READ_ALL_H_
