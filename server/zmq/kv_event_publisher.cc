#include "server/zmq/kv_event_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <msgpack.hpp>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "server/core/log.h"

namespace triptych::server {
namespace {

constexpr size_t kNumberBytes = 8;
constexpr int kMostUnread = 10'000;        // messages to one subscriber; later ones are dropped
constexpr int kMostReplayed = 100'000;     // unread answers to one client; later ones are dropped
constexpr int64_t kMostRequestBytes = 64;  // of a part of a replay request
constexpr uint64_t kReplayEnd = ~uint64_t{0};  // -1

zmq::message_t NumberMessage(uint64_t number) {
  std::array<uint8_t, kNumberBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(number >> 8 * (7 - i));
  return zmq::message_t(bytes.begin(), bytes.end());
}

void PackEvent(const KvEventRun& run, int64_t block_positions,
               msgpack::packer<msgpack::sbuffer>& out) {
  const auto pack_blocks = [&] {
    out.pack_array(static_cast<uint32_t>(run.events.size()));
    for (const KvEvent& event : run.events) out.pack(event.block);
  };
  switch (run.events.front().kind) {
    case KvEvent::Kind::kStored:
      out.pack_array(8).pack("BlockStored");
      pack_blocks();
      if (const auto parent = run.events.front().parent) {
        out.pack(*parent);
      } else {
        out.pack_nil();
      }
      out.pack_array(static_cast<uint32_t>(run.tokens.size()));
      for (const int32_t token : run.tokens) out.pack(token);
      out.pack(block_positions).pack_nil().pack_nil().pack_nil();  // LoRA, medium, LoRA's name
      break;
    case KvEvent::Kind::kRemoved:
      out.pack_array(3).pack("BlockRemoved");
      pack_blocks();
      out.pack_nil();  // medium
      break;
    case KvEvent::Kind::kCleared:
      out.pack_array(1).pack("AllBlocksCleared");
      break;
  }
}

zmq::message_t PackBatch(const KvEventBatch& batch, int64_t block_positions) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> out(buffer);
  const std::vector<KvEventRun> runs = Runs(batch, block_positions);
  out.pack_array(3);
  out.pack(UnixSeconds(batch));
  out.pack_array(static_cast<uint32_t>(runs.size()));
  for (const KvEventRun& run : runs) PackEvent(run, block_positions, out);
  out.pack(0);  // rank
  return zmq::message_t(buffer.data(), buffer.size());
}

}  // namespace

// A thread owns the sockets once Run has begun. It sleeps until there are events, a request for a
// replay, or the end.
class KvEventPublisher::Sockets final : public KvEventListener {
 public:
  explicit Sockets(const KvPublisherOptions& options) : topic_(options.topic) {
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    pub_.set(zmq::sockopt::sndhwm, kMostUnread);
    // A subscription names the beginning of a topic.
    pub_.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(topic_.size()) + kMostRequestBytes);
    Bind(pub_, "--kv-events", options.address);
    if (options.replay.empty()) return;
    replay_.set(zmq::sockopt::sndhwm, kMostReplayed);
    replay_.set(zmq::sockopt::maxmsgsize, kMostRequestBytes);
    Bind(replay_, "--kv-events-replay", options.replay);
  }
  ~Sockets() override {
    if (streams_ != nullptr) {
      streams_->Remove(*this);
      stopping_ = true;
      OnEvents();
      if (thread_.joinable()) thread_.join();
    }
    close(wake_);
  }

  void Start(KvEventStreams& streams) {
    streams_ = &streams;
    log_ = streams.log(0);
    next_ = log_->kept().first;
    streams.Add(*this);
    thread_ = std::thread([this] { Run(); });
  }

  void OnEvents() override {
    const uint64_t one = 1;
    // Fails only if it is full of wake-ups already.
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  }

 private:
  struct Sent {
    uint64_t number;
    zmq::message_t payload;  // whose copies share its bytes
  };

  static void Bind(zmq::socket_t& socket, const std::string& flag, const std::string& address) {
    constexpr std::string_view kLocalhost = "tcp://localhost:";
    std::string numeric = address;  // ZeroMQ binds to no names of hosts
    if (address.starts_with(kLocalhost)) {
      numeric = "tcp://127.0.0.1:" + address.substr(kLocalhost.size());
    }
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::ipv6, address.find('[') != address.npos);
    try {
      socket.bind(numeric);
    } catch (const zmq::error_t& e) {
      throw std::runtime_error(flag + " " + address + ": cannot listen there: " + e.what());
    }
  }

  void Run() {
    std::array<zmq::pollitem_t, 2> items = {
        {{nullptr, wake_, ZMQ_POLLIN, 0}, {replay_.handle(), 0, ZMQ_POLLIN, 0}}};
    while (!stopping_) {
      try {
        zmq::poll(items.data(), items.size(), std::chrono::milliseconds(-1));
        uint64_t wakes = 0;
        [[maybe_unused]] const ssize_t taken = read(wake_, &wakes, sizeof(wakes));
        Publish();
        if (items[1].revents & ZMQ_POLLIN) Replay();
      } catch (const std::exception& e) {
        LogError("cache events over ZeroMQ: {}", e.what());
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    }
  }

  // Sends the new batches, and keeps those that the log keeps.
  void Publish() {
    next_ = std::max(next_, log_->kept().first);  // subscribers see the gap
    for (auto batch = log_->Read(next_); batch != nullptr; batch = log_->Read(next_)) {
      sent_.push_back({next_++, PackBatch(*batch, log_->block_positions())});
      pub_.send(zmq::buffer(topic_), zmq::send_flags::sndmore);
      pub_.send(NumberMessage(batch->number), zmq::send_flags::sndmore);
      zmq::message_t payload;
      payload.copy(sent_.back().payload);
      pub_.send(payload, zmq::send_flags::none);
    }
    while (!sent_.empty() && sent_.front().number < log_->kept().first) sent_.pop_front();
  }

  // Answers one request: [client, empty, number]. Ignores what is none.
  void Replay() {
    std::vector<zmq::message_t> parts;
    do {
      zmq::message_t part;
      if (!replay_.recv(part, zmq::recv_flags::dontwait)) break;
      if (parts.size() < 4) parts.push_back(std::move(part));
    } while (replay_.get(zmq::sockopt::rcvmore));
    if (parts.size() != 3 || parts[1].size() != 0 || parts[2].size() != kNumberBytes) return;
    uint64_t first = 0;
    for (size_t i = 0; i < kNumberBytes; ++i) first = first << 8 | parts[2].data<uint8_t>()[i];
    if (first < log_->kept().first && !log_->kept().complete()) streams_->AskForStart(0);
    for (Sent& sent : sent_) {
      if (sent.number < first) continue;
      zmq::message_t payload;
      payload.copy(sent.payload);
      Answer(parts[0], sent.number, payload);
    }
    zmq::message_t nothing;
    Answer(parts[0], kReplayEnd, nothing);
  }

  // A client that does not read loses the answer.
  void Answer(zmq::message_t& client, uint64_t number, zmq::message_t& payload) {
    zmq::message_t to;
    to.copy(client);
    replay_.send(to, zmq::send_flags::sndmore);
    replay_.send(zmq::message_t(), zmq::send_flags::sndmore);
    replay_.send(NumberMessage(number), zmq::send_flags::sndmore);
    replay_.send(payload, zmq::send_flags::none);
  }

  const std::string topic_;
  zmq::context_t context_;
  zmq::socket_t pub_{context_, zmq::socket_type::pub};
  zmq::socket_t replay_{context_, zmq::socket_type::router};
  int wake_ = -1;
  std::atomic<bool> stopping_ = false;
  KvEventStreams* streams_ = nullptr;
  const KvEventLog* log_ = nullptr;
  uint64_t next_ = 0;
  std::deque<Sent> sent_;
  std::thread thread_;
};

bool KvEventPublisher::IsBuilt() { return true; }

KvEventPublisher::KvEventPublisher(const KvPublisherOptions& options)
    : sockets_(std::make_unique<Sockets>(options)) {}
KvEventPublisher::~KvEventPublisher() = default;

void KvEventPublisher::Start(KvEventStreams& streams) { sockets_->Start(streams); }

}  // namespace triptych::server
