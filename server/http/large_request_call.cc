#include "server/http/large_request_call.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

namespace triptych::server {

LargeRequestCall::LargeRequestCall(HttpRequest request, std::string client, Handle handle,
                                   TokenizationQueue& queue, std::shared_ptr<Mailbox> mailbox,
                                   std::shared_ptr<void> kept)
    : request_(std::make_shared<HttpRequest>(std::move(request))),
      kept_(std::move(kept)),
      client_(std::move(client)),
      handle_(std::move(handle)),
      queue_(queue),
      mailbox_(std::move(mailbox)) {}

void LargeRequestCall::Start(Exchange& exchange) {
  exchange_ = &exchange;
  const int64_t bytes = std::ssize(request_->body);
  queue_.Handle({.client = client_,
                 .text_bytes = std::max(bytes, TokenizationQueue::kMaxQuickBytes + 1),
                 .held_bytes = bytes,
                 .is_cancelled = [call = weak_from_this()] { return call.expired(); },
                 .handle =
                     [call = weak_from_this(), request = std::exchange(request_, nullptr),
                      kept = std::exchange(kept_, nullptr), handle = handle_,
                      mailbox = mailbox_](const std::optional<Error>& refused) mutable {
                       HttpReply answer = handle(*request, refused);
                       // The request is returned in any case: its share of the budget ends on the
                       // I/O thread.
                       mailbox->Post([call, request = std::exchange(request, nullptr),
                                      answer = std::move(answer)]() mutable {
                         request.reset();
                         if (const auto self = call.lock()) {
                           self->exchange_->Guard([&] { self->OnAnswer(std::move(answer)); });
                         }
                       });
                     }});
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

void LargeRequestCall::OnQuiet() {
  if (call_ != nullptr) call_->OnQuiet();
}

void LargeRequestCall::OnGone() {
  if (call_ != nullptr) call_->OnGone();
}

}  // namespace triptych::server
