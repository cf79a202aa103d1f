#include "server/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <future>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/address.h"
#include "server/core/access/byte_budget.h"
#include "server/core/log.h"
#include "server/http/connection.h"
#include "server/http/cross_origin.h"
#include "server/http/host_names.h"
#include "server/http/mailbox.h"
#include "server/http/routes.h"
#include "server/http/stream.h"

namespace triptych::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Pause after a failed accept: its cause, such as a shortage of descriptors, may last.
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr int kPortTries = 10;

// Disables Nagle's algorithm, and enables keepalive to detect clients that vanished.
void SetUp(tcp::socket& socket, const TransportLimits& limits) {
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

// Listens on those of `addresses` that are this machine's, all at one port. Empty if there are
// none, or, with `error` set, if the port is in use or forbidden at one of them.
std::vector<tcp::acceptor> Listen(asio::io_context& context,
                                  const tcp::resolver::results_type& addresses, error_code& error) {
  std::vector<tcp::acceptor> acceptors;
  for (const auto& entry : addresses) {
    tcp::endpoint endpoint = entry.endpoint();
    if (!acceptors.empty()) endpoint.port(acceptors.front().local_endpoint().port());
    tcp::acceptor acceptor(context);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (!error) acceptors.push_back(std::move(acceptor));
    if (error == asio::error::address_in_use || error == asio::error::access_denied) return {};
    error = {};  // not an address of this machine
  }
  return acceptors;
}

std::vector<tcp::acceptor> Listen(asio::io_context& context, const std::string& listen) {
  const std::optional<Address> address = ParseAddress(listen);
  std::string host = address ? address->host : "";
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  error_code error;
  tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(host, address ? std::to_string(address->port) : "",
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  // The port that the system chooses at one address may be in use at another.
  for (int tries = address && address->port == 0 ? kPortTries : 1; tries > 0; --tries) {
    std::vector<tcp::acceptor> acceptors = Listen(context, found, error);
    if (!acceptors.empty()) return acceptors;
  }
  throw std::runtime_error("--http " + listen +
                           ": cannot listen there; is the address right and the port free?");
}

// The peer's address, as in Credentials. Unspecified (0.0.0.0) if the connection is already closed.
std::string AddressOf(const tcp::socket& socket) {
  error_code ignored;
  return socket.remote_endpoint(ignored).address().to_string();
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const std::string& listen, const TransportOptions& options, const AuthGate& gate)
      : limits_(options.limits),
        budget_(limits_.max_memory_bytes),
        mailbox_(std::make_shared<Mailbox>(
            [this](Mailbox::Task task) { asio::post(context_, std::move(task)); })),
        hosts_(options),
        origins_(options.http_origins),
        routes_(gate, mailbox_, budget_, {.parse_special = options.http_parse_special}) {
    if (gate.certificates() != nullptr) tls_.emplace(gate.certificates());
    for (tcp::acceptor& acceptor : Listen(context_, listen)) {
      listeners_.push_back(Listener{std::move(acceptor), asio::steady_timer(context_)});
    }
    address_ = listen.substr(0, listen.rfind(':') + 1) +
               std::to_string(listeners_.front().acceptor.local_endpoint().port());
    for (Listener& listener : listeners_) Accept(listener);
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
      work_.reset();  // Run returns once pending handlers are done
    });
    thread_.join();
    mailbox_->Close();
  }

 private:
  using Connections = std::set<std::shared_ptr<Connection>>;
  struct Listener {
    tcp::acceptor acceptor;
    asio::steady_timer retry;
  };

  // Runs the I/O thread. An exception ends neither the thread nor other connections.
  void Run() {
    while (true) {
      try {
        context_.run();
        return;
      } catch (const std::exception& e) {
        LogError("HTTP: {}", e.what());
      }
    }
  }

  void Accept(Listener& listener) {
    try {
      StartAccept(listener);
    } catch (const std::exception& e) {  // such as std::bad_alloc
      LogError("HTTP: accepting connections pauses: {}", e.what());
      AcceptLater(listener);
    }
  }

  void StartAccept(Listener& listener) {
    listener.acceptor.async_accept([this, &listener](const error_code& error, tcp::socket socket) {
      if (!listener.acceptor.is_open()) return;
      if (error && error != asio::error::connection_aborted) return AcceptLater(listener);
      Accept(listener);
      if (!error) Take(std::move(socket));
    });
  }

  void AcceptLater(Listener& listener) {
    listener.retry.expires_after(kAcceptPause);
    listener.retry.async_wait([this, &listener](const error_code&) {
      if (listener.acceptor.is_open()) Accept(listener);
    });
  }

  // Starts a connection, or closes it if there are too many.
  void Take(tcp::socket socket) {
    std::string address = AddressOf(socket);
    const auto of_address = of_addresses_.find(address);
    const int count = of_address == of_addresses_.end() ? 0 : of_address->second;
    if (std::ssize(connections_) >= limits_.max_connections ||
        count >= limits_.max_address_connections) {
      if (!std::exchange(full_, true)) {
        LogWarning("HTTP: too many connections, closing new ones: {} are open, {} of them from {}",
                   connections_.size(), count, address);
      }
      return;
    }
    SetUp(socket, limits_);
    auto connection = std::make_shared<Connection>(
        tls_ ? tls_->Make(std::move(socket)) : PlainStream(std::move(socket)), std::move(address),
        HttpShared{.routes = routes_,
                   .hosts = hosts_,
                   .origins = origins_,
                   .limits = limits_,
                   .budget = budget_},
        [this](const std::shared_ptr<Connection>& closed) { Forget(closed); });
    int& of_its_address = of_addresses_[connection->address()];
    connections_.insert(connection);
    ++of_its_address;  // last: the lines above may throw
    connection->Guard([&] { connection->Start(); });
  }

  void Forget(const std::shared_ptr<Connection>& closed) {
    connections_.erase(closed);
    const auto of_address = of_addresses_.find(closed->address());
    if (--of_address->second == 0) of_addresses_.erase(of_address);
    if (connections_.empty()) full_ = false;
    TellIfAllClosed();
  }

  void StopAccepting() {
    error_code ignored;
    for (Listener& listener : listeners_) {
      listener.acceptor.close(ignored);
      listener.retry.cancel();
    }
  }

  // A copy to iterate over, since connections that close leave the set.
  Connections Copy() const { return connections_; }

  void TellIfAllClosed() {
    if (!finishing_ || !connections_.empty() || std::exchange(told_, true)) return;
    all_closed_.set_value();
  }

  const TransportLimits limits_;
  ByteBudget budget_;  // before context_, whose pending handlers use it
  asio::io_context context_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_{
      context_.get_executor()};
  const std::shared_ptr<Mailbox> mailbox_;
  const HostNames hosts_;
  const CrossOrigin origins_;
  Routes routes_;
  std::optional<TlsStreams> tls_;
  std::list<Listener> listeners_;
  std::string address_;

  // I/O thread only.
  Connections connections_;
  std::map<std::string, int> of_addresses_;  // connections by address
  bool full_ = false;                        // warned since connections_ was last empty
  bool finishing_ = false;
  bool told_ = false;

  std::promise<void> all_closed_;
  std::thread thread_;  // last: uses the members above
};

HttpServer::HttpServer(const std::string& listen, const TransportOptions& options,
                       const AuthGate& gate)
    : impl_(std::make_unique<Impl>(listen, options, gate)) {}

HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const { return impl_->address(); }

void HttpServer::Serve() { impl_->Serve(); }

void HttpServer::StartDrain() { impl_->StartDrain(); }

void HttpServer::Close(std::chrono::milliseconds timeout) { impl_->Close(timeout); }

}  // namespace triptych::server
