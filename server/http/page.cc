#include "server/http/page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <string>

namespace triptych::server {
namespace {

// Content-Security-Policy source (hash) of the page's text between <name> and </name>.
std::string Source(const std::string& name) {
  const std::string open = "<" + name + ">";
  const size_t begin = kPageHtml.find(open) + open.size();
  const std::string_view text =
      kPageHtml.substr(begin, kPageHtml.find("</" + name + ">", begin) - begin);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  unsigned char base64[64];
  const int size = EVP_EncodeBlock(base64, digest, sizeof(digest));
  return "'sha256-" + std::string(base64, base64 + size) + "'";
}

}  // namespace

HttpResponse PageResponse() {
  static const std::string policy =
      "default-src 'none'; script-src " + Source("script") + "; style-src " + Source("style") +
      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'";
  return {.body = std::string(kPageHtml),
          .content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", policy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

}  // namespace triptych::server
