#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <charconv>
#include <iterator>
#include <system_error>
#include <utility>

#include "server/http/error_response.h"

namespace triptych::server {
namespace {

namespace http = boost::beast::http;

// True if a line has control bytes, such as a bare CR or LF: more lenient parsers end a line there.
bool HasControlBytes(std::string_view line) {
  return std::any_of(line.begin(), line.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) < ' ' && byte != '\t') || byte == '\x7f';
  });
}

}  // namespace

RequestReader::RequestReader(size_t max_head_bytes, size_t max_body_bytes)
    : max_head_bytes_(max_head_bytes), max_body_bytes_(max_body_bytes) {}

void RequestReader::Append(std::string_view bytes) {
  received_.erase(0, std::exchange(at_, 0));
  received_.append(bytes);
}

std::string RequestReader::TakeBody() { return std::exchange(body_, {}); }

RequestReader::Event RequestReader::Next() {
  while (true) {
    switch (state_) {
      case State::kHead:
        return ReadHead();
      case State::kSized:
        if (!ReadBytes()) return Event::kNothing;
        state_ = State::kWhole;
        break;
      case State::kChunkSize:
        if (!ReadChunkSize()) return Event::kNothing;
        break;
      case State::kChunk:
        if (!ReadBytes()) return Event::kNothing;
        state_ = State::kChunkEnd;
        break;
      case State::kChunkEnd:
        if (!ReadChunkEnd()) return Event::kNothing;
        break;
      case State::kTrailer:
        if (!ReadTrailer()) return Event::kNothing;
        break;
      case State::kWhole:
        state_ = State::kHead;
        parser_.reset();
        head_bytes_ = 0;
        return Event::kRequest;
      case State::kError:
        return Event::kError;
    }
  }
}

RequestReader::Event RequestReader::ReadHead() {
  // Old clients send an empty line after a body (RFC 9112, 2.2).
  while (head_bytes_ == 0 && unread().starts_with("\r\n")) at_ += 2;
  if (unread_bytes() == 0 || (head_bytes_ == 0 && unread() == "\r")) return Event::kNothing;
  if (!parser_) {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(max_head_bytes_));
    parser_->skip(true);  // skips the body
  }
  while (!parser_->is_header_done()) {
    boost::system::error_code error;
    const size_t taken =
        parser_->put(boost::asio::buffer(received_.data() + at_, unread_bytes()), error);
    at_ += taken;
    head_bytes_ += taken;
    const bool needs_more = error == http::error::need_more;
    const auto fields = std::distance(parser_->get().begin(), parser_->get().end());
    if (error == http::error::header_limit ||
        head_bytes_ + (needs_more ? unread_bytes() : 0) > max_head_bytes_ ||
        fields > static_cast<std::ptrdiff_t>(kMaxFields)) {
      return FailHeadSize();
    }
    if (error && !needs_more) {
      return Fail(
          StatusResponse(400, "bad_request", "the request is not HTTP/1.1: " + error.message()));
    }
    if (needs_more && taken == 0) return Event::kNothing;
  }
  return FindFraming();
}

RequestReader::Event RequestReader::FindFraming() {
  const Head& head = parser_->get();
  const bool is_http_1_0 = head.version() < 11;
  const size_t hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && !is_http_1_0)) {
    return Fail(StatusResponse(
        400, "bad_host", "the request has " + std::to_string(hosts) + " Host fields; allowed: 1"));
  }
  // Refused because a proxy that parses such a field differently would see another request begin
  // (request smuggling; RFC 9112, 6.1, 6.3).
  if (const size_t encodings = head.count(http::field::transfer_encoding); encodings > 0) {
    if (is_http_1_0) {
      return Fail(StatusResponse(400, "bad_request",
                                 "the request is HTTP/1.0 and has a transfer encoding; allowed: "
                                 "none"));
    }
    if (encodings > 1 || !boost::beast::iequals(head[http::field::transfer_encoding], "chunked")) {
      return Fail(StatusResponse(501, "unknown_transfer_encoding",
                                 "the transfer encoding is not supported; allowed: chunked"));
    }
    state_ = State::kChunkSize;
    return Event::kHead;
  }
  left_ = parser_->content_length().value_or(0);
  if (left_ > max_body_bytes_) return FailBodySize();
  state_ = left_ > 0 ? State::kSized : State::kWhole;
  return Event::kHead;
}

bool RequestReader::ReadBytes() {
  const auto taken = static_cast<size_t>(std::min<uint64_t>(left_, unread_bytes()));
  body_.append(received_, at_, taken);
  at_ += taken;
  left_ -= taken;
  return left_ == 0;
}

bool RequestReader::ReadChunkSize() {
  const std::optional<std::string_view> line = ReadLine(kMaxLineBytes);
  if (!line) return state_ == State::kError;
  const std::string_view size = line->substr(0, line->find_first_of("; \t"));
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), left_, 16);
  const size_t next = line->find_first_not_of(" \t", size.size());
  const bool ends = size.size() == line->size() || (next != line->npos && (*line)[next] == ';');
  if (error == std::errc::result_out_of_range || left_ > max_body_bytes_ - body_.size()) {
    FailBodySize();
  } else if (error != std::errc() || end != size.data() + size.size() || !ends) {
    FailChunk();
  } else {
    state_ = left_ > 0 ? State::kChunk : State::kTrailer;
  }
  return true;
}

bool RequestReader::ReadChunkEnd() {
  const std::optional<std::string_view> line = ReadLine(0);
  if (!line) return state_ == State::kError;
  state_ = State::kChunkSize;
  return true;
}

bool RequestReader::ReadTrailer() {
  const std::optional<std::string_view> line = ReadLine(kMaxLineBytes);
  if (!line) return state_ == State::kError;
  head_bytes_ += line->size() + 2;
  if (head_bytes_ > max_head_bytes_) {
    FailHeadSize();
  } else if (line->empty()) {
    state_ = State::kWhole;
  }
  return true;
}

std::optional<std::string_view> RequestReader::ReadLine(size_t most) {
  const std::string_view rest = unread().substr(0, most + 2);
  const size_t end = rest.find("\r\n");
  if (end == rest.npos) {
    if (rest.size() == most + 2) FailChunk();
    return std::nullopt;
  }
  if (HasControlBytes(rest.substr(0, end))) {
    FailChunk();
    return std::nullopt;
  }
  at_ += end + 2;
  return rest.substr(0, end);
}

RequestReader::Event RequestReader::Fail(HttpResponse error) {
  state_ = State::kError;
  error_ = std::move(error);
  return Event::kError;
}

RequestReader::Event RequestReader::FailHeadSize() {
  return Fail(StatusResponse(431, "headers_too_large",
                             "the headers are too large; allowed: at most " +
                                 std::to_string(max_head_bytes_) + " bytes in " +
                                 std::to_string(kMaxFields) + " fields"));
}

RequestReader::Event RequestReader::FailBodySize() {
  return Fail(StatusResponse(
      413, "body_too_large",
      "the body is too large; allowed: at most " + std::to_string(max_body_bytes_) + " bytes"));
}

RequestReader::Event RequestReader::FailChunk() {
  return Fail(StatusResponse(
      400, "bad_request",
      "the body's chunks are malformed; allowed: sizes in hexadecimal, on lines of at most " +
          std::to_string(kMaxLineBytes) + " bytes"));
}

}  // namespace triptych::server
