// What gRPC itself has to say, in the server's log.
#ifndef TRIPTYCH_SERVER_GRPC_GRPC_LOG_H_
#define TRIPTYCH_SERVER_GRPC_GRPC_LOG_H_

namespace triptych::server {

// From now on gRPC's errors go to spdlog, at most kGrpcLinesPerSecond of them: clients can cause
// them, and being out of descriptors is told nowhere else. GRPC_VERBOSITY chooses what is said.
// With a gRPC that logs through Abseil (1.66 and newer) they stay on standard error.
void LogGrpcErrors();

inline constexpr int kGrpcLinesPerSecond = 10;

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_GRPC_LOG_H_
