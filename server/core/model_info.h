// Description of a loaded model.
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

// Copied when the model is loaded and constant from then on, so that every thread may read it; the
// Engine belongs to its own thread.
struct ModelInfo {
  std::string name;
  ModelConfig config;                           // as served
  std::string config_json;                      // `config` as config.json
  std::optional<AttentionKind> converted_from;  // the checkpoint's kind, if converted at load
  WeightFormats weight_formats;
  CacheFormat cache_format = CacheFormat::kFloat32;
  int64_t parameters = 0;
  int64_t parameter_bytes = 0;            // of the checkpoint's tensors in weight_formats
  std::vector<std::string> latent_forms;  // name of each layer's form; empty unless MLA
  // Prompt position from which MLA uses expanded attention; absent if it always uses reduced.
  std::optional<int64_t> expand_from;
  CacheGeometry geometry;
  int64_t cache_bytes = 0;                    // of its pool
  std::optional<DeviceMemory> device_memory;  // absent on the CPU
  int64_t pool_positions = 0;                 // capacity of its pool
  std::shared_ptr<const Tokenizer> tokenizer;
  serving::RequestDefaults defaults = {};                  // for absent fields of requests
  std::shared_ptr<const ChatTemplate> chat_template = {};  // null: chat is refused
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_MODEL_INFO_H_
