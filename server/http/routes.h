// The paths of the HTTP server, and the scopes that they require.
#ifndef TRIPTYCH_SERVER_HTTP_ROUTES_H_
#define TRIPTYCH_SERVER_HTTP_ROUTES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "server/core/access/access.h"
#include "server/core/access/auth_gate.h"
#include "server/core/access/byte_budget.h"
#include "server/http/completion_request.h"
#include "server/http/exchange.h"
#include "server/http/mailbox.h"
#include "server/http/unix_time.h"

namespace triptych::server {

// Sees a request twice: when its head has arrived, so that the body of a refused request is not
// read, and when it is whole. On the I/O thread, except Set.
class Routes {
 public:
  enum class State { kStarting, kServing, kDraining };

  // All must outlive the routes and the calls that they make.
  Routes(const AuthGate& gate, std::shared_ptr<Mailbox> mailbox, ByteBudget& budget);
  // Waits until the queue has handled all large requests.
  ~Routes();
  Routes(const Routes&) = delete;
  Routes& operator=(const Routes&) = delete;

  void Set(State state) { state_ = state; }
  State state() const { return state_; }

  struct Route {
    std::string_view method;     // HEAD too, where it is GET
    std::string_view path;       // one that ends with /, but / itself, stands for all that begin so
    std::optional<Scope> scope;  // that who asks must have; everybody may if absent
    bool computes;               // and there must be memory for it
    HttpReply (Routes::*handle)(const AuthorizedCall* entry, const HttpRequest& request) const;

    bool while_draining() const { return scope == Scope::kStatistics; }
    bool Is(std::string_view asked) const {
      const bool is_prefix = path.size() > 1 && path.ends_with('/');
      return is_prefix ? asked.starts_with(path) && asked != path : asked == path;
    }
  };
  // All there are.
  static std::span<const Route> Table();

  // Who may ask for what, found by the head of a request.
  struct Admitted {
    const Route* route;
    std::optional<AuthorizedCall> entry;  // of those that are not open to everybody
  };
  struct Head {
    std::string_view method;
    std::string_view path;  // as it was sent
    Credentials credentials;
  };
  std::variant<HttpResponse, Admitted> Admit(const Head& head) const;

  // A large body takes long to read: another thread does that (TokenizationQueue).
  HttpReply Handle(Admitted admitted, HttpRequest request) const;

 private:
  static const Route kRoutes[];

  // Thread-safe, as are the functions below.
  HttpReply HandleNow(const Admitted& admitted, const HttpRequest& request) const;

  HttpReply Page(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Health(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply ListModels(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply GetModel(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Chat(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Complete(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Tokenize(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Detokenize(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Metrics(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply KvCache(const AuthorizedCall* entry, const HttpRequest& request) const;

  // Generates what a CompletionAnswer of that type answers.
  template <typename Answer>
  HttpReply Generate(const AuthorizedCall& entry, CompletionRequest request) const;

  const AuthGate& gate_;
  const std::shared_ptr<Mailbox> mailbox_;
  ByteBudget& budget_;
  const int64_t created_ = UnixTime();  // when the models were put up
  std::atomic<State> state_ = State::kStarting;
  // Held by the queue for each large request until it has been handled.
  struct LargeRequests {
    ~LargeRequests() { handled.set_value(); }
    std::promise<void> handled;
  };
  std::shared_ptr<LargeRequests> large_requests_ = std::make_shared<LargeRequests>();
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_ROUTES_H_
