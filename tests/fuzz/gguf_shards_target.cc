// Fuzz target: a model of two GGUF files. The first four bytes are the length of the first one.
#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/checkpoint/gguf.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/read_all.h"
#include "tests/fuzz/targets.h"
#include "tests/support/temp_dir.h"

namespace triptych {

void FuzzGgufShards(std::string_view bytes) {
  FuzzInput input(bytes);
  const auto length = input.Value<uint32_t>();
  const TempDir directory;
  const std::filesystem::path second = directory.path() / "m-00002-of-00002.gguf";
  WriteFile(directory.path() / "m-00001-of-00002.gguf", input.Take(length));
  WriteFile(second, input.TakeAll());
  try {
    const checkpoint::GgufFile file(second);
    Promise(file.files().size() <= 2, "a model has the files that are there");
    ReadAll(file, bytes.size());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace triptych
