// Load reports for clients' load balancers (ORCA).
#ifndef TRIPTYCH_SERVER_GRPC_LOAD_REPORT_H_
#define TRIPTYCH_SERVER_GRPC_LOAD_REPORT_H_

#include <grpcpp/server_context.h>

#include "engine/serving/request.h"

namespace triptych::server {

// Trailer in which gRPC clients expect an OrcaLoadReport (gRFC A51).
inline constexpr const char* kLoadReportMetadata = "endpoint-load-metrics-bin";

// Adds a report to the call's trailers. Call it before the call is finished. CallMetricRecorder of
// gRPC 1.51 is not enough: it has utilizations and costs, but no counts of requests.
void AddLoadReport(const serving::EngineLoad& load, grpc::CallbackServerContext& context);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_LOAD_REPORT_H_
