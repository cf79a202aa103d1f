// HTTP request, response and call, independent of the connection.
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
  std::string path = {};                          // not decoded
  std::map<std::string, std::string> query = {};  // decoded
  std::string body = {};
  // The body's share of the byte budget. Must be destroyed on the I/O thread.
  std::unique_ptr<ByteBudget::Share> memory = nullptr;
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The response's side of a connection. Send a response with Respond, or in pieces with Begin, any
// number of Writes, and End. I/O thread only.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void Respond(HttpResponse response) = 0;
  virtual void Begin(const HttpResponse& head) = 0;  // ignores the body
  virtual void Write(std::string bytes) = 0;
  // `whole`: the response is complete. Otherwise it is truncated and the connection closes.
  virtual void End(bool whole) = 0;
  // Runs `function`; an exception closes the connection.
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

// A request that takes time to answer. The connection owns it until the response is sent or the
// client is gone, and calls it on the I/O thread; all others must hold it weakly.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
  // `exchange` is valid as long as the call lives.
  virtual void Start(Exchange& exchange) = 0;
  // The system has accepted all output so far.
  virtual void OnWritten() {}
  // Nothing was written for TransportLimits::max_silence. Called again after each such time.
  virtual void OnQuiet() {}
  // The client is gone; the exchange discards output.
  virtual void OnGone() {}
};

// An immediate response, or a call to start.
using HttpReply = std::variant<HttpResponse, std::shared_ptr<HttpCall>>;

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_EXCHANGE_H_
