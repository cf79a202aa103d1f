// The engine's figures as messages.
#ifndef TRIPTYCH_SERVER_WIRE_H_
#define TRIPTYCH_SERVER_WIRE_H_

#include "engine/hosting/hosted_model.h"
#include "engine/serving/engine.h"
#include "engine/serving/request.h"
#include "triptych/v1/inference.pb.h"
#include "triptych/v1/kv_cache.pb.h"
#include "triptych/v1/model.pb.h"

namespace triptych {

v1::KvCacheUsage ToProto(const KvCacheUsage& usage);
v1::Usage ToProto(const RequestUsage& usage);
v1::TokenLogprobs ToProto(const TokenLogprobs& logprobs);
v1::KvCacheStats ToProto(const std::string& model, const KvCacheStats& stats);
v1::Sequence ToProto(const std::string& model, const SequenceStats& sequence);
v1::Model ToProto(const HostedModel& model);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_WIRE_H_
