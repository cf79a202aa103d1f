#include "engine/tools/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/base/file.h"

namespace triptych::tools {
namespace {

class Hash {
 public:
  Hash() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    Check(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Add(const void* bytes, size_t count) {
    Check(EVP_DigestUpdate(context_.get(), bytes, count) == 1);
  }

  std::string Digits() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    Check(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
    std::string digits;
    for (const unsigned char byte : std::span(digest, size)) {
      for (const int digit : {byte >> 4, byte & 15}) digits += "0123456789abcdef"[digit];
    }
    return digits;
  }

 private:
  static void Check(bool done) {
    if (!done) throw std::runtime_error("OpenSSL cannot compute SHA-256");
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string Sha256(std::string_view bytes) {
  Hash hash;
  hash.Add(bytes.data(), bytes.size());
  return hash.Digits();
}

std::string Sha256OfFile(const std::filesystem::path& file) {
  const InputFile input(file);
  Hash hash;
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (uint64_t offset = 0; offset < input.size();) {
    const std::span<std::byte> part =
        std::span(buffer).first(std::min<uint64_t>(buffer.size(), input.size() - offset));
    input.ReadAt(offset, part);
    hash.Add(part.data(), part.size());
    offset += part.size();
  }
  return hash.Digits();
}

}  // namespace triptych::tools
