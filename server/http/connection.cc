#include "server/http/connection.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/status.hpp>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string_view>
#include <utility>
#include <variant>

#include "server/core/error.h"
#include "server/http/error_response.h"

namespace triptych {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadBytes = 4 << 10;
constexpr size_t kBodyReadBytes = 64 << 10;
// What is read of a client after the last answer, so that it gets to read that.
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kMaxLingerBytes = 1 << 20;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// What is no escape stands for itself.
std::string Decode(std::string_view text, bool plus_is_blank) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = high >= 0 ? HexDigit(text[i + 2]) : -1;
    if (low >= 0) {
      decoded += static_cast<char>(16 * high + low);
      i += 2;
    } else {
      decoded += plus_is_blank && text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

HttpRequest ReadTarget(std::string_view target) {
  const size_t mark = std::min(target.find('?'), target.size());
  HttpRequest request{.path = Decode(target.substr(0, mark), false), .query = {}, .body = {}};
  std::string_view rest = target.substr(std::min(mark + 1, target.size()));
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    request.query.emplace(Decode(pair.substr(0, equals), true),
                          Decode(pair.substr(std::min(equals + 1, pair.size())), true));
  }
  return request;
}

// The time as a Date header has it.
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

// Why a request with such a head cannot be read.
std::optional<HttpResponse> RefuseBody(const http::request_header<>& head) {
  const auto is = [&](http::field field, const char* value) {
    return boost::beast::iequals(head[field], value);
  };
  if (head.count(http::field::transfer_encoding) > 0 &&
      !is(http::field::transfer_encoding, "chunked")) {
    return Refusal(501, "unknown_transfer_encoding",
                   "the transfer encoding is not known; allowed: chunked");
  }
  if (head.count(http::field::content_encoding) > 0 &&
      !is(http::field::content_encoding, "identity")) {
    return Refusal(415, "compressed_body", "the body is compressed; allowed: as it is");
  }
  // A page of another site may send other types without asking the browser's user.
  if (head.method() == http::verb::post && !IsJson(View(head[http::field::content_type]))) {
    return Refusal(415, "unknown_content_type",
                   "the content type is not known; allowed: application/json");
  }
  if (head.count(http::field::expect) > 0 && !is(http::field::expect, "100-continue")) {
    return Refusal(417, "unknown_expectation",
                   "the expectation is not known; allowed: 100-continue");
  }
  return std::nullopt;
}

}  // namespace

Connection::Connection(std::unique_ptr<ByteStream> stream, const HttpShared& shared,
                       std::function<void(const std::shared_ptr<Connection>&)> on_closed)
    : stream_(std::move(stream)),
      shared_(shared),
      on_closed_(std::move(on_closed)),
      timer_(stream_->socket().get_executor()),
      body_bytes_(shared.budget) {}

void Connection::Start() {
  error_code error;
  address_ = stream_->socket().remote_endpoint(error).address().to_string();
  Arm(shared_.limits.max_request_time);
  stream_->Handshake([self = shared_from_this()](const error_code& failed) {
    if (self->state_ == State::kClosed) return;
    if (failed) return self->Close();
    self->Expect();
    self->Read();
  });
}

void Connection::Finish() {
  finishing_ = true;
  const bool is_idle = state_ == State::kReading && !begun_;
  if (is_idle || state_ == State::kHandshake) Close();
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  state_ = State::kClosed;
  Disarm();
  if (const std::shared_ptr<HttpCall> call = std::exchange(call_, nullptr)) call->OnGone();
  parser_.reset();
  body_bytes_.Release();
  stream_->Close();
  on_closed_(self);
}

template <typename Function>
void Connection::Guard(Function function) {
  try {
    function();
  } catch (const std::exception& e) {  // such as std::bad_alloc
    spdlog::error("HTTP: a connection is closed: {}", e.what());
    Close();
  }
}

void Connection::Read() {
  const bool reads_body = state_ == State::kReading && admitted_;
  incoming_ = std::vector<char>(reads_body ? kBodyReadBytes : kReadBytes);
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
    received_.append(incoming_.data(), bytes);
    if (state_ == State::kReading) {
      Parse();
    } else if (received_.size() > kMaxPipelinedBytes) {
      return Close();
    }
  }
  if (state_ != State::kClosed) Read();
}

void Connection::Expect() {
  state_ = State::kReading;
  begun_ = false;
  admitted_.reset();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_.limits.max_metadata_bytes));
  parser_->body_limit(static_cast<uint64_t>(shared_.limits.max_message_bytes));
  body_bytes_.Release();
  parser_->get().body().share = &body_bytes_;
  Arm(shared_.limits.max_idle);
}

void Connection::Parse() {
  while (state_ == State::kReading && !received_.empty()) {
    if (!std::exchange(begun_, true)) Arm(shared_.limits.max_request_time);
    error_code error;
    const size_t taken = parser_->put(boost::asio::buffer(received_), error);
    received_.erase(0, taken);
    const bool needs_more = error == http::error::need_more;
    if (error && !needs_more) return Refuse(error);
    if (parser_->is_header_done() && !admitted_ && !Admit()) return;
    if (parser_->is_done()) {
      Handle();
    } else if (needs_more && taken == 0) {
      return;
    }
  }
}

bool Connection::Admit() {
  const http::request<BudgetedBody>& head = parser_->get();
  is_http_1_0_ = head.version() < 11;
  is_head_ = head.method() == http::verb::head;
  const bool is_old = std::chrono::steady_clock::now() - born_ > shared_.limits.max_age;
  close_after_ = !head.keep_alive() || is_old || shared_.routes.state() == Routes::State::kDraining;
  if (const std::optional<HttpResponse> refusal = AdmitHead()) {
    if (!parser_->is_done()) {
      RespondAndClose(*refusal);
    } else {
      state_ = State::kAnswering;
      Disarm();
      Respond(*refusal);
    }
    return false;
  }
  if (!parser_->is_done() && head.count(http::field::expect) > 0 && !is_http_1_0_) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    Flush();
  }
  return true;
}

std::optional<HttpResponse> Connection::AdmitHead() {
  const http::request<BudgetedBody>& head = parser_->get();
  request_ = ReadTarget(View(head.target()));
  Presented presented{
      .authorization = {}, .address = address_, .common_name = stream_->common_name()};
  const auto [begin, end] = head.equal_range(http::field::authorization);
  for (auto value = begin; value != end; ++value) {
    presented.authorization.emplace_back(View(value->value()));
  }
  auto admitted = shared_.routes.Admit({.method = View(head.method_string()),
                                        .path = request_.path,
                                        .presented = std::move(presented)});
  if (auto* response = std::get_if<HttpResponse>(&admitted)) return std::move(*response);
  if (std::optional<HttpResponse> refusal = RefuseBody(head)) return refusal;
  admitted_.emplace(std::get<Routes::Admitted>(std::move(admitted)));
  return std::nullopt;
}

void Connection::Handle() {
  state_ = State::kAnswering;
  Disarm();
  request_.body = std::move(parser_->get().body().text);
  Routes::Answer answer;
  try {
    answer = shared_.routes.Handle(*admitted_, request_);
  } catch (const std::exception& e) {  // such as std::bad_alloc
    spdlog::error("HTTP: a request could not be handled: {}", e.what());
    answer = Refusal(500, "internal", "the request could not be handled");
  }
  parser_.reset();
  request_ = {};
  body_bytes_.Release();
  if (const auto* response = std::get_if<HttpResponse>(&answer)) return Respond(*response);
  call_ = std::get<std::shared_ptr<HttpCall>>(std::move(answer));
  call_->Start(*this);
}

void Connection::Refuse(const error_code& error) {
  is_http_1_0_ = false;
  is_head_ = false;
  if (error == http::error::header_limit) {
    RespondAndClose(Refusal(431, "headers_too_large",
                            "the headers are too large; allowed: at most " +
                                std::to_string(shared_.limits.max_metadata_bytes) + " bytes"));
  } else if (error == http::error::body_limit) {
    RespondAndClose(Refusal(413, "body_too_large",
                            "the body is too large; allowed: at most " +
                                std::to_string(shared_.limits.max_message_bytes) + " bytes"));
  } else if (error == boost::system::errc::not_enough_memory) {
    RespondAndClose(ErrorResponse(MemoryPressure()));
  } else {
    RespondAndClose(Refusal(400, "bad_request", "the request is no HTTP/1.1: " + error.message()));
  }
}

void Connection::RespondAndClose(const HttpResponse& response) {
  state_ = State::kAnswering;
  Disarm();
  close_after_ = true;
  Respond(response);
}

void Connection::AddHead(const HttpResponse& response, const std::string& framing) {
  close_after_ = close_after_ || finishing_;
  const auto status = static_cast<unsigned>(response.status);
  out_ += "HTTP/1.1 " + std::to_string(status) + " " +
          std::string(View(http::obsolete_reason(http::int_to_status(status)))) + "\r\n";
  out_ += "Date: " + Now() + "\r\n";
  for (const auto& [name, value] : response.headers) out_ += name + ": " + value + "\r\n";
  out_ += "Content-Type: " + response.content_type + "\r\n" + framing;
  if (close_after_) {
    out_ += "Connection: close\r\n";
  } else if (is_http_1_0_) {
    out_ += "Connection: keep-alive\r\n";
  }
  out_ += "\r\n";
}

void Connection::Respond(const HttpResponse& response) {
  AddHead(response, "Content-Length: " + std::to_string(response.body.size()) + "\r\n");
  if (!is_head_) out_ += response.body;
  ended_ = true;
  Flush();
}

void Connection::Begin(const HttpResponse& head) {
  chunked_ = !is_http_1_0_;
  if (!chunked_) close_after_ = true;  // which ends the body
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
  sent_ = 0;
  OnWrite({}, 0);
}

void Connection::OnWrite(const error_code& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) return Close();
  sent_ += bytes;
  if (sent_ < sending_.size()) {
    Arm(shared_.limits.stall_timeout);
    stream_->WriteSome(boost::asio::buffer(sending_) + sent_,
                       [self = shared_from_this()](const error_code& failed, size_t written) {
                         self->Guard([&] { self->OnWrite(failed, written); });
                       });
    return;
  }
  writing_ = false;
  if (!out_.empty()) return Flush();
  if (state_ == State::kReading) return Arm(shared_.limits.max_request_time);  // it may go on
  Disarm();
  if (ended_) {
    EndExchange();
  } else if (const std::shared_ptr<HttpCall> call = call_) {
    call->OnWritten();
  }
}

void Connection::EndExchange() {
  call_.reset();
  ended_ = false;
  chunked_ = false;
  sending_ = {};
  if (close_after_ || finishing_) return Linger();
  Expect();
  Parse();
}

void Connection::Linger() {
  state_ = State::kLingering;
  received_ = {};
  Arm(kLingerTime);
  stream_->EndWrites([self = shared_from_this()](const error_code&) {});
}

void Connection::OnTimeout() {
  if (state_ == State::kReading && begun_ && !writing_) {
    RespondAndClose(Refusal(408, "request_timeout", "the request took too long to arrive"));
  } else {
    Close();
  }
}

void Connection::Arm(std::chrono::milliseconds time) {
  const uint64_t armed = ++armed_;
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), armed](const error_code& error) {
    if (!error && armed == self->armed_) self->OnTimeout();
  });
}

void Connection::Disarm() {
  ++armed_;
  timer_.cancel();
}

}  // namespace triptych
