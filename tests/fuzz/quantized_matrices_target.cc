// Fuzz target: quantization_config of a config.json (up to the first newline), and a safetensors
// file that another program quantized (after it).
#include <algorithm>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/config/published_quantization.h"
#include "engine/checkpoint/tensors/quantized_matrices.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/read_all.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzQuantizedMatrices(std::string_view bytes) {
  const size_t newline = std::min(bytes.find('\n'), bytes.size());
  const std::string_view file = bytes.substr(std::min(newline + 1, bytes.size()));
  try {
    checkpoint::JsonFields fields(
        {{"quantization_config", ParseJson(bytes.substr(0, newline), "config.json")}},
        "config.json");
    const auto quantization = checkpoint::TakePublishedQuantization(fields);
    Promise(quantization->rows >= 1 && quantization->columns.value_or(1) >= 1,
            "a scale is of some weights");
    const MemoryFile memory(file);
    // Words of four-bit integers take the most: four bytes become eight float32 numbers.
    ReadAll(
        *checkpoint::DecodeMatrices(
            std::make_shared<const checkpoint::SafetensorsFile>(memory.path()), *quantization, {}),
        8 * file.size());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 2000);
  }
}

}  // namespace triptych
