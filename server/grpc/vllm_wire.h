// Conversions between messages of vllm.grpc.engine and the core's types.
#ifndef TRIPTYCH_SERVER_GRPC_VLLM_WIRE_H_
#define TRIPTYCH_SERVER_GRPC_VLLM_WIRE_H_

#include <optional>
#include <string>

#include "engine/kv_cache/kv_event_log.h"
#include "engine/serving/stats.h"
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/request_params.h"
#include "server/core/requests/stream_buffer.h"
#include "smg/grpc/common/common.pb.h"
#include "vllm/grpc/engine/vllm_engine.pb.h"

namespace triptych::server {

// https://github.com/smg-project/smg
namespace vllm_wire = ::vllm::grpc::engine;
namespace smg_wire = ::smg::grpc::common;

inline constexpr const char* kModelMetadata = "x-model";

// An error that names the first field of what is not served; nothing if there is none.
std::optional<Error> CheckServed(const vllm_wire::GenerateRequest& message);
// As FromProto of wire.h. REQUIRES: CheckServed finds nothing.
GenerateParams FromProto(const vllm_wire::GenerateRequest& message, std::string model);
// An error of the core, with the message's names of fields.
Error InVllmTerms(Error error);

// Appends the log-probabilities of generated tokens. `top`: with those of most likely tokens.
void AddLogprobs(const std::vector<serving::TokenLogprobs>& logprobs, bool top,
                 vllm_wire::OutputLogProbs& out);
// The same of a prompt's.
void AddLogprobs(const std::vector<serving::TokenLogprobs>& logprobs, bool top,
                 vllm_wire::InputLogProbs& out);
vllm_wire::GetModelInfoResponse ToVllm(const ModelInfo& model);
vllm_wire::SchedulerLoad ToVllm(const serving::KvCacheStats& stats, const ModelInfo& model);
smg_wire::KvEventBatch ToSmg(const KvEventBatch& batch, int64_t block_positions);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_VLLM_WIRE_H_
