// The bytes of a connection, encrypted or not.
#ifndef TRIPTYCH_SERVER_HTTP_STREAM_H_
#define TRIPTYCH_SERVER_HTTP_STREAM_H_

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/core/access/certificate_files.h"

namespace triptych::server {

// A handshake by itself; then at most one read and, beside it, one write or end at a time. A stream
// that is closed ends what is under way with an error; it must live until then. On the I/O thread.
class ByteStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Transferred = std::function<void(const boost::system::error_code&, size_t)>;
  using Done = std::function<void(const boost::system::error_code&)>;

  virtual ~ByteStream() = default;
  virtual void Handshake(Done done) = 0;
  virtual void ReadSome(boost::asio::mutable_buffer into, Transferred done) = 0;
  virtual void WriteSome(boost::asio::const_buffer from, Transferred done) = 0;
  // Says that nothing more will be written. What is read from then on may be encrypted.
  virtual void EndWrites(Done done) = 0;
  // The common name of the client's certificate, which was verified.
  virtual std::optional<std::string> common_name() const { return std::nullopt; }
  virtual Socket& socket() = 0;
  void Close();
};

std::unique_ptr<ByteStream> PlainStream(ByteStream::Socket socket);

// Makes streams that speak TLS with the certificate that the files hold when each begins.
class TlsStreams {
 public:
  explicit TlsStreams(std::shared_ptr<CertificateFiles> files);
  ~TlsStreams();

  std::unique_ptr<ByteStream> Make(ByteStream::Socket socket);

 private:
  struct Context;

  const std::shared_ptr<CertificateFiles> files_;
  std::shared_ptr<const Certificates> used_;  // by context_
  std::shared_ptr<Context> context_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_STREAM_H_
