// Blocking HTTP client for tests.
#ifndef TRIPTYCH_TESTS_SERVER_HTTP_HTTP_CLIENT_H_
#define TRIPTYCH_TESTS_SERVER_HTTP_HTTP_CLIENT_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace triptych::server {

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  nlohmann::json json() const;
  // The message of an error.
  std::string message() const { return json().at("error").at("message"); }
  nlohmann::json error(const std::string& member) const { return json().at("error").at(member); }
};

// Polls until `holds` is true. Returns false if it did not become true in time.
bool WaitFor(const std::function<bool()>& holds);

// A socket connected to HOST:PORT, from the given local address.
boost::asio::ip::tcp::socket Connect(boost::asio::io_context& context, const std::string& address,
                                     int receive_buffer = 0, const std::string& from = {});

// The text of a completion request, with additional headers.
std::string PostText(const nlohmann::json& body, const std::string& headers = {});

// One connection. All reads block; there is no timeout.
class HttpClient {
 public:
  explicit HttpClient(const std::string& address, int receive_buffer = 0,
                      const std::string& from = {});

  using Headers = std::map<std::string, std::string>;
  HttpAnswer Get(const std::string& target, const Headers& headers = {});
  // With JSON's content type. In all requests, the host is localhost unless `headers` names
  // another.
  HttpAnswer Post(const std::string& target, const nlohmann::json& body,
                  const Headers& headers = {});
  HttpAnswer Ask(const std::string& method, const std::string& target, const std::string& body,
                 const Headers& headers);

  void Send(const std::string& method, const std::string& target, const std::string& body,
            const Headers& headers = {});
  void SendText(const std::string& bytes);
  HttpAnswer Read(const std::string& method = "POST");
  // Returns nothing if the connection is closed instead.
  std::optional<HttpAnswer> TryGet(const std::string& target);
  std::optional<HttpAnswer> TryAsk(const std::string& bytes);
  // True if a part of the next answer has arrived.
  bool HasSome() { return buffer_.size() > 0 || socket_.available() > 0; }
  // Shuts down the sending direction.
  void EndWrites() { socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send); }
  // Reads and discards up to `most` available bytes.
  void DropSome(size_t most);
  // True if the server closes the connection without another byte.
  bool IsClosed();
  // All bytes until the server closes the connection.
  std::string ReadToEnd();
  void Close() { socket_.close(); }

  // The answer to the sent request, event by event.
  class Events {
   public:
    explicit Events(HttpClient& client);
    // The next event or comment, without its empty line; nothing if the stream is over.
    std::optional<std::string> NextText();
    // The data of the next event. Skips comments.
    std::optional<std::string> Next();
    // The events before [DONE], which must be the last.
    std::vector<nlohmann::json> All();
    std::string header(const std::string& name) const;
    int status() const;
    bool ended_well() const { return parser_.is_done(); }

   private:
    HttpClient& client_;
    boost::beast::http::response_parser<boost::beast::http::string_body> parser_;
    size_t taken_ = 0;
  };

 private:
  // Reads the answer to a request with this method.
  std::optional<HttpAnswer> TryRead(const std::string& method, boost::system::error_code& error);

  boost::asio::io_context context_;
  boost::asio::ip::tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_HTTP_HTTP_CLIENT_H_
