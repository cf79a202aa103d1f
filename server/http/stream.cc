#include "server/http/stream.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/ssl.hpp>
#include <utility>

namespace triptych::server {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;

class Plain final : public ByteStream {
 public:
  explicit Plain(Socket socket) : socket_(std::move(socket)) {}

  void Handshake(Done done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void ReadSome(asio::mutable_buffer into, Transferred done) override {
    socket_.async_read_some(into, std::move(done));
  }
  void WriteSome(asio::const_buffer from, Transferred done) override {
    socket_.async_write_some(from, std::move(done));
  }
  void EndWrites(Done done) override {
    error_code error;
    socket_.shutdown(Socket::shutdown_send, error);
    asio::post(socket_.get_executor(), [done = std::move(done), error] { done(error); });
  }
  Socket& socket() override { return socket_; }

 private:
  Socket socket_;
};

class Tls final : public ByteStream {
 public:
  Tls(Socket socket, ssl::context& context, std::shared_ptr<void> keeps_context)
      : context_(std::move(keeps_context)), stream_(std::move(socket), context) {}

  void Handshake(Done done) override {
    stream_.async_handshake(ssl::stream_base::server, std::move(done));
  }
  void ReadSome(asio::mutable_buffer into, Transferred done) override {
    if (ended_) return socket().async_read_some(into, std::move(done));
    stream_.async_read_some(
        into, [this, into, done = std::move(done)](const error_code& error, size_t bytes) {
          if (ended_ && error.category() == asio::error::get_ssl_category()) {
            return ReadSome(into, done);
          }
          done(error, bytes);
        });
  }
  void WriteSome(asio::const_buffer from, Transferred done) override {
    stream_.async_write_some(from, std::move(done));
  }
  void EndWrites(Done done) override {
    ended_ = true;  // from now on OpenSSL does not read
    stream_.async_shutdown(std::move(done));
  }
  std::optional<std::string> common_name() const override;
  Socket& socket() override { return stream_.next_layer(); }

 private:
  const std::shared_ptr<void> context_;
  mutable ssl::stream<Socket> stream_;
  bool ended_ = false;  // EndWrites was called
};

std::optional<std::string> Tls::common_name() const {
  SSL* const session = stream_.native_handle();
  X509* const peer = SSL_get_peer_certificate(session);
  if (peer == nullptr) return std::nullopt;
  std::optional<std::string> name;
  X509_NAME* const subject = X509_get_subject_name(peer);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at >= 0) {
    unsigned char* text = nullptr;
    const int size =
        ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (size >= 0) name.emplace(reinterpret_cast<const char*>(text), size);
    OPENSSL_free(text);
  }
  X509_free(peer);
  return name;
}

}  // namespace

struct TlsStreams::Context {
  ssl::context context{ssl::context::tls_server};

  explicit Context(const Certificates& certificates) {
    context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                        ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                        SSL_OP_NO_RENEGOTIATION);
    // No session resumption: it would skip the check of the client's certificate by the current
    // files.
    SSL_CTX_set_session_cache_mode(context.native_handle(), SSL_SESS_CACHE_OFF);
    context.set_options(SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(context.native_handle(), 0);
    context.use_certificate_chain(asio::buffer(certificates.certificate));
    context.use_private_key(asio::buffer(certificates.key), ssl::context::pem);
    if (certificates.client_authority.empty()) return;
    context.add_certificate_authority(asio::buffer(certificates.client_authority));
    context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  }
};

void ByteStream::Close() {
  error_code ignored;
  socket().close(ignored);
}

std::unique_ptr<ByteStream> PlainStream(ByteStream::Socket socket) {
  return std::make_unique<Plain>(std::move(socket));
}

TlsStreams::TlsStreams(std::shared_ptr<CertificateFiles> files)
    : files_(std::move(files)),
      used_(files_->Current()),
      context_(std::make_shared<Context>(*used_)) {}

TlsStreams::~TlsStreams() = default;

std::unique_ptr<ByteStream> TlsStreams::Make(ByteStream::Socket socket) {
  if (std::shared_ptr<const Certificates> now = files_->Current(); now != used_) {
    context_ = std::make_shared<Context>(*now);
    used_ = std::move(now);
  }
  return std::make_unique<Tls>(std::move(socket), context_->context, context_);
}

}  // namespace triptych::server
