#include "client/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

namespace triptych::client {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio Open(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

// The next certificate; null at the end and if it cannot be read.
Certificate ReadCertificate(const Bio& bio) {
  return {PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free};
}

// True if the last read failed since there was no further PEM block. Clears OpenSSL's errors.
bool FailedAtTheEnd() {
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  return at_end;
}

}  // namespace

std::optional<std::string> FindBadCertificates(const std::string& pem) {
  const Bio bio = Open(pem);
  int count = 0;
  while (ReadCertificate(bio)) ++count;
  if (!FailedAtTheEnd()) {
    return "certificate " + std::to_string(count + 1) + " cannot be read";
  }
  return count > 0 ? std::nullopt : std::optional<std::string>("holds no certificate in PEM");
}

std::optional<std::string> FindBadKey(const std::string& pem, const std::string& certificates) {
  // With an empty pass phrase, OpenSSL does not ask for one at the terminal.
  char pass_phrase[] = "";
  const Key key(PEM_read_bio_PrivateKey(Open(pem).get(), nullptr, nullptr, pass_phrase),
                EVP_PKEY_free);
  std::optional<std::string> bad;
  if (!key) {
    bad = "holds no private key in PEM that can be read without a pass phrase";
  } else if (X509_check_private_key(ReadCertificate(Open(certificates)).get(), key.get()) != 1) {
    bad = "is not the key of the first certificate";
  }
  ERR_clear_error();
  return bad;
}

}  // namespace triptych::client
