#include "server/tracing/span_exporter.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "engine/base/version.h"
#include "server/core/log.h"

namespace triptych::server {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = boost::asio::ip::tcp;

constexpr std::chrono::seconds kInterval{1};
constexpr std::chrono::seconds kBetweenReports{60};
constexpr size_t kMaxAnswerBytes = 64 << 10;  // which a collector may explain itself in

uint64_t Seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// One request on a connection of its own.
class Exchange {
 public:
  Exchange(const HttpUrl& url, http::request<http::string_body> request)
      : url_(url), request_(std::move(request)), resolver_(io_), stream_(io_) {
    answer_.body_limit(kMaxAnswerBytes);
  }

  // Returns what went wrong, or "".
  std::string Run(std::chrono::seconds timeout) {
    std::string host = url_.address.host;
    if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
    resolver_.async_resolve(
        host, std::to_string(url_.address.port), [&](beast::error_code error, auto found) {
          if (Failed(error, "no address")) return;
          stream_.expires_after(timeout);
          stream_.async_connect(found, [&](beast::error_code connect_error, const auto&) {
            if (Failed(connect_error, "no connection")) return;
            Send();
          });
        });
    io_.run_for(timeout + std::chrono::seconds(1));  // the address has no limit of its own
    if (!done_ && error_.empty()) error_ = "no answer";
    return error_;
  }

 private:
  void Send() {
    http::async_write(stream_, request_, [&](beast::error_code error, size_t) {
      if (Failed(error, "not sent")) return;
      http::async_read(stream_, buffer_, answer_, [&](beast::error_code read_error, size_t) {
        if (Failed(read_error, "no answer")) return;
        done_ = true;
        const unsigned status = answer_.get().result_int();
        if (status / 100 != 2) error_ = "status " + std::to_string(status);
      });
    });
  }
  bool Failed(beast::error_code error, const char* what) {
    if (error) error_ = std::string(what) + ": " + error.message();
    return bool(error);
  }

  const HttpUrl& url_;
  const http::request<http::string_body> request_;
  boost::asio::io_context io_;
  Tcp::resolver resolver_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> answer_;
  std::string error_;
  bool done_ = false;
};

}  // namespace

SpanExporter::SpanExporter(TracingOptions options)
    : options_(std::move(options)), ids_(options_.sampler, Seed()), thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void SpanExporter::Add(const RequestSummary& summary) {
  const auto now = std::chrono::system_clock::now();
  const MutexLock lock(mutex_);
  std::optional<TracedRequest> traced = ids_.Trace(summary, now);
  if (!traced) return;
  if (waiting_.size() >= kMaxWaiting) {
    ++overflow_;
    return;
  }
  waiting_.push_back(*std::move(traced));
  if (waiting_.size() == kBatch) changed_.NotifyAll();
}

void SpanExporter::Run() {
  bool stops = false;
  while (!stops) {
    std::vector<TracedRequest> batch;
    int64_t lost = 0;
    {
      const MutexLock lock(mutex_);
      const auto deadline = std::chrono::steady_clock::now() + kInterval;
      while (!stopping_ && waiting_.size() < kBatch && changed_.WaitUntil(mutex_, deadline)) {
      }
      stops = stopping_;
      const auto end = waiting_.begin() + std::min<ptrdiff_t>(waiting_.size(), kBatch);
      batch.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
      waiting_.erase(waiting_.begin(), end);
      std::swap(lost, overflow_);
      if (stops) lost += std::ssize(waiting_);  // after the last batch
    }
    std::string why = lost > 0 ? "more ended than the collector takes" : "";
    if (!batch.empty()) {
      try {
        const std::string error = Send(batch, stops ? std::chrono::seconds(1) : kTimeout);
        if (!error.empty()) {
          lost += std::ssize(batch);
          why = error;
        }
      } catch (const std::exception& e) {  // such as std::bad_alloc
        lost += std::ssize(batch);
        why = e.what();
      }
    }
    LogLosses(lost, why);
  }
}

std::string SpanExporter::Send(const std::vector<TracedRequest>& batch,
                               std::chrono::seconds timeout) const {
  const HttpUrl& url = options_.collector;
  http::request<http::string_body> request(http::verb::post, url.path, 11);
  request.set(http::field::host, url.Authority());
  request.set(http::field::user_agent, "triptych/" + std::string(Version()));
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : options_.headers) request.set(name, value);
  request.body() = ExportRequest(batch, options_.service_name, std::string(Version()));
  request.prepare_payload();
  return Exchange(url, std::move(request)).Run(timeout);
}

void SpanExporter::LogLosses(int64_t lost, const std::string& why) {
  unreported_ += lost;
  if (!why.empty()) why_ = why;
  const auto now = std::chrono::steady_clock::now();
  if (unreported_ == 0 || now < next_report_) return;
  LogWarning("tracing: the spans of {} requests are lost: {}: {}", unreported_,
             options_.collector.Text(), why_);
  unreported_ = 0;
  next_report_ = now + kBetweenReports;
}

}  // namespace triptych::server
