// Fuzz target: the index of a checkpoint's shards.
#include <set>
#include <string>

#include "engine/base/error.h"
#include "engine/checkpoint/tensors/safetensors_index.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzSafetensorsIndex(std::string_view bytes) {
  std::set<std::string> shards;
  try {
    for (const auto& [tensor, shard] : checkpoint::ParseSafetensorsIndex(bytes, "index.json")) {
      Promise(std::filesystem::path(shard).filename() == shard, "a shard is beside the index");
      Promise(shard != ".." && shard.find('\0') == shard.npos, "a shard is a file");
      shards.insert(shard);
    }
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
    return;
  }
  Promise(!shards.empty() && shards.size() <= checkpoint::kMaxShards,
          "there are some shards and not too many");
}

}  // namespace triptych
