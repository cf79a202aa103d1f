// HTTP call for a request whose body is slow to parse and tokenize.
#ifndef TRIPTYCH_SERVER_HTTP_LARGE_REQUEST_CALL_H_
#define TRIPTYCH_SERVER_HTTP_LARGE_REQUEST_CALL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/core/requests/tokenization_queue.h"
#include "server/http/exchange.h"
#include "server/http/mailbox.h"

namespace triptych::server {

// Handles the request through the tokenization queue, so that it does not delay other clients'
// streams, and sends the resulting response.
class LargeRequestCall final : public HttpCall,
                               public std::enable_shared_from_this<LargeRequestCall> {
 public:
  // Called on the queue's thread, with an error if the queue refuses the request.
  using Handle = std::function<HttpReply(const HttpRequest&, const std::optional<Error>& refused)>;

  // The queue must outlive the call. It holds `kept` until the request has been handled and is the
  // I/O thread's again.
  LargeRequestCall(HttpRequest request, std::string client, Handle handle, TokenizationQueue& queue,
                   std::shared_ptr<Mailbox> mailbox, std::shared_ptr<void> kept);

  void Start(Exchange& exchange) override;
  void OnWritten() override;
  void OnQuiet() override;
  void OnGone() override;

 private:
  void OnAnswer(HttpReply answer);

  std::shared_ptr<HttpRequest> request_;  // null once queued
  std::shared_ptr<void> kept_;            // null once queued
  const std::string client_;
  const Handle handle_;
  TokenizationQueue& queue_;
  const std::shared_ptr<Mailbox> mailbox_;
  Exchange* exchange_ = nullptr;
  std::shared_ptr<HttpCall> call_;  // null if the response is immediate
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_LARGE_REQUEST_CALL_H_
