// Messages and what the core has for them.
#ifndef TRIPTYCH_SERVER_GRPC_WIRE_H_
#define TRIPTYCH_SERVER_GRPC_WIRE_H_

#include <cstdint>
#include <string>

#include "server/core/request_params.h"
#include "server/core/served_model.h"
#include "server/core/statistics.h"
#include "server/core/stream_buffer.h"
#include "triptych/v1/inference.pb.h"
#include "triptych/v1/kv_cache.pb.h"
#include "triptych/v1/model.pb.h"

namespace triptych {

// The prompt of what these return views the message.
GenerateParams FromProto(const v1::GenerateRequest& message);
ScoreParams FromProto(const v1::ScoreRequest& message);
ListSequencesParams FromProto(const v1::ListSequencesRequest& message);
WatchStatsParams FromProto(const v1::WatchKvCacheStatsRequest& message);

v1::GenerateResponse ToProto(const StreamChunk& chunk, const std::string& request_id,
                             uint64_t seed);
// REQUIRES: the chunk holds the completion of a request that scored.
v1::ScoreResponse ToScoreResponse(const StreamChunk& chunk);
v1::GetKvCacheStatsResponse ToProto(const HostStats& stats);
v1::ListSequencesResponse ToProto(const SequencePage& page);
v1::Model ToProto(const ServedModel& model);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_WIRE_H_
