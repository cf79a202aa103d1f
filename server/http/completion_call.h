// HTTP call that sends a completion from its engine to the client.
#ifndef TRIPTYCH_SERVER_HTTP_COMPLETION_CALL_H_
#define TRIPTYCH_SERVER_HTTP_COMPLETION_CALL_H_

#include <memory>
#include <optional>
#include <string>

#include "server/core/access/byte_budget.h"
#include "server/core/requests/call.h"
#include "server/http/answer.h"
#include "server/http/completion_request.h"
#include "server/http/exchange.h"
#include "server/http/mailbox.h"

namespace triptych::server {

// Sends the output of a call: whole at its end, or as server-sent events while it runs.
class CompletionCall final : public HttpCall, public std::enable_shared_from_this<CompletionCall> {
 public:
  CompletionCall(std::shared_ptr<Call> call, CompletionRequest request,
                 std::unique_ptr<Answer> answer, const std::string& client,
                 std::shared_ptr<Mailbox> mailbox, ByteBudget& budget);

  void Start(Exchange& exchange) override;
  void OnWritten() override;
  void OnGone() override;
  void OnQuiet() override;

 private:
  // Notifies the call on the I/O thread, if it still exists. Coalesces notifications.
  class Listener;

  // Handles the generation's pending events.
  void Advance();
  // Begins the stream, unless it has begun.
  void Begin();
  void Send(const StreamChunk& chunk);
  // Accounts for the memory that the answer keeps of the chunk. An error if it gets too large.
  std::optional<Error> Keep(const StreamChunk& chunk);
  void End(const CallEnd& end);
  void Respond(HttpResponse response);

  const std::shared_ptr<Call> call_;
  const CompletionRequest request_;
  const std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<Answer> answer_;  // null after the response
  ByteBudget::Share kept_;          // memory of the answer
  Exchange* exchange_ = nullptr;
  bool begun_ = false;      // the stream has begun
  bool in_flight_ = false;  // a chunk is being written
  bool over_ = false;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETION_CALL_H_
