// What is at which path, and who may ask for it.
#ifndef TRIPTYCH_SERVER_HTTP_ROUTES_H_
#define TRIPTYCH_SERVER_HTTP_ROUTES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "server/core/access.h"
#include "server/core/byte_budget.h"
#include "server/core/gate.h"
#include "server/core/long_texts.h"
#include "server/core/transport_options.h"
#include "server/http/completion_request.h"
#include "server/http/exchange.h"
#include "server/http/mailbox.h"
#include "server/http/unix_time.h"

namespace triptych {

// A request is seen twice: when its head is there, so that no body is read of those who are
// refused, and when it is whole. On the I/O thread, but for Set.
class Routes {
 public:
  enum class State { kStarting, kServing, kDraining };

  // All outlive the routes and the calls that they make.
  Routes(const Gate& gate, const TransportLimits& limits, std::shared_ptr<Mailbox> mailbox,
         ByteBudget& budget);

  // From kDraining on, what still waits for its turn is refused.
  void Set(State state) {
    state_ = state;
    if (state == State::kDraining) texts_.StartDrain();
  }
  State state() const { return state_; }

  struct Route {
    std::string_view method;     // HEAD too, where it is GET
    std::string_view path;       // one that ends with /, but / itself, stands for all that begin so
    std::optional<Scope> scope;  // that who asks must have; everybody may if absent
    bool computes;               // and there must be memory for it
    HttpReply (Routes::*handle)(const Entry* entry, const HttpRequest& request) const;

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
    std::optional<Entry> entry;  // of those that are not open to everybody
  };
  struct Head {
    std::string_view method;
    std::string_view path;  // as it was sent
    Presented presented;
  };
  std::variant<HttpResponse, Admitted> Admit(const Head& head) const;

  // A large body takes long to read: that is done on another thread (LongTexts).
  HttpReply Handle(Admitted admitted, HttpRequest request) const;

 private:
  static const Route kRoutes[];

  // Thread-safe, as are the functions below.
  HttpReply HandleNow(const Admitted& admitted, const HttpRequest& request) const;

  HttpReply Page(const Entry* entry, const HttpRequest& request) const;
  HttpReply Health(const Entry* entry, const HttpRequest& request) const;
  HttpReply ListModels(const Entry* entry, const HttpRequest& request) const;
  HttpReply GetModel(const Entry* entry, const HttpRequest& request) const;
  HttpReply Chat(const Entry* entry, const HttpRequest& request) const;
  HttpReply Complete(const Entry* entry, const HttpRequest& request) const;
  HttpReply Tokenize(const Entry* entry, const HttpRequest& request) const;
  HttpReply Detokenize(const Entry* entry, const HttpRequest& request) const;
  HttpReply Metrics(const Entry* entry, const HttpRequest& request) const;
  HttpReply KvCache(const Entry* entry, const HttpRequest& request) const;

  // Generates what a CompletionAnswer of that type answers.
  template <typename Completion>
  HttpReply Generate(const Entry& entry, CompletionRequest request) const;

  const Gate& gate_;
  const std::shared_ptr<Mailbox> mailbox_;
  ByteBudget& budget_;
  const int64_t created_ = UnixTime();  // when the models were put up
  std::atomic<State> state_ = State::kStarting;
  mutable LongTexts texts_;  // last: its thread uses all of the above
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_HTTP_ROUTES_H_
