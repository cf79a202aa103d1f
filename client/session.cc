#include "client/session.h"

#include "client/status_text.h"

namespace triptych::client {

Session::Session(const Connection& connection)
    : address_(connection.channel.address),
      client_(Connect(connection.channel), connection.call),
      interrupts_([this] { client_.Cancel(); }) {}

void Session::Check(const grpc::Status& status) const {
  if (status.ok()) return;
  if (interrupts_.interrupted()) throw Interrupted();
  throw Failure(DescribeStatus(status, address_));
}

}  // namespace triptych::client
