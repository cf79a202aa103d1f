#include "server/http/connection.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/status.hpp>
#include <cstdio>
#include <ctime>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/base/quoted.h"
#include "server/core/error.h"
#include "server/core/log.h"
#include "server/http/error_response.h"
#include "server/http/ollama_answer.h"
#include "server/http/request_target.h"

namespace triptych::server {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

// Largest response that does not count in the byte budget.
constexpr size_t kSmallAnswerBytes = 4 << 10;
// Bounds of reading after the last response. Closing with unread input would reset the connection,
// and the client could lose the response.
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kMaxLingerBytes = 1 << 20;
constexpr int kNoContent = 204;  // a status without a body

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The current time in the format of a Date header.
std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

bool IsJson(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  return boost::beast::iequals(
      boost::beast::string_view(type.data(), type.find_last_not_of(' ') + 1), "application/json");
}

// The response that refuses the body of a request by its head; absent if it is allowed.
std::optional<HttpResponse> CheckBody(const RequestReader::Head& head, bool has_body) {
  const auto is = [&](http::field field, const char* value) {
    return boost::beast::iequals(head[field], value);
  };
  if (head.method() != http::verb::post) {
    if (!has_body) return std::nullopt;
    return StatusResponse(400, "unexpected_body",
                          "the request has a body; allowed: only with POST");
  }
  if (head.count(http::field::content_encoding) > 0 &&
      !is(http::field::content_encoding, "identity")) {
    return StatusResponse(415, "compressed_body", "the body is compressed; allowed: uncompressed");
  }
  // Browsers let pages of other sites send some other types without a CORS preflight.
  if (!IsJson(View(head[http::field::content_type]))) {
    return StatusResponse(415, "unknown_content_type",
                          "the content type is not supported; allowed: application/json");
  }
  if (head.count(http::field::expect) > 0 && !is(http::field::expect, "100-continue")) {
    return StatusResponse(417, "unknown_expectation",
                          "the expectation is not supported; allowed: 100-continue");
  }
  return std::nullopt;
}

}  // namespace

Connection::Connection(std::unique_ptr<ByteStream> stream, std::string address,
                       const HttpShared& shared,
                       std::function<void(const std::shared_ptr<Connection>&)> on_closed)
    : stream_(std::move(stream)),
      address_(std::move(address)),
      shared_(shared),
      on_closed_(std::move(on_closed)),
      timer_(stream_->socket().get_executor()),
      reader_(static_cast<size_t>(shared.limits.max_metadata_bytes),
              static_cast<size_t>(shared.limits.max_message_bytes)) {}

void Connection::Start() {
  request_end_ = Clock::now() + shared_.limits.max_request_time;
  Arm(*request_end_);
  stream_->Handshake([self = shared_from_this()](const error_code& failed) {
    self->Guard([&] {
      if (self->state_ == State::kClosed) return;
      if (failed) return self->Close();
      self->state_ = State::kReading;
      self->Read();
    });
  });
}

void Connection::Finish() {
  finishing_ = true;
  const bool is_idle = state_ == State::kReading && !reader_.begun();
  if (is_idle || state_ == State::kHandshake) Close();
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  state_ = State::kClosed;
  Disarm();
  request_ = {};
  memory_.reset();
  stream_->Close();
  on_closed_(self);
  const std::shared_ptr<HttpCall> call = std::exchange(call_, nullptr);
  if (call == nullptr) return;
  try {
    call->OnGone();
  } catch (const std::exception& e) {  // such as std::bad_alloc; the call ends by itself
    LogError("HTTP: a call of a disconnected client was not cancelled: {}", e.what());
  }
}

void Connection::Fail(const std::exception& error) {
  LogError("HTTP: connection closed: {}", error.what());
  Close();
}

void Connection::Read() {
  stream_->ReadSome(boost::asio::buffer(incoming_),
                    [self = shared_from_this()](const error_code& error, size_t bytes) {
                      self->Guard([&] { self->OnRead(error, bytes); });
                    });
}

void Connection::OnRead(const error_code& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) return Close();
  if (state_ == State::kLingering) {
    lingered_ += bytes;
    if (lingered_ > kMaxLingerBytes) return Close();
  } else {
    reader_.Append({incoming_.data(), bytes});
    if (state_ == State::kReading) {
      Advance();
    } else if (reader_.unread_bytes() > kMaxPipelinedBytes) {
      return Close();
    }
  }
  if (state_ != State::kClosed) Read();
}

void Connection::Expect() {
  state_ = State::kReading;
  request_end_.reset();
  admitted_.reset();
  is_http_1_0_ = false;
  is_head_ = false;
  is_ollama_ = false;
  origin_headers_.clear();
  Arm(Clock::now() + shared_.limits.max_idle);
}

void Connection::Advance() {
  while (state_ == State::kReading) {
    if (!request_end_ && reader_.begun()) {
      request_end_ = Clock::now() + shared_.limits.max_request_time;
      Arm(*request_end_);
    }
    const RequestReader::Event event = reader_.Next();
    if (event == RequestReader::Event::kError) return RespondAndClose(reader_.error());
    if (event == RequestReader::Event::kHead) {
      if (!Admit()) return;
      continue;
    }
    if (request_.memory && !request_.memory->Hold(static_cast<int64_t>(reader_.body_capacity()))) {
      return RespondAndClose(ErrorResponse(MemoryPressure()));
    }
    if (event == RequestReader::Event::kNothing) return;
    Handle();
  }
}

bool Connection::Admit() {
  const RequestReader::Head& head = reader_.head();
  is_http_1_0_ = head.version() < 11;
  is_head_ = reader_.is_head();
  const bool is_old = Clock::now() - born_ > shared_.limits.max_age;
  std::optional<HttpResponse> refusal = CheckHead();
  const bool is_drained = shared_.routes.state() == Routes::State::kDraining &&
                          !(admitted_ && admitted_->route->while_draining());
  close_after_ = !head.keep_alive() || is_old || is_drained;
  if (refusal) {
    if (reader_.has_body()) {
      RespondAndClose(*std::move(refusal));
    } else {
      reader_.Next();  // consumes the request, which is only its head
      StartAnswer();
      Respond(*std::move(refusal));
    }
    return false;
  }
  request_.memory = std::make_unique<ByteBudget::Share>(shared_.budget, client());
  const bool waits = head.count(http::field::expect) > 0 && !is_http_1_0_;
  if (waits && reader_.has_body() && reader_.unread_bytes() == 0) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    Flush();
  }
  return true;
}

std::optional<HttpResponse> Connection::CheckHead() {
  const RequestReader::Head& head = reader_.head();
  Result<RequestTarget> parsed = ParseTarget(View(head.target()));
  if (!parsed.ok()) return ErrorResponse(parsed.error());
  RequestTarget& target = parsed.value();
  is_ollama_ = IsOllamas(target.path);
  const bool names_host = !target.authority.empty() || head.count(http::field::host) > 0;
  const std::string_view host =
      target.authority.empty() ? View(head[http::field::host]) : target.authority;
  if (names_host && !shared_.hosts.Contains(host)) {
    return StatusResponse(421, "unknown_host",
                          "the host is " + Quoted(host) + "; allowed: " + shared_.hosts.Allowed());
  }
  origin_headers_ = shared_.origins.Headers(View(head[http::field::origin]));
  if (head.method() == http::verb::options) return AnswerOptions(target.path);
  const auto values = [&](const char* name) {
    std::vector<std::string> found;
    const auto [begin, end] = head.equal_range(name);
    for (auto value = begin; value != end; ++value) found.emplace_back(View(value->value()));
    return found;
  };
  std::vector<std::string> authorization = values("authorization");
  for (const std::string& key : values("x-api-key")) {  // Anthropic's clients
    if (authorization.empty()) authorization.push_back("Bearer " + key);
  }
  Credentials credentials{.authorization = std::move(authorization),
                          .address = address_,
                          .common_name = stream_->common_name(),
                          .traceparent = values(kTraceParent)};
  auto admitted = shared_.routes.Admit({.method = View(head.method_string()),
                                        .path = target.path,
                                        .credentials = std::move(credentials)});
  if (auto* response = std::get_if<HttpResponse>(&admitted)) return std::move(*response);
  if (auto response = CheckBody(head, reader_.has_body())) return response;
  request_ = {.path = std::move(target.path), .query = std::move(target.query)};
  admitted_.emplace(std::get<Routes::Admitted>(std::move(admitted)));
  return std::nullopt;
}

HttpResponse Connection::AnswerOptions(std::string_view path) {
  const RequestReader::Head& head = reader_.head();
  if (head.count("access-control-request-method") > 0) {
    origin_headers_ = shared_.origins.PreflightHeaders(
        View(head[http::field::origin]), View(head["access-control-request-headers"]));
  }
  return shared_.routes.Options(path);
}

const std::string& Connection::client() const {
  return admitted_ && admitted_->entry ? admitted_->entry->caller.client : address_;
}

void Connection::StartAnswer() {
  state_ = State::kAnswering;
  if (!writing_) return Disarm();
  Arm(Clock::now() + shared_.limits.stall_timeout);  // output from while the body was read
}

void Connection::Handle() {
  StartAnswer();
  request_.body = reader_.TakeBody();
  HttpReply answer = shared_.routes.Handle(*admitted_, std::exchange(request_, {}));
  if (auto* response = std::get_if<HttpResponse>(&answer)) return Respond(std::move(*response));
  const auto call = std::get<std::shared_ptr<HttpCall>>(std::move(answer));
  call_ = call;
  call->Start(*this);
  AwaitOutput();
}

void Connection::AwaitOutput() {
  if (state_ != State::kAnswering || writing_ || ended_ || call_ == nullptr) return;
  Arm(Clock::now() + shared_.limits.max_silence);
}

void Connection::RespondAndClose(HttpResponse response) {
  StartAnswer();
  close_after_ = true;
  is_head_ = reader_.is_head();
  reader_.TakeBody();
  request_ = {};
  Respond(std::move(response));
}

void Connection::AddHead(const HttpResponse& response, const std::string& framing) {
  close_after_ = close_after_ || finishing_;
  const auto status = static_cast<unsigned>(response.status);
  out_ += "HTTP/1.1 " + std::to_string(status) + " " +
          std::string(View(http::obsolete_reason(http::int_to_status(status)))) + "\r\n";
  out_ += "Date: " + Now() + "\r\n";
  for (const auto& [name, value] : response.headers) out_ += name + ": " + value + "\r\n";
  out_ += origin_headers_;
  if (response.status != kNoContent) {
    out_ += "Content-Type: " + response.content_type + "\r\n" + framing;
  }
  if (close_after_) {
    out_ += "Connection: close\r\n";
  } else if (is_http_1_0_) {
    out_ += "Connection: keep-alive\r\n";
  }
  out_ += "\r\n";
}

void Connection::Respond(HttpResponse response) {
  if (response.body.size() > kSmallAnswerBytes &&
      !memory_.emplace(shared_.budget, client()).Hold(static_cast<int64_t>(response.body.size()))) {
    HttpResponse refusal = ErrorResponse(MemoryPressure());
    std::move(response.headers.begin(), response.headers.end(),
              std::back_inserter(refusal.headers));  // such as the request id
    response = std::move(refusal);
  }
  if (is_ollama_ && response.status >= 400) response = InOllamaShape(std::move(response));
  AddHead(response, "Content-Length: " + std::to_string(response.body.size()) + "\r\n");
  if (!is_head_) out_ += response.body;
  ended_ = true;
  Flush();
}

void Connection::Begin(const HttpResponse& head) {
  chunked_ = !is_http_1_0_;
  if (!chunked_) close_after_ = true;  // the close ends the body
  AddHead(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "");
  Flush();
}

void Connection::Write(std::string bytes) {
  if (chunked_) {
    char size[20];
    std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
    out_ += size + std::move(bytes) + "\r\n";
  } else {
    out_ += bytes;
  }
  Flush();
}

void Connection::End(bool whole) {
  if (!whole) close_after_ = true;
  if (chunked_ && whole) out_ += "0\r\n\r\n";
  ended_ = true;
  Flush();
  if (!writing_) EndExchange();
}

void Connection::Flush() {
  if (state_ == State::kClosed || writing_ || out_.empty()) return;
  writing_ = true;
  sending_ = std::exchange(out_, {});
  sent_ = pace_end_ = 0;
  OnWrite({}, 0);
}

void Connection::OnWrite(const error_code& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) return Close();
  sent_ += bytes;
  if (sent_ < sending_.size()) {
    if (sent_ == pace_end_) {
      pace_end_ = std::min(sent_ + kPaceBytes, sending_.size());
      // In kReading the timer is the request's deadline.
      if (state_ != State::kReading) Arm(Clock::now() + shared_.limits.stall_timeout);
    }
    stream_->WriteSome(boost::asio::buffer(sending_.data() + sent_, pace_end_ - sent_),
                       [self = shared_from_this()](const error_code& failed, size_t written) {
                         self->Guard([&] { self->OnWrite(failed, written); });
                       });
    return;
  }
  writing_ = false;
  if (!out_.empty()) return Flush();
  if (state_ == State::kReading) return;
  Disarm();
  if (ended_) {
    EndExchange();
  } else if (const std::shared_ptr<HttpCall> call = call_) {
    call->OnWritten();
    AwaitOutput();
  }
}

void Connection::EndExchange() {
  call_.reset();
  ended_ = false;
  chunked_ = false;
  std::string().swap(sending_);  // frees its memory; an assignment would not
  memory_.reset();
  if (close_after_ || finishing_) return Linger();
  Expect();
  Advance();
}

void Connection::Linger() {
  state_ = State::kLingering;
  Arm(Clock::now() + kLingerTime);
  stream_->EndWrites([self = shared_from_this()](const error_code&) {});
}

void Connection::OnTimeout() {
  if (state_ == State::kReading && reader_.begun() && !writing_) {
    RespondAndClose(StatusResponse(408, "request_timeout", "the request took too long to arrive"));
  } else if (const std::shared_ptr<HttpCall> call = call_;
             call != nullptr && state_ == State::kAnswering && !writing_) {
    call->OnQuiet();
    AwaitOutput();
  } else {
    Close();
  }
}

void Connection::Arm(Clock::time_point end) {
  const uint64_t armed = ++armed_;
  timer_.expires_at(end);
  timer_.async_wait([self = shared_from_this(), armed](const error_code& error) {
    self->Guard([&] {
      if (!error && armed == self->armed_) self->OnTimeout();
    });
  });
}

void Connection::Disarm() {
  ++armed_;
  timer_.cancel();
}

}  // namespace triptych::server
