#include "server/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <future>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "engine/base/address.h"
#include "server/core/error.h"
#include "server/http/byte_budget.h"
#include "server/http/connection.h"
#include "server/http/error_response.h"
#include "server/http/mailbox.h"
#include "server/http/routes.h"
#include "server/http/stream.h"

namespace triptych {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// When there is no descriptor left for a connection.
constexpr std::chrono::milliseconds kAcceptPause{100};

// Finds clients that vanished without a word.
void KeepAlive(tcp::socket& socket, const TransportLimits& limits) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const auto set_seconds = [&](int option, std::chrono::milliseconds time) {
    const int seconds = std::max<int>(1, static_cast<int>(time.count() / 1000));
    setsockopt(socket.native_handle(), IPPROTO_TCP, option, &seconds, sizeof(seconds));
  };
  constexpr int kProbes = 3;
  set_seconds(TCP_KEEPIDLE, limits.keepalive);
  set_seconds(TCP_KEEPINTVL, limits.keepalive_timeout / kProbes);
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof(kProbes));
}

// Listens on the first of the host's addresses that can be listened on.
tcp::acceptor Listen(asio::io_context& context, const std::string& listen) {
  const std::optional<Address> address = ParseAddress(listen);
  std::string host = address ? address->host : "";
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  error_code error;
  tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(host, address ? std::to_string(address->port) : "",
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (!error) {
    for (const auto& entry : found) {
      tcp::acceptor acceptor(context);
      acceptor.open(entry.endpoint().protocol(), error);
      if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor.bind(entry.endpoint(), error);
      if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
      if (!error) return acceptor;
    }
  }
  throw std::runtime_error("--http " + listen +
                           ": cannot listen there; is the address right and the port free?");
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const std::string& listen, const TransportOptions& options, const Gate& gate)
      : limits_(options.limits),
        budget_(limits_.max_memory_bytes),
        mailbox_(std::make_shared<Mailbox>(
            [this](Mailbox::Task task) { asio::post(context_, std::move(task)); })),
        routes_(gate, mailbox_, budget_),
        acceptor_(Listen(context_, listen)),
        retry_(context_) {
    if (options.tls) tls_.emplace(*options.tls);
    address_ =
        listen.substr(0, listen.rfind(':') + 1) + std::to_string(acceptor_.local_endpoint().port());
    Accept();
    thread_ = std::thread([this] { Run(); });
  }

  ~Impl() {
    if (thread_.joinable()) Close(std::chrono::milliseconds(0));
  }

  const std::string& address() const { return address_; }

  void Serve() { routes_.Set(Routes::State::kServing); }

  void StartDrain() {
    routes_.Set(Routes::State::kDraining);
    asio::post(context_, [this] { StopAccepting(); });
  }

  void Close(std::chrono::milliseconds timeout) {
    StartDrain();
    std::future<void> all_closed = all_closed_.get_future();
    asio::post(context_, [this] {
      finishing_ = true;
      for (const auto& connection : Copy()) connection->Finish();
      TellIfAllClosed();
    });
    all_closed.wait_for(timeout);
    asio::post(context_, [this] {
      for (const auto& connection : Copy()) connection->Close();
      work_.reset();  // what was under way ends now
    });
    thread_.join();
    mailbox_->Close();
  }

 private:
  using Connections = std::set<std::shared_ptr<Connection>>;

  // Nothing that a connection does ends the others.
  void Run() {
    while (true) {
      try {
        context_.run();
        return;
      } catch (const std::exception& e) {
        spdlog::error("HTTP: {}", e.what());
      }
    }
  }

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (error == asio::error::no_descriptors || error == asio::error::no_memory ||
          error == asio::error::no_buffer_space) {
        retry_.expires_after(kAcceptPause);
        return retry_.async_wait([this](const error_code&) {
          if (acceptor_.is_open()) Accept();
        });
      }
      Accept();
      if (!error) Take(std::move(socket));
    });
  }

  void Take(tcp::socket socket) {
    if (connections_.size() >= static_cast<size_t>(limits_.max_connections)) {
      return TurnAway(std::move(socket));
    }
    KeepAlive(socket, limits_);
    auto connection = std::make_shared<Connection>(
        tls_ ? tls_->Make(std::move(socket)) : PlainStream(std::move(socket)),
        HttpShared{.routes = routes_, .limits = limits_, .budget = budget_},
        [this](const std::shared_ptr<Connection>& closed) {
          connections_.erase(closed);
          TellIfAllClosed();
        });
    connections_.insert(connection);
    connection->Start();
  }

  // Says so, if what it has to say fits into the system's buffer, as it does.
  void TurnAway(tcp::socket socket) {
    if (tls_) return;
    const HttpResponse response =
        Refusal(503, "too_many_connections", "the server has no room for another connection");
    const std::string text =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " + response.content_type +
        "\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: " +
        std::to_string(response.body.size()) + "\r\n\r\n" + response.body;
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  void StopAccepting() {
    error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  }

  // Connections that close leave the set.
  Connections Copy() const { return connections_; }

  void TellIfAllClosed() {
    if (!finishing_ || !connections_.empty() || std::exchange(told_, true)) return;
    all_closed_.set_value();
  }

  const TransportLimits limits_;
  asio::io_context context_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_{
      context_.get_executor()};
  ByteBudget budget_;
  const std::shared_ptr<Mailbox> mailbox_;
  Routes routes_;
  std::optional<TlsStreams> tls_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::string address_;

  // The I/O thread's.
  Connections connections_;
  bool finishing_ = false;
  bool told_ = false;

  std::promise<void> all_closed_;
  std::thread thread_;  // last: it uses all of the above
};

HttpServer::HttpServer(const std::string& listen, const TransportOptions& options, const Gate& gate)
    : impl_(std::make_unique<Impl>(listen, options, gate)) {}

HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const { return impl_->address(); }

void HttpServer::Serve() { impl_->Serve(); }

void HttpServer::StartDrain() { impl_->StartDrain(); }

void HttpServer::Close(std::chrono::milliseconds timeout) { impl_->Close(timeout); }

}  // namespace triptych
