// A completion on its way from its engine to a client.
#ifndef TRIPTYCH_SERVER_HTTP_COMPLETION_CALL_H_
#define TRIPTYCH_SERVER_HTTP_COMPLETION_CALL_H_

#include <memory>
#include <optional>
#include <string>

#include "server/core/access/byte_budget.h"
#include "server/core/requests/call.h"
#include "server/http/completion_answer.h"
#include "server/http/completion_request.h"
#include "server/http/exchange.h"
#include "server/http/mailbox.h"

namespace triptych::server {

// Answers with the text of a call: at its end, or by server-sent events as it is generated.
class CompletionCall final : public HttpCall, public std::enable_shared_from_this<CompletionCall> {
 public:
  CompletionCall(std::shared_ptr<Call> call, CompletionRequest request,
                 std::unique_ptr<CompletionAnswer> answer, const std::string& client,
                 std::shared_ptr<Mailbox> mailbox, ByteBudget& budget);

  void Start(Exchange& exchange) override;
  void OnWritten() override;
  void OnGone() override;

 private:
  // Tells the call on the I/O thread, which may be gone, and once for all that came meanwhile.
  class Listener;

  // Sends what is due.
  void Advance();
  void Send(const StreamChunk& chunk);
  // False, and the client is told, if the answer is larger than may be kept.
  bool Keep(const StreamChunk& chunk);
  void End(const CallEnd& end);
  void Respond(HttpResponse response);

  const std::shared_ptr<Call> call_;
  const CompletionRequest request_;
  const std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<CompletionAnswer> answer_;  // until it is responded
  ByteBudget::Share kept_;                    // of an answer that is sent at its end
  Exchange* exchange_ = nullptr;
  bool begun_ = false;      // a stream
  bool in_flight_ = false;  // a chunk
  bool over_ = false;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETION_CALL_H_
