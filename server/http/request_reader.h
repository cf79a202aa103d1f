// Where requests begin and end in what a connection receives.
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

// Beast reads the heads. It bounds neither a head that comes line by line nor the lines of a body
// in chunks, so heads are counted and bodies taken out of their framing (RFC 9112) here. What it
// holds is bounded by its limits and what is appended, and what it does by a multiple of that.
class RequestReader {
 public:
  using Head = boost::beast::http::request<boost::beast::http::empty_body>;

  static constexpr size_t kMaxFields = 100;     // of a head
  static constexpr size_t kMaxLineBytes = 256;  // a chunk's size with its extensions; a trailer

  enum class Event {
    kNothing,  // that is whole; more is to be appended
    kHead,     // of a request, whose body is read next
    kRequest,  // is whole; the next one begins
    kError,    // what was appended is no request that can be read, and nothing more is
  };

  // Of a head with its trailers, and of a body.
  RequestReader(size_t max_head_bytes, size_t max_body_bytes);

  void Append(std::string_view bytes);
  Event Next();

  // Appended, and not taken by a request yet.
  size_t unread_bytes() const { return received_.size() - at_; }
  // Some of a request is there that is not whole.
  bool begun() const { return state_ != State::kHead || head_bytes_ + unread_bytes() > 0; }

  // Of the request that is read, as far as is known.
  bool is_head() const {
    return parser_ && parser_->get().method() == boost::beast::http::verb::head;
  }
  // After kHead.
  const Head& head() const { return parser_->get(); }
  bool has_body() const { return state_ != State::kWhole; }
  // What the body takes in memory so far.
  size_t body_capacity() const { return body_.capacity(); }
  std::string TakeBody();
  // After kError.
  const HttpResponse& error() const { return *error_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;
  enum class State { kHead, kSized, kChunkSize, kChunk, kChunkEnd, kTrailer, kWhole, kError };

  std::string_view unread() const { return std::string_view(received_).substr(at_); }
  Event ReadHead();
  // How the body of the request is framed whose head is there.
  Event FindFraming();
  // Each takes what is there of its part, and returns false if it is not all there.
  bool ReadBytes();
  bool ReadChunkSize();
  bool ReadChunkEnd();
  bool ReadTrailer();
  // The next line without its end, if it is there. One that is longer than `most` is an error.
  std::optional<std::string_view> ReadLine(size_t most);

  Event Fail(HttpResponse error);
  Event FailHeadSize();
  Event FailBodySize();
  Event FailChunk();

  const size_t max_head_bytes_, max_body_bytes_;
  std::string received_;
  size_t at_ = 0;  // in received_, up to which it has been taken

  State state_ = State::kHead;
  std::optional<Parser> parser_;
  size_t head_bytes_ = 0;
  uint64_t left_ = 0;  // bytes of the body or of its chunk
  std::string body_;
  std::optional<HttpResponse> error_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_REQUEST_READER_H_
