// One client's connection: requests in, answers out, one after the other.
#ifndef TRIPTYCH_SERVER_HTTP_CONNECTION_H_
#define TRIPTYCH_SERVER_HTTP_CONNECTION_H_

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/core/transport_options.h"
#include "server/http/byte_budget.h"
#include "server/http/exchange.h"
#include "server/http/routes.h"
#include "server/http/stream.h"

namespace triptych {

// A request's body, as long as the budget of all of them has room for it.
struct BudgetedBody {
  struct value_type {
    std::string text;
    ByteBudget::Share* share = nullptr;
  };

  class reader {
   public:
    template <bool request, class Fields>
    reader(boost::beast::http::header<request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      const size_t bytes = boost::beast::buffer_bytes(buffers);
      if (!body_.share->Take(static_cast<int64_t>(bytes))) {
        error = boost::system::errc::make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      for (const boost::asio::const_buffer part : boost::beast::buffers_range_ref(buffers)) {
        body_.text.append(static_cast<const char*>(part.data()), part.size());
      }
      error = {};
      return bytes;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

// What all connections of a server share. Outlives them.
struct HttpShared {
  const Routes& routes;
  const TransportLimits& limits;
  ByteBudget& budget;
};

// Reads all the time, so that a client that closes is noticed at once; what it sends while it is
// answered waits, up to a bound. On the I/O thread.
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  // What is sent ahead of the answer that it waits for; one that sends more is cut off.
  static constexpr size_t kMaxPipelinedBytes = 64 << 10;

  // `on_closed` is called once, when it is closed.
  Connection(std::unique_ptr<ByteStream> stream, const HttpShared& shared,
             std::function<void(const std::shared_ptr<Connection>&)> on_closed);

  void Start();
  // Closes it when the answer that is under way has been sent; at once if there is none.
  void Finish();
  void Close();

  // Of the answer under way.
  void Respond(const HttpResponse& response) override;
  void Begin(const HttpResponse& head) override;
  void Write(std::string bytes) override;
  void End(bool whole) override;

 private:
  using Parser = boost::beast::http::request_parser<BudgetedBody>;
  enum class State {
    kHandshake,
    kReading,    // a request, or waiting for one
    kAnswering,  // one
    kLingering,  // the last answer is sent; what the client still sends is not read
    kClosed,
  };

  // Runs what may throw; then the connection is closed.
  template <typename Function>
  void Guard(Function function);
  // Starts to read, with no read under way.
  void Read();
  void OnRead(const boost::system::error_code& error, size_t bytes);
  // Takes from received_ what belongs to the request.
  void Parse();
  void Expect();  // the next request
  // Whether the request whose head is there may go on; if not, it is answered.
  bool Admit();
  // Why it may not, if it may not.
  std::optional<HttpResponse> AdmitHead();
  void Handle();
  // What was read is no request.
  void Refuse(const boost::system::error_code& error);

  // Answers a request that has not been read to its end.
  void RespondAndClose(const HttpResponse& response);
  // The answer's head, with a line that says where its body ends.
  void AddHead(const HttpResponse& response, const std::string& framing);
  void Flush();
  void OnWrite(const boost::system::error_code& error, size_t bytes);
  void EndExchange();
  void Linger();
  void OnTimeout();

  // Closes the connection unless something else is armed before `time` is over.
  void Arm(std::chrono::milliseconds time);
  void Disarm();

  const std::unique_ptr<ByteStream> stream_;
  const HttpShared shared_;
  const std::function<void(const std::shared_ptr<Connection>&)> on_closed_;
  const std::chrono::steady_clock::time_point born_ = std::chrono::steady_clock::now();
  std::string address_;  // the client's
  boost::asio::steady_timer timer_;
  uint64_t armed_ = 0;

  State state_ = State::kHandshake;
  bool finishing_ = false;
  std::vector<char> incoming_;  // belongs to the read under way
  std::string received_;        // and not parsed yet
  size_t lingered_ = 0;         // bytes
  ByteBudget::Share body_bytes_;
  bool begun_ = false;  // the request: some of it is there
  std::optional<Parser> parser_;
  std::optional<Routes::Admitted> admitted_;  // once its head is there
  HttpRequest request_;
  bool is_http_1_0_ = false;
  bool is_head_ = false;  // nothing but the head is answered

  std::shared_ptr<HttpCall> call_;  // that answers
  bool close_after_ = false;        // the answer
  bool chunked_ = false;            // the answer
  bool ended_ = false;              // the answer: nothing more is added to it
  bool writing_ = false;
  std::string out_;      // what comes after
  std::string sending_;  // of which
  size_t sent_ = 0;      // bytes have been
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_HTTP_CONNECTION_H_
