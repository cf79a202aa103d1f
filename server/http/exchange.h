// A request and its answer, as those see them who know nothing of connections.
#ifndef TRIPTYCH_SERVER_HTTP_EXCHANGE_H_
#define TRIPTYCH_SERVER_HTTP_EXCHANGE_H_

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/core/access/byte_budget.h"

namespace triptych::server {

struct HttpRequest {
  std::string path = {};                          // as it was sent
  std::map<std::string, std::string> query = {};  // decoded
  std::string body = {};
  // What the body holds; dies on the I/O thread.
  std::unique_ptr<ByteBudget::Share> memory = nullptr;
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Where an answer goes: all of it by Respond, or piece by piece by Begin, any number of Writes and
// End. On the I/O thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void Respond(HttpResponse response) = 0;
  virtual void Begin(const HttpResponse& head) = 0;  // without its body
  virtual void Write(std::string bytes) = 0;
  // The answer is whole, or it breaks off and the connection is closed.
  virtual void End(bool whole) = 0;
  // Runs what is done by itself. Whatever that throws closes the connection.
  template <typename Function>
  void Guard(const Function& function) {
    try {
      function();
    } catch (const std::exception& e) {  // such as std::bad_alloc
      Fail(e);
    }
  }

 private:
  virtual void Fail(const std::exception& error) = 0;
};

// What takes time to answer. Its connection keeps it until the answer is sent or the client gone,
// and calls it on the I/O thread; whoever else holds one holds it weakly.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
  // The exchange lives as long as the call.
  virtual void Start(Exchange& exchange) = 0;
  // Everything that was begun or written has been taken by the network.
  virtual void OnWritten() {}
  // The client is gone; the exchange takes nothing more.
  virtual void OnGone() {}
};

// What is answered at once, or a call that has not been started.
using HttpReply = std::variant<HttpResponse, std::shared_ptr<HttpCall>>;

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_EXCHANGE_H_
