// Routing table of HTTP paths: scopes and handlers.
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
#include "server/http/chat_completions.h"
#include "server/http/completion_request.h"
#include "server/http/exchange.h"
#include "server/http/mailbox.h"
#include "server/http/ollama_requests.h"
#include "server/http/unix_time.h"

namespace triptych::server {

// Admit checks a request's head, so that the body of a refused request is not read; Handle answers
// the complete request. I/O thread only, except Set.
class Routes {
 public:
  enum class State { kStarting, kServing, kDraining };

  // All arguments must outlive the routes and their calls.
  Routes(const AuthGate& gate, std::shared_ptr<Mailbox> mailbox, ByteBudget& budget,
         const TextDefaults& text_defaults);
  // Waits until the queue has handled all large requests.
  ~Routes();
  Routes(const Routes&) = delete;
  Routes& operator=(const Routes&) = delete;

  void Set(State state) { state_ = state; }
  State state() const { return state_; }

  struct Route {
    std::string_view method;     // GET also accepts HEAD
    std::string_view path;       // a prefix if it ends with '/', except "/" itself
    std::optional<Scope> scope;  // required of the caller; absent: open to all
    bool computes;               // needs memory (AuthGate::EnterToCompute)
    HttpReply (Routes::*handle)(const AuthorizedCall* entry, const HttpRequest& request) const;
    bool renders = false;   // a template, so that it is handled in the tokenization queue
    bool compiles = false;  // the form of the output, if the body asks for one; likewise

    std::string Methods() const { return method == "GET" ? "GET, HEAD" : std::string(method); }
    bool while_draining() const { return scope == Scope::kStatistics; }
    bool Is(std::string_view asked) const {
      const bool is_prefix = path.size() > 1 && path.ends_with('/');
      return is_prefix ? asked.starts_with(path) && asked != path : asked == path;
    }
  };
  // All routes.
  static std::span<const Route> Table();

  // The route of an admitted request and its authorized call.
  struct Admitted {
    const Route* route;
    std::optional<AuthorizedCall> entry;  // absent if the route is open to all
  };
  struct Head {
    std::string_view method;
    std::string_view path;  // not decoded
    Credentials credentials;
  };
  std::variant<HttpResponse, Admitted> Admit(const Head& head) const;
  // The response to OPTIONS, which needs no scope. Its status is that of /health.
  HttpResponse Options(std::string_view path) const;

  // Answers a complete request. Large bodies are handled on another thread (TokenizationQueue).
  HttpReply Handle(Admitted admitted, HttpRequest request) const;

 private:
  static const Route kRoutes[];

  // Null if there is no such path.
  static const Route* Find(std::string_view path);
  static HttpResponse UnknownPath(std::string_view path);

  // Calls the route's handler. Thread-safe, as are the functions below.
  HttpReply HandleNow(const Admitted& admitted, const HttpRequest& request) const;

  HttpReply Page(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Health(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply ListModels(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply GetModel(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Chat(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Complete(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Respond(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Message(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply CountTokens(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Tokenize(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Detokenize(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply Metrics(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply KvCache(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply OllamaChat(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply OllamaGenerate(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply OllamaTags(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply OllamaRunning(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply OllamaShow(const AuthorizedCall* entry, const HttpRequest& request) const;
  HttpReply OllamaVersion(const AuthorizedCall* entry, const HttpRequest& request) const;

  // Starts a generation whose response is an Answer.
  template <typename OneAnswer>
  HttpReply Generate(const AuthorizedCall& entry, CompletionRequest request) const;
  // The same of a chat, unless it is an error.
  template <typename OneAnswer>
  HttpReply GenerateChat(const AuthorizedCall& entry, Result<ChatRequest> chat) const;
  template <typename OneAnswer>
  HttpReply GenerateOllama(const AuthorizedCall& entry, Result<OllamaRequest> request) const;

  const AuthGate& gate_;
  const std::shared_ptr<Mailbox> mailbox_;
  ByteBudget& budget_;
  const TextDefaults text_defaults_;
  const int64_t created_ = UnixTime();  // reported as the models' creation time
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
