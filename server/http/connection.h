// One client's connection: requests in, answers out, one after the other.
#ifndef TRIPTYCH_SERVER_HTTP_CONNECTION_H_
#define TRIPTYCH_SERVER_HTTP_CONNECTION_H_

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/core/access/byte_budget.h"
#include "server/core/transport_options.h"
#include "server/http/exchange.h"
#include "server/http/host_names.h"
#include "server/http/request_reader.h"
#include "server/http/routes.h"
#include "server/http/stream.h"

namespace triptych::server {

// What all connections of a server share. Outlives them.
struct HttpShared {
  const Routes& routes;
  const HostNames& hosts;
  const TransportLimits& limits;
  ByteBudget& budget;
};

// Reads all the time, so that a client that closes is noticed at once; what it sends while it is
// answered waits, up to a bound. On the I/O thread.
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  // What is sent ahead of the answer that it waits for; one that sends more is cut off.
  static constexpr size_t kMaxPipelinedBytes = 16 << 10;
  // Of an answer its client must take so much in the time that it may stall.
  static constexpr size_t kPaceBytes = 1 << 20;

  // `address` is the client's, as Credentials has it. `on_closed` is called once, when it is
  // closed.
  Connection(std::unique_ptr<ByteStream> stream, std::string address, const HttpShared& shared,
             std::function<void(const std::shared_ptr<Connection>&)> on_closed);

  void Start();
  // Closes it when the answer that is under way has been sent; at once if there is none.
  void Finish();
  void Close();

  const std::string& address() const { return address_; }

  // Of the answer under way.
  void Respond(HttpResponse response) override;
  void Begin(const HttpResponse& head) override;
  void Write(std::string bytes) override;
  void End(bool whole) override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State {
    kHandshake,
    kReading,    // a request, or waiting for one
    kAnswering,  // one
    kLingering,  // the last answer is sent; what the client still sends is not read
    kClosed,
  };

  void Fail(const std::exception& error) override;

  // Starts to read, with no read under way.
  void Read();
  void OnRead(const boost::system::error_code& error, size_t bytes);
  // Goes on with the request as far as it is there.
  void Advance();
  void Expect();  // the next request
  // Whether the request whose head is there may go on; if not, it is answered.
  bool Admit();
  // Why it may not, if it may not.
  std::optional<HttpResponse> CheckHead();
  // Who asks: the address until more is known.
  const std::string& client() const;
  void StartAnswer();
  void Handle();

  // Answers a request that has not been read to its end.
  void RespondAndClose(HttpResponse response);
  // The answer's head, with a line that says where its body ends.
  void AddHead(const HttpResponse& response, const std::string& framing);
  void Flush();
  void OnWrite(const boost::system::error_code& error, size_t bytes);
  void EndExchange();
  void Linger();
  void OnTimeout();

  // Closes the connection unless something else is armed before.
  void Arm(Clock::time_point end);
  void Disarm();

  const std::unique_ptr<ByteStream> stream_;
  const std::string address_;
  const HttpShared shared_;
  const std::function<void(const std::shared_ptr<Connection>&)> on_closed_;
  const Clock::time_point born_ = Clock::now();
  boost::asio::steady_timer timer_;
  uint64_t armed_ = 0;

  State state_ = State::kHandshake;
  bool finishing_ = false;
  std::array<char, 4 << 10> incoming_;  // belongs to the read under way
  RequestReader reader_;
  size_t lingered_ = 0;  // bytes
  // By when the request must be there, if some of it is; the first one from the beginning.
  std::optional<Clock::time_point> request_end_;
  std::optional<Routes::Admitted> admitted_;  // once its head is there
  HttpRequest request_;
  bool is_http_1_0_ = false;
  bool is_head_ = false;                     // nothing but the head is answered
  std::optional<ByteBudget::Share> memory_;  // of an answer that is sent at once

  std::shared_ptr<HttpCall> call_;  // that answers
  bool close_after_ = false;        // the answer
  bool chunked_ = false;            // the answer
  bool ended_ = false;              // the answer: nothing more is added to it
  bool writing_ = false;
  std::string out_;      // what comes after
  std::string sending_;  // of which
  size_t sent_ = 0;      // bytes have been,
  size_t pace_end_ = 0;  // and so many are to be before the client has stalled
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_CONNECTION_H_
