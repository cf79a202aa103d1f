// A request whose body takes long to read.
#ifndef TRIPTYCH_SERVER_HTTP_LARGE_REQUEST_CALL_H_
#define TRIPTYCH_SERVER_HTTP_LARGE_REQUEST_CALL_H_

#include <functional>
#include <memory>
#include <string>

#include "server/core/requests/tokenization_queue.h"
#include "server/http/exchange.h"
#include "server/http/mailbox.h"

namespace triptych::server {

// Has the request handled in its turn, so that it holds up nobody's streams, and then answers as it
// would have been answered at once.
class LargeRequestCall final : public HttpCall,
                               public std::enable_shared_from_this<LargeRequestCall> {
 public:
  // On another thread.
  using Handle = std::function<HttpReply(const HttpRequest&)>;

  // The texts outlive the call.
  LargeRequestCall(HttpRequest request, std::string client, Handle handle, TokenizationQueue& texts,
                   std::shared_ptr<Mailbox> mailbox);

  void Start(Exchange& exchange) override;
  void OnWritten() override;
  void OnGone() override;

 private:
  void OnAnswer(HttpReply answer);

  std::shared_ptr<HttpRequest> request_;  // until it waits for its turn
  const std::string client_;
  const Handle handle_;
  TokenizationQueue& texts_;
  const std::shared_ptr<Mailbox> mailbox_;
  Exchange* exchange_ = nullptr;
  std::shared_ptr<HttpCall> call_;  // that answers, if it is not answered at once
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_LARGE_REQUEST_CALL_H_
