// gRPC's own log lines in the server's log.
#ifndef TRIPTYCH_SERVER_GRPC_GRPC_LOG_H_
#define TRIPTYCH_SERVER_GRPC_GRPC_LOG_H_

namespace triptych::server {

// Sends gRPC's errors to spdlog from now on, at most kGrpcLinesPerSecond of them, since clients can
// cause them. They are the only report of a shortage of descriptors. GRPC_VERBOSITY selects the
// lines. gRPC 1.66 and newer logs through Abseil: its errors stay on standard error.
void LogGrpcErrors();

inline constexpr int kGrpcLinesPerSecond = 10;

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_GRPC_LOG_H_
