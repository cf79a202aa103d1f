#include "server/grpc/admin_service.h"

#include <google/protobuf/util/time_util.h>

#include <chrono>
#include <optional>

#include "server/grpc/credentials.h"
#include "server/grpc/status.h"
#include "server/grpc/unary.h"

namespace triptych::server {

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::DrainRequest* message,
                                              v1::DrainResponse* response) {
  const Result<AuthorizedCall> entry = gate_.Enter(CredentialsOf(*context), Scope::kAdmin);
  if (!entry.ok()) return FinishUnary(context, ToStatus(entry.error(), *context));
  std::optional<std::chrono::milliseconds> timeout;
  if (message->has_timeout()) {
    constexpr std::chrono::seconds kMax = std::chrono::hours(24);
    const google::protobuf::Duration& asked = message->timeout();
    const std::chrono::nanoseconds rest(asked.nanos());
    if (asked.seconds() < 0 || asked.seconds() > kMax.count() || rest.count() < 0 ||
        rest >= std::chrono::seconds(1) || std::chrono::seconds(asked.seconds()) + rest > kMax) {
      return FinishUnary(
          context,
          ToStatus(InvalidArgument("timeout", "is out of range; allowed: 0 s to 24 h"), *context));
    }
    timeout =
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::seconds(asked.seconds()) + rest);
  }
  response->set_live_requests(static_cast<int32_t>(entry.value().core.requests.live_requests()));
  request_drain_(timeout, entry.value().caller.client);
  return FinishUnary(context, grpc::Status::OK);
}

}  // namespace triptych::server
