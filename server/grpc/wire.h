// Conversions between Protobuf messages and the core's types.
#ifndef TRIPTYCH_SERVER_GRPC_WIRE_H_
#define TRIPTYCH_SERVER_GRPC_WIRE_H_

#include <string>

#include "server/core/model_info.h"
#include "server/core/requests/request_params.h"
#include "server/core/requests/scores.h"
#include "server/core/requests/stream_buffer.h"
#include "server/core/requests/validation.h"
#include "server/core/stats/stats_service.h"
#include "triptych/v1/inference.pb.h"
#include "triptych/v1/kv_cache.pb.h"
#include "triptych/v1/model.pb.h"

namespace triptych::server {

// Key of the request id in a call's initial metadata.
inline constexpr const char* kRequestIdMetadata = "triptych-request-id";

// Texts and token ids of the results view the message. From a list over its limit only one entry
// more than the limit is copied, enough for validation to refuse it.
GenerateParams FromProto(const v1::GenerateRequest& message);
ScoreParams FromProto(const v1::ScoreRequest& message);
ListModelsParams FromProto(const v1::ListModelsRequest& message);
StatsParams FromProto(const v1::GetKvCacheStatsRequest& message);
ListSequencesParams FromProto(const v1::ListSequencesRequest& message);
WatchStatsParams FromProto(const v1::WatchKvCacheStatsRequest& message);
TokenizeParams FromProto(const v1::TokenizeRequest& message);
DetokenizeParams FromProto(const v1::DetokenizeRequest& message);

v1::GenerateResponse ToProto(const StreamChunk& chunk, const std::string& request_id);
v1::ScoreResponse ToProto(const Scores& scores);
v1::TokenizeResponse ToProto(TokenizedText&& text);
v1::GetKvCacheStatsResponse ToProto(const RegistryStats& stats);
v1::ListSequencesResponse ToProto(const SequencePage& page);
// `special_tokens`: with the tokenizer's special tokens, which may be many.
v1::Model ToProto(const ModelInfo& model, bool special_tokens);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_WIRE_H_
