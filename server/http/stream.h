// Byte stream of a connection, plain or TLS.
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

// Handshake comes first. Then at most one read, and concurrently one WriteSome or EndWrites. Close
// completes pending operations with an error; the stream must live until then. I/O thread only.
class ByteStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Transferred = std::function<void(const boost::system::error_code&, size_t)>;
  using Done = std::function<void(const boost::system::error_code&)>;

  virtual ~ByteStream() = default;
  virtual void Handshake(Done done) = 0;
  virtual void ReadSome(boost::asio::mutable_buffer into, Transferred done) = 0;
  virtual void WriteSome(boost::asio::const_buffer from, Transferred done) = 0;
  // Ends the output. Bytes read from then on may be encrypted.
  virtual void EndWrites(Done done) = 0;
  // Common name of the client's verified certificate, if there is one.
  virtual std::optional<std::string> common_name() const { return std::nullopt; }
  virtual Socket& socket() = 0;
  void Close();
};

std::unique_ptr<ByteStream> PlainStream(ByteStream::Socket socket);

// Makes TLS streams; each uses the certificate files' contents at its start.
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
