#include "server/grpc/access.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <spdlog/spdlog.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/base/quoted.h"
#include "server/core/tokens.h"
#include "server/grpc/watched_file.h"

namespace triptych {
namespace {

constexpr uint64_t kMaxTokenFileBytes = 1 << 20;

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
std::optional<std::string_view> TokenOf(const grpc::ServerContextBase& context) {
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  if (begin == end || std::next(begin) != end) return std::nullopt;
  return BearerToken({begin->second.data(), begin->second.size()});
}

}  // namespace

// The tokens of a file, as it is now.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path)
      : file_({path}), tokens_(Read(file_.paths().front())) {}

  // The tokens as the file has them now, or as it last had them well.
  std::shared_ptr<const TokenList> Current() TRIPTYCH_EXCLUDES(mutex_) {
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

 private:
  static std::shared_ptr<const TokenList> Read(const std::filesystem::path& path) {
    return std::make_shared<const TokenList>(ReadText(path, kMaxTokenFileBytes), path.string());
  }

  Mutex mutex_;
  WatchedFiles file_ TRIPTYCH_GUARDED_BY(mutex_);
  std::shared_ptr<const TokenList> tokens_ TRIPTYCH_GUARDED_BY(mutex_);
};

Access::Access(const AccessOptions& options)
    : insecure_(options.insecure),
      tokens_(options.tokens ? std::make_unique<TokenFile>(*options.tokens) : nullptr) {}

Access::~Access() = default;

Result<Caller> Access::Authenticate(const grpc::ServerContextBase& context) const {
  if (tokens_ != nullptr) {
    const std::optional<std::string_view> token = TokenOf(context);
    if (!token) {
      return Unauthenticated(
          "the call brings no token; allowed: metadata \"authorization: Bearer TOKEN\"");
    }
    std::optional<Caller> caller = tokens_->Current()->Find(*token);
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
