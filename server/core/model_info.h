// What is known of a hosted model once it is loaded.
#ifndef TRIPTYCH_SERVER_CORE_MODEL_INFO_H_
#define TRIPTYCH_SERVER_CORE_MODEL_INFO_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/base/formats.h"
#include "engine/kv_cache/geometry.h"
#include "engine/model/config.h"
#include "engine/serving/request.h"
#include "engine/text/tokenizer.h"
#include "server/core/chat/chat_template.h"

namespace triptych::server {

// Copied when the model was loaded and never changed, so that every thread may read it: an Engine
// is its own thread's alone.
struct ModelInfo {
  std::string name;
  ModelConfig config;                           // as it is served
  std::string config_json;                      // the same, as config.json has it
  std::optional<AttentionKind> converted_from;  // the checkpoint's, if it was converted at load
  WeightFormats weight_formats;
  CacheFormat cache_format = CacheFormat::kFloat32;
  int64_t parameters = 0;
  int64_t parameter_bytes = 0;            // of the checkpoint's tensors in weight_formats
  std::vector<std::string> latent_forms;  // the name of each layer's; empty unless MLA
  // The position of a prompt from which on MLA attends it by expanded attention; absent if none is.
  std::optional<int64_t> expand_from;
  // A sliding window ends the context before what was published.
  bool window_is_context = false;
  CacheGeometry geometry;
  int64_t cache_bytes = 0;                    // of its whole cache
  std::optional<DeviceMemory> device_memory;  // absent on the CPU
  int64_t pool_positions = 0;                 // that its whole cache holds
  std::shared_ptr<const Tokenizer> tokenizer;
  serving::RequestDefaults defaults = {};          // where a request is silent
  std::optional<ChatTemplate> chat_template = {};  // absent if none is known
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_MODEL_INFO_H_
