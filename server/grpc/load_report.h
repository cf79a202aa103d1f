// How loaded an engine is, told to those who balance calls over servers.
#ifndef TRIPTYCH_SERVER_GRPC_LOAD_REPORT_H_
#define TRIPTYCH_SERVER_GRPC_LOAD_REPORT_H_

#include <grpcpp/server_context.h>

#include "engine/serving/request.h"

namespace triptych::server {

// Where clients of gRPC look for an OrcaLoadReport (gRFC A51).
inline constexpr const char* kLoadReportMetadata = "endpoint-load-metrics-bin";

// Puts a report into the call's trailers. Called before the call is finished. CallMetricRecorder of
// gRPC 1.51 has shares and costs, and no numbers of requests.
void AddLoadReport(const serving::EngineLoad& load, grpc::CallbackServerContext& context);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_LOAD_REPORT_H_
