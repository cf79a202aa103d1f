#include "server/http/completion_call.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "server/core/log.h"
#include "server/http/error_response.h"

namespace triptych::server {
namespace {

// Memory of one response that is sent whole.
constexpr int64_t kMaxKeptBytes = int64_t{16} << 20;

constexpr const char* kRequestIdHeader = "x-request-id";

}  // namespace

class CompletionCall::Listener final : public CallListener,
                                       public std::enable_shared_from_this<Listener> {
 public:
  explicit Listener(const std::shared_ptr<CompletionCall>& call)
      : mailbox_(call->mailbox_), call_(call) {}

  void OnReady() override {
    if (posted_.exchange(true)) return;
    try {
      mailbox_->Post([self = shared_from_this()] {
        self->posted_ = false;  // before Advance: later output posts again
        if (const auto call = self->call_.lock()) {
          call->exchange_->Guard([&] { call->Advance(); });
        }
      });
    } catch (const std::exception& e) {  // such as std::bad_alloc
      posted_ = false;
      LogError("HTTP: a notification is delayed: {}", e.what());
    }
  }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const std::weak_ptr<CompletionCall> call_;  // locked only on the I/O thread
  std::atomic<bool> posted_ = false;
};

CompletionCall::CompletionCall(std::shared_ptr<Call> call, CompletionRequest request,
                               std::unique_ptr<Answer> answer, const std::string& client,
                               std::shared_ptr<Mailbox> mailbox, ByteBudget& budget)
    : call_(std::move(call)),
      request_(std::move(request)),
      mailbox_(std::move(mailbox)),
      answer_(std::move(answer)),
      kept_(budget, client) {}

void CompletionCall::Start(Exchange& exchange) {
  exchange_ = &exchange;
  call_->Start(std::make_shared<Listener>(shared_from_this()));
}

void CompletionCall::OnWritten() {
  if (std::exchange(in_flight_, false)) call_->ChunkDone(/*delivered=*/true);
  Advance();
}

void CompletionCall::OnGone() {
  over_ = true;
  call_->Cancel();
}

void CompletionCall::Advance() {
  while (!over_) {
    const Call::Event event = call_->Take();
    if (std::holds_alternative<std::monostate>(event)) return;
    if (std::holds_alternative<RequestAccepted>(event)) {
      // Only now: a refused request gets an error status instead of a stream.
      if (request_.stream) Begin();
    } else if (const auto* chunk = std::get_if<StreamChunk>(&event)) {
      Send(*chunk);
    } else {
      End(std::get<CallEnd>(event));
    }
  }
}

void CompletionCall::OnQuiet() {
  if (over_ || !request_.stream) return;
  Begin();
  exchange_->Write(answer_->Filler());
}

void CompletionCall::Begin() {
  if (std::exchange(begun_, true)) return;
  exchange_->Begin({.content_type = answer_->StreamType(),
                    .headers = {{"Cache-Control", "no-cache"},
                                {"X-Accel-Buffering", "no"},  // nginx would hold events back
                                {kRequestIdHeader, call_->id()}}});
  if (std::string events = answer_->BeginEvents(); !events.empty()) {
    exchange_->Write(std::move(events));
  }
}

void CompletionCall::Send(const StreamChunk& chunk) {
  if (!request_.stream || answer_->keeps_events()) {
    if (const auto error = Keep(chunk)) {
      call_->Cancel();
      return End({*error});
    }
  }
  if (request_.stream) {
    std::string events = answer_->Events(chunk);
    if (events.empty()) return call_->ChunkDone(/*delivered=*/true);
    in_flight_ = true;
    exchange_->Write(std::move(events));
  } else {
    answer_->Add(chunk);
    call_->ChunkDone(/*delivered=*/true);
  }
}

std::optional<Error> CompletionCall::Keep(const StreamChunk& chunk) {
  const auto bytes = static_cast<int64_t>(answer_->BytesOf(chunk));
  if (kept_.held() + bytes > kMaxKeptBytes) {
    const std::string exceeds = "the response exceeds " + std::to_string(kMaxKeptBytes) + " bytes";
    return answer_->keeps_events()
               ? InvalidArgument(request_.length_field,
                                 "is too large, as " + exceeds + "; allowed: fewer tokens")
               : InvalidArgument(
                     "stream", "is false, but " + exceeds + "; allowed: true for larger responses");
  }
  if (!kept_.Hold(kept_.held() + bytes)) return MemoryPressure();
  return std::nullopt;
}

void CompletionCall::End(const CallEnd& end) {
  over_ = true;
  if (end.error) {
    const Error error = InCompletionTerms(*end.error, request_);
    if (!begun_) {
      Respond(ErrorResponse(error));
    } else {
      exchange_->Write(answer_->ErrorEvents(error));
      exchange_->End(/*whole=*/false);
    }
  } else if (request_.stream) {
    exchange_->Write(answer_->EndEvents());
    exchange_->End(/*whole=*/true);
  } else {
    Respond({.body = answer_->Whole()});
  }
}

void CompletionCall::Respond(HttpResponse response) {
  response.headers.emplace_back(kRequestIdHeader, call_->id());
  answer_.reset();
  kept_.Hold(0);  // the connection accounts for the response
  exchange_->Respond(std::move(response));
}

}  // namespace triptych::server
