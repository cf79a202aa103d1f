// Parser that splits a connection's input into HTTP/1.1 requests.
#ifndef TRIPTYCH_SERVER_HTTP_REQUEST_READER_H_
#define TRIPTYCH_SERVER_HTTP_REQUEST_READER_H_

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/verb.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/exchange.h"

namespace triptych::server {

// Beast parses the heads. It bounds neither a head that arrives line by line nor the lines of a
// chunked body, so this class counts head bytes and decodes the body's framing (RFC 9112). Memory
// is bounded by the limits and the appended bytes; time is linear in them.
class RequestReader {
 public:
  using Head = boost::beast::http::request<boost::beast::http::empty_body>;

  static constexpr size_t kMaxFields = 100;     // of a head
  static constexpr size_t kMaxLineBytes = 256;  // a chunk's size with its extensions; a trailer

  enum class Event {
    kNothing,  // incomplete; append more
    kHead,     // the head is complete; the body follows
    kRequest,  // the request is complete
    kError,    // malformed or too large, for good
  };

  // Limits of a head with its trailers, and of a body.
  RequestReader(size_t max_head_bytes, size_t max_body_bytes);

  void Append(std::string_view bytes);
  Event Next();

  // Bytes appended and not consumed yet.
  size_t unread_bytes() const { return received_.size() - at_; }
  // True if an incomplete request has begun.
  bool begun() const { return state_ != State::kHead || head_bytes_ + unread_bytes() > 0; }

  // True if the current request is known to be HEAD.
  bool is_head() const {
    return parser_ && parser_->get().method() == boost::beast::http::verb::head;
  }
  // Valid after kHead.
  const Head& head() const { return parser_->get(); }
  bool has_body() const { return state_ != State::kWhole; }
  // Memory of the body so far.
  size_t body_capacity() const { return body_.capacity(); }
  std::string TakeBody();
  // The error response. Valid after kError.
  const HttpResponse& error() const { return *error_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;
  enum class State { kHead, kSized, kChunkSize, kChunk, kChunkEnd, kTrailer, kWhole, kError };

  std::string_view unread() const { return std::string_view(received_).substr(at_); }
  Event ReadHead();
  // Determines the framing of the body from the head.
  Event FindFraming();
  // Each consumes its part of the input; false if the part is incomplete.
  bool ReadBytes();
  bool ReadChunkSize();
  bool ReadChunkEnd();
  bool ReadTrailer();
  // The next line without its end; absent if incomplete. A line longer than `most` is an error.
  std::optional<std::string_view> ReadLine(size_t most);

  Event Fail(HttpResponse error);
  Event FailHeadSize();
  Event FailBodySize();
  Event FailChunk();

  const size_t max_head_bytes_, max_body_bytes_;
  std::string received_;
  size_t at_ = 0;  // offset in received_ of the first unread byte

  State state_ = State::kHead;
  std::optional<Parser> parser_;
  size_t head_bytes_ = 0;
  uint64_t left_ = 0;  // bytes left of the body or of its chunk
  std::string body_;
  std::optional<HttpResponse> error_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_REQUEST_READER_H_
