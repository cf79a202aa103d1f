// Events of a prefix cache over ZeroMQ, in the form of vLLM's publisher.
#ifndef TRIPTYCH_SERVER_ZMQ_KV_EVENT_PUBLISHER_H_
#define TRIPTYCH_SERVER_ZMQ_KV_EVENT_PUBLISHER_H_

#include <memory>
#include <string>

#include "server/core/stats/kv_event_streams.h"

namespace triptych::server {

struct KvPublisherOptions {
  std::string address;  // tcp://HOST:PORT
  std::string replay;   // the same, of the replay socket; empty: none
  std::string topic;
};

// Binds a PUB socket, whose messages are the topic, the batch's number (8 bytes, big-endian) and
// the batch as MessagePack: [seconds, [event, ...], rank], where an event is
//   ["BlockStored", [hash, ...], parent or nil, [token, ...], block size, nil, nil, nil],
//   ["BlockRemoved", [hash, ...], nil] or ["AllBlocksCleared"].
// A REQ or DEALER client sends a number to the replay socket, and gets the batches from there as
// number and MessagePack, and at last -1 with an empty message. See vllm/distributed/kv_events.py
// of https://github.com/vllm-project/vllm.
class KvEventPublisher {
 public:
  // Whether this build has ZeroMQ.
  static bool IsBuilt();

  // Throws std::runtime_error, with a message of one line.
  explicit KvEventPublisher(const KvPublisherOptions& options);
  // Stops publishing.
  ~KvEventPublisher();

  // Publishes the first model's events from now on. REQUIRES: it has some. The streams must outlive
  // the publisher.
  void Start(KvEventStreams& streams);

 private:
  class Sockets;
  std::unique_ptr<Sockets> sockets_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_ZMQ_KV_EVENT_PUBLISHER_H_
