// HTTP/1.1 connection of one client, one request at a time.
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
#include <string_view>

#include "server/core/access/byte_budget.h"
#include "server/core/transport_options.h"
#include "server/http/cross_origin.h"
#include "server/http/exchange.h"
#include "server/http/host_names.h"
#include "server/http/request_reader.h"
#include "server/http/routes.h"
#include "server/http/stream.h"

namespace triptych::server {

// State that all connections of a server share. Must outlive them.
struct HttpShared {
  const Routes& routes;
  const HostNames& hosts;
  const CrossOrigin& origins;
  const TransportLimits& limits;
  ByteBudget& budget;
};

// Always has a read in progress, so that a closed connection is noticed at once. Requests that
// arrive during a response are buffered up to kMaxPipelinedBytes. I/O thread only.
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  // Bytes that a client may send ahead of a response; more closes the connection.
  static constexpr size_t kMaxPipelinedBytes = 16 << 10;
  // Bytes of a response that the client must read per stall timeout.
  static constexpr size_t kPaceBytes = 1 << 20;

  // `address`: the client's, as in Credentials. `on_closed` is called once, when the connection
  // closes.
  Connection(std::unique_ptr<ByteStream> stream, std::string address, const HttpShared& shared,
             std::function<void(const std::shared_ptr<Connection>&)> on_closed);

  void Start();
  // Closes the connection after the response in progress, or at once if there is none.
  void Finish();
  void Close();

  const std::string& address() const { return address_; }

  // Exchange: the response in progress.
  void Respond(HttpResponse response) override;
  void Begin(const HttpResponse& head) override;
  void Write(std::string bytes) override;
  void End(bool whole) override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State {
    kHandshake,
    kReading,    // reads a request or waits for one
    kAnswering,  // responds to a request
    kLingering,  // the last response is sent; discards input
    kClosed,
  };

  void Fail(const std::exception& error) override;

  // Starts a read. REQUIRES: no read is in progress.
  void Read();
  void OnRead(const boost::system::error_code& error, size_t bytes);
  // Parses and handles what has been received.
  void Advance();
  void Expect();  // waits for the next request
  // True if the request may continue after its head; otherwise responds to it.
  bool Admit();
  // The response that refuses the request by its head; absent if it may continue.
  std::optional<HttpResponse> CheckHead();
  // The response to OPTIONS, also as a CORS preflight.
  HttpResponse AnswerOptions(std::string_view path);
  // Client name for the byte budget: the address until the request is authorized.
  const std::string& client() const;
  void StartAnswer();
  void Handle();

  // Responds to a request whose body has not been read, then closes.
  void RespondAndClose(HttpResponse response);
  // Appends the response's head. `framing`: header lines that delimit the body.
  void AddHead(const HttpResponse& response, const std::string& framing);
  void Flush();
  void OnWrite(const boost::system::error_code& error, size_t bytes);
  void EndExchange();
  void Linger();
  void OnTimeout();
  // Arms the timer for OnQuiet while a call runs.
  void AwaitOutput();

  // Sets the connection's only timer to OnTimeout at `end`; replaces the earlier one.
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
  std::array<char, 4 << 10> incoming_;  // of the read in progress
  RequestReader reader_;
  size_t lingered_ = 0;  // bytes discarded while lingering
  // Deadline of a request that has begun; the first request's starts with the connection.
  std::optional<Clock::time_point> request_end_;
  std::optional<Routes::Admitted> admitted_;  // after the head
  HttpRequest request_;
  bool is_http_1_0_ = false;
  bool is_head_ = false;                     // HEAD: the response has no body
  bool is_ollama_ = false;                   // errors have the shape of Ollama's
  std::string origin_headers_;               // CORS header lines of the response
  std::optional<ByteBudget::Share> memory_;  // of a response that is sent whole

  std::shared_ptr<HttpCall> call_;  // null if the response is immediate
  bool close_after_ = false;        // close after the response
  bool chunked_ = false;            // chunked response
  bool ended_ = false;              // the response is complete in out_ and sending_
  bool writing_ = false;
  std::string out_;      // pending output
  std::string sending_;  // the current write
  size_t sent_ = 0;      // bytes of sending_ written
  size_t pace_end_ = 0;  // bytes of sending_ to be written by the stall deadline
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_CONNECTION_H_
