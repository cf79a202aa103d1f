#include "server/http/large_request_call.h"

#include <utility>
#include <variant>

namespace triptych {

LargeRequestCall::LargeRequestCall(HttpRequest request, Handle handle, Worker& worker,
                                   std::shared_ptr<Mailbox> mailbox)
    : request_(std::make_shared<HttpRequest>(std::move(request))),
      handle_(std::move(handle)),
      worker_(worker),
      mailbox_(std::move(mailbox)) {}

void LargeRequestCall::Start(Exchange& exchange) {
  exchange_ = &exchange;
  worker_.Post([call = weak_from_this(), request = std::move(request_), handle = handle_,
                mailbox = mailbox_]() mutable {
    HttpReply answer;
    if (!call.expired()) answer = handle(*request);  // else its client is gone
    // The request goes back even so: until then its body counts as held.
    mailbox->Post([call = std::move(call), request = std::move(request),
                   answer = std::move(answer)]() mutable {
      request.reset();
      if (const auto self = call.lock()) {
        self->exchange_->Guard([&] { self->OnAnswer(std::move(answer)); });
      }
    });
  });
}

void LargeRequestCall::OnAnswer(HttpReply answer) {
  if (auto* response = std::get_if<HttpResponse>(&answer)) {
    return exchange_->Respond(std::move(*response));
  }
  call_ = std::get<std::shared_ptr<HttpCall>>(std::move(answer));
  call_->Start(*exchange_);
}

void LargeRequestCall::OnWritten() {
  if (call_ != nullptr) call_->OnWritten();
}

void LargeRequestCall::OnGone() {
  if (call_ != nullptr) call_->OnGone();
}

}  // namespace triptych
