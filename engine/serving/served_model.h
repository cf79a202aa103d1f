// Properties of a model that is ready to serve.
#ifndef TRIPTYCH_ENGINE_SERVING_SERVED_MODEL_H_
#define TRIPTYCH_ENGINE_SERVING_SERVED_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/base/formats.h"
#include "engine/model/config.h"
#include "engine/model/latent_shape.h"
#include "engine/serving/request.h"
#include "engine/text/tokenizer.h"

namespace triptych::serving {

// Constant once the model is loaded, so that every thread may read it.
struct ServedModel {
  std::string name;
  ModelConfig config;                           // as served: after a conversion
  std::optional<AttentionKind> converted_from;  // the checkpoint's, if it was converted
  WeightFormats weight_formats;
  CacheFormat cache_format = CacheFormat::kFloat32;
  int64_t parameters = 0;
  int64_t active_parameters = 0;           // of one token: less the experts that it does not choose
  int64_t parameter_bytes = 0;             // of all tensors, in weight_formats
  int64_t read_bytes_per_token = 0;        // of weights, by a step of one token
  std::vector<ReducedForm> latent_forms;   // [layers]; empty unless MLA
  BackendInfo info;                        // the engine's
  std::optional<std::string> draft_model;  // the name of the model that drafts for it
  std::shared_ptr<const Tokenizer> tokenizer;
  RequestDefaults defaults;  // the checkpoint's; the engine does not apply them itself
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_SERVED_MODEL_H_
