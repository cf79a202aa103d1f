#include "server/grpc/access.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/base/quoted.h"
#include "server/grpc/watched_file.h"

namespace triptych {
namespace {

constexpr uint64_t kMaxTokenFileBytes = 1 << 20;

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

struct Token {
  Caller caller;
  Digest digest;
};

std::vector<std::string_view> Split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool IsClientName(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

bool SetScope(std::string_view name, Caller& caller) {
  if (name == "inference") return caller.inference = true;
  if (name == "statistics") return caller.statistics = true;
  if (name == "admin") return caller.admin = true;
  return false;
}

std::optional<Digest> ParseDigest(std::string_view text) {
  Digest digest;
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const char* const byte = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(byte, byte + 2, digest[i], 16);
    if (error != std::errc() || end != byte + 2) return std::nullopt;
  }
  return digest;
}

// What is shown of a bad line never holds its last word, which may be a token by mistake.
Token ParseLine(std::string_view line, const std::string& where) {
  std::vector<std::string_view> words = Split(line, " \t\r");
  std::erase(words, "");
  if (words.size() != 3) {
    throw LoadError(where + ": " + std::to_string(words.size()) +
                    " words; allowed: NAME SCOPE[,SCOPE...] SHA256HEX");
  }
  Token token;
  if (!IsClientName(words[0])) {
    throw LoadError(where + ": the name is " + Quoted(words[0]) +
                    "; allowed: 1 to 64 letters, digits, '-', '_' and '.'");
  }
  token.caller.client = words[0];
  for (const std::string_view scope : Split(words[1], ",")) {
    if (!SetScope(scope, token.caller)) {
      throw LoadError(where + ": " + Quoted(scope) +
                      " is not a scope; allowed: inference, statistics, admin");
    }
  }
  const std::optional<Digest> digest = ParseDigest(words[2]);
  if (!digest) {
    throw LoadError(where + ": the token of " + token.caller.client +
                    " is not a SHA-256; allowed: 64 hexadecimal digits");
  }
  token.digest = *digest;
  return token;
}

std::vector<Token> ParseTokens(const std::string& text, const std::string& file) {
  std::vector<Token> tokens;
  std::set<Digest> digests;
  int number = 0;
  for (const std::string_view line : Split(text, "\n")) {
    const std::string where = file + " line " + std::to_string(++number);
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos || line[begin] == '#') continue;
    tokens.push_back(ParseLine(line, where));
    // Two names may be one client's; one token may not be two clients'.
    if (!digests.insert(tokens.back().digest).second) {
      throw LoadError(where + ": the token of " + tokens.back().caller.client +
                      " is another line's as well");
    }
  }
  if (tokens.empty()) throw LoadError(file + ": holds no token; allowed: at least one");
  return tokens;
}

Digest Hash(std::string_view token) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

std::string_view ScopeName(Scope scope) {
  switch (scope) {
    case Scope::kInference:
      return "inference";
    case Scope::kStatistics:
      return "statistics";
    case Scope::kAdmin:
      return "admin";
  }
  return "";
}

// The token that a call brings. More than one is as none: who reads the other one than we do?
std::optional<std::string_view> BearerToken(const grpc::ServerContextBase& context) {
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  if (begin == end || std::next(begin) != end) return std::nullopt;
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view value(begin->second.data(), begin->second.size());
  const bool is_bearer =
      value.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), value.begin(),
                 [](char expected, unsigned char c) { return std::tolower(c) == expected; });
  if (!is_bearer) return std::nullopt;
  return value.substr(kScheme.size());
}

}  // namespace

// The tokens of a file, as it is now.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path)
      : file_({path}), tokens_(Read(file_.paths().front())) {}

  // Whose token it is, if anybody's. Takes as long for each.
  std::optional<Caller> Find(std::string_view token) TRIPTYCH_EXCLUDES(mutex_) {
    const Digest digest = Hash(token);
    const std::shared_ptr<const std::vector<Token>> tokens = Current();
    const Token* found = nullptr;
    for (const Token& known : *tokens) {
      if (CRYPTO_memcmp(known.digest.data(), digest.data(), digest.size()) == 0) found = &known;
    }
    return found == nullptr ? std::nullopt : std::optional(found->caller);
  }

 private:
  using Tokens = std::shared_ptr<const std::vector<Token>>;

  static Tokens Read(const std::filesystem::path& path) {
    return std::make_shared<const std::vector<Token>>(
        ParseTokens(ReadText(path, kMaxTokenFileBytes), path.string()));
  }

  Tokens Current() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (file_.HasChanged()) {
      const std::filesystem::path& path = file_.paths().front();
      try {
        tokens_ = Read(path);
        spdlog::info("tokens were read anew from {}", path.string());
      } catch (const LoadError& e) {
        spdlog::error("tokens stay as they were: {}", e.what());
      }
    }
    return tokens_;
  }

  Mutex mutex_;
  WatchedFiles file_ TRIPTYCH_GUARDED_BY(mutex_);
  Tokens tokens_ TRIPTYCH_GUARDED_BY(mutex_);
};

Access::Access(const AccessOptions& options)
    : insecure_(options.insecure),
      tokens_(options.tokens ? std::make_unique<TokenFile>(*options.tokens) : nullptr) {}

Access::~Access() = default;

Result<Caller> Access::Authenticate(const grpc::ServerContextBase& context) const {
  if (tokens_ != nullptr) {
    const std::optional<std::string_view> token = BearerToken(context);
    if (!token) {
      return Unauthenticated(
          "the call brings no token; allowed: metadata \"authorization: Bearer TOKEN\"");
    }
    std::optional<Caller> caller = tokens_->Find(*token);
    if (!caller) return Unauthenticated("the call's token is not known");
    return *std::move(caller);
  }
  Caller caller{.client = {}, .inference = true, .statistics = true};
  const std::string address = PeerAddress(context.peer());
  caller.admin = insecure_ || IsLoopback(address);
  caller.client = address;
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer != nullptr && peer->IsPeerAuthenticated()) {
    const std::vector<grpc::string_ref> names =
        peer->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
    if (!names.empty()) caller.client = Printable({names[0].data(), names[0].size()});
  }
  return caller;
}

Result<Caller> Access::Authorize(const grpc::ServerContextBase& context, Scope scope) const {
  Result<Caller> caller = Authenticate(context);
  if (caller.ok() && !caller.value().May(scope)) {
    return PermissionDenied(caller.value().client, ScopeName(scope));
  }
  return caller;
}

std::string PeerAddress(std::string_view peer) {
  const size_t scheme = peer.find(':');
  if (peer.starts_with("unix")) return "unix";
  if (scheme == peer.npos) return std::string(peer);
  std::string address(peer.substr(scheme + 1, peer.rfind(':') - scheme - 1));
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
    const size_t at = address.find(bracket);
    if (at != address.npos) address.erase(at, bracket.size());
  }
  return address;
}

bool IsLoopback(std::string_view address) {
  constexpr std::string_view kMapped = "::ffff:";
  if (address.starts_with(kMapped)) address.remove_prefix(kMapped.size());
  return address.starts_with("127.") || address == "::1" || address == "unix";
}

}  // namespace triptych
