// Validation of sampling parameters.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_SAMPLING_FIELDS_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_SAMPLING_FIELDS_H_

#include "engine/serving/sampler.h"
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/request_params.h"

namespace triptych::server {

// The parameters of the fields and of the model's defaults. An error names the field after
// "sampling.". Thread-safe.
Result<serving::SamplingParams> ValidateSampling(const SamplingFields& fields,
                                                 const ModelInfo& model);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_SAMPLING_FIELDS_H_
