// JSON description of a loaded model.
#ifndef TRIPTYCH_SERVER_HTTP_MODELS_H_
#define TRIPTYCH_SERVER_HTTP_MODELS_H_

#include <cstdint>

#include "server/core/model_info.h"
#include "server/http/json_output.h"

namespace triptych::server {

// The entry of /v1/models. `created`: Unix time.
JsonOutput ModelJson(const ModelInfo& model, int64_t created);

// The same with the special tokens, of /v1/models/NAME.
JsonOutput WholeModelJson(const ModelInfo& model, int64_t created);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_MODELS_H_
