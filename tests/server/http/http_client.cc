#include "tests/server/http/http_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/read.hpp>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/server/test_server.h"

namespace triptych::server {
namespace {

namespace http = boost::beast::http;
using boost::asio::ip::tcp;

}  // namespace

nlohmann::json HttpAnswer::json() const { return nlohmann::json::parse(body); }

bool WaitFor(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kForever;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

tcp::socket Connect(boost::asio::io_context& context, const std::string& address,
                    int receive_buffer, const std::string& from) {
  tcp::socket socket(context);
  const size_t colon = address.rfind(':');
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(colon + 1)));
  const bool is_v6 = address.starts_with('[');
  const std::string host = is_v6 ? address.substr(1, colon - 2) : address.substr(0, colon);
  socket.open(is_v6 ? tcp::v6() : tcp::v4());
  if (receive_buffer > 0) {
    socket.set_option(boost::asio::socket_base::receive_buffer_size(receive_buffer));
  }
  if (!from.empty()) socket.bind({boost::asio::ip::make_address(from), 0});
  socket.connect({boost::asio::ip::make_address(host), port});
  socket.set_option(tcp::no_delay(true));
  return socket;
}

std::string PostText(const nlohmann::json& body, const std::string& headers) {
  const std::string text = body.dump();
  return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         headers + "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
}

HttpClient::HttpClient(const std::string& address, int receive_buffer, const std::string& from)
    : socket_(Connect(context_, address, receive_buffer, from)) {}

void HttpClient::SendText(const std::string& bytes) {
  boost::asio::write(socket_, boost::asio::buffer(bytes));
}

void HttpClient::Send(const std::string& method, const std::string& target, const std::string& body,
                      const Headers& headers) {
  std::string text = method + " " + target + " HTTP/1.1\r\n";
  if (!headers.contains("Host")) text += "Host: localhost\r\n";
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  if (!body.empty() || method == "POST") {
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    if (!headers.contains("Content-Type")) text += "Content-Type: application/json\r\n";
  }
  SendText(text + "\r\n" + body);
}

std::optional<HttpAnswer> HttpClient::TryRead(const std::string& method,
                                              boost::system::error_code& error) {
  http::response_parser<http::string_body> parser;
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  parser.skip(method == "HEAD");
  http::read(socket_, buffer_, parser, error);
  if (error) return std::nullopt;
  HttpAnswer answer;
  answer.status = static_cast<int>(parser.get().result_int());
  answer.body = parser.get().body();
  for (const auto& field : parser.get()) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    answer.headers[name] = std::string(field.value());
  }
  return answer;
}

HttpAnswer HttpClient::Read(const std::string& method) {
  boost::system::error_code error;
  const std::optional<HttpAnswer> answer = TryRead(method, error);
  if (!answer) ADD_FAILURE() << "no answer: " << error.message();
  return answer.value_or(HttpAnswer());
}

std::optional<HttpAnswer> HttpClient::TryGet(const std::string& target) {
  return TryAsk("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

std::optional<HttpAnswer> HttpClient::TryAsk(const std::string& bytes) {
  boost::system::error_code error;
  boost::asio::write(socket_, boost::asio::buffer(bytes), error);
  return TryRead("", error);
}

void HttpClient::DropSome(size_t most) {
  boost::system::error_code ignored;
  std::string bytes(std::min(most, socket_.available(ignored)), '\0');
  if (!bytes.empty()) socket_.read_some(boost::asio::buffer(bytes), ignored);
}

HttpAnswer HttpClient::Ask(const std::string& method, const std::string& target,
                           const std::string& body, const Headers& headers) {
  Send(method, target, body, headers);
  return Read(method);
}

HttpAnswer HttpClient::Get(const std::string& target, const Headers& headers) {
  return Ask("GET", target, "", headers);
}

HttpAnswer HttpClient::Post(const std::string& target, const nlohmann::json& body,
                            const Headers& headers) {
  return Ask("POST", target, body.dump(), headers);
}

bool HttpClient::IsClosed() {
  if (buffer_.size() > 0) return false;
  char byte = 0;
  boost::system::error_code error;
  return socket_.read_some(boost::asio::buffer(&byte, 1), error) == 0 && error;
}

std::string HttpClient::ReadToEnd() {
  std::string text;
  boost::system::error_code error;
  boost::asio::read(socket_, boost::asio::dynamic_buffer(text), error);
  return text;
}

HttpClient::Events::Events(HttpClient& client) : client_(client) {
  parser_.body_limit(std::numeric_limits<uint64_t>::max());
  boost::system::error_code error;
  http::read_header(client_.socket_, client_.buffer_, parser_, error);
  EXPECT_FALSE(error) << error.message();
}

std::string HttpClient::Events::header(const std::string& name) const {
  return std::string(parser_.get()[name]);
}

int HttpClient::Events::status() const { return static_cast<int>(parser_.get().result_int()); }

std::optional<std::string> HttpClient::Events::Next() {
  constexpr std::string_view kData = "data: ";
  std::optional<std::string> text = NextText();
  while (text == ":") text = NextText();
  if (!text) return std::nullopt;
  const size_t data = text->find(kData);
  EXPECT_TRUE(data == 0 || (data != text->npos && text->starts_with("event: "))) << *text;
  return text->substr(data + kData.size());
}

std::optional<std::string> HttpClient::Events::NextText() {
  while (true) {
    const std::string& body = parser_.get().body();
    const size_t end = body.find("\n\n", taken_);
    if (end != body.npos) {
      std::string event = body.substr(taken_, end - taken_);
      taken_ = end + 2;
      return event;
    }
    if (parser_.is_done()) return std::nullopt;
    boost::system::error_code error;
    http::read_some(client_.socket_, client_.buffer_, parser_, error);
    if (error) return std::nullopt;
  }
}

std::vector<nlohmann::json> HttpClient::Events::All() {
  std::vector<nlohmann::json> events;
  while (true) {
    const std::optional<std::string> data = Next();
    if (!data) {
      ADD_FAILURE() << "the stream ends without [DONE]";
      return events;
    }
    if (*data == "[DONE]") break;
    events.push_back(nlohmann::json::parse(*data));
  }
  EXPECT_FALSE(Next().has_value());
  EXPECT_TRUE(ended_well());
  return events;
}

}  // namespace triptych::server
