#include <stdexcept>

#include "server/zmq/kv_event_publisher.h"

namespace triptych::server {

class KvEventPublisher::Sockets {};

bool KvEventPublisher::IsBuilt() { return false; }

KvEventPublisher::KvEventPublisher(const KvPublisherOptions& options) {
  throw std::runtime_error("--kv-events " + options.address +
                           ": this build has no ZeroMQ; allowed: off and grpc");
}
KvEventPublisher::~KvEventPublisher() = default;

void KvEventPublisher::Start(KvEventStreams& /*streams*/) {}

}  // namespace triptych::server
