#include "server/core/access/access.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/base/quoted.h"
#include "server/core/access/tokens.h"
#include "server/core/access/watched_file.h"
#include "server/core/log.h"

namespace triptych::server {
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

// The call's token. With several headers there is none: a proxy might have read another one.
std::optional<std::string_view> TokenOf(const Credentials& call) {
  if (call.authorization.size() != 1) return std::nullopt;
  return BearerToken(call.authorization.front());
}

}  // namespace

// A token file that is reloaded when it changes. Thread-safe.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path)
      : file_({path}), tokens_(Read(file_.paths().front())) {}

  // The tokens of the last version of the file that could be read.
  std::shared_ptr<const TokenList> Current() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (file_.HasChanged()) {
      const std::filesystem::path& path = file_.paths().front();
      try {
        tokens_ = Read(path);
        LogInfo("tokens reloaded from {}", path.string());
      } catch (const LoadError& e) {
        LogError("tokens not reloaded, the previous ones stay in use: {}", e.what());
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

Result<Caller> Access::Authenticate(const Credentials& call) const {
  if (tokens_ != nullptr) {
    const std::optional<std::string_view> token = TokenOf(call);
    if (!token) {
      return Unauthenticated("the call has no token; allowed: one \"authorization: Bearer TOKEN\"");
    }
    std::optional<Caller> caller = tokens_->Current()->Find(*token);
    if (!caller) return Unauthenticated("the call's token is unknown");
    return *std::move(caller);
  }
  Caller caller{
      .client = std::string(Unmapped(call.address)), .inference = true, .statistics = true};
  caller.admin = insecure_ || IsLoopback(call.address);
  if (call.common_name) caller.client = Printable(*call.common_name);
  return caller;
}

Result<Caller> Access::Authorize(const Credentials& call, Scope scope) const {
  Result<Caller> caller = Authenticate(call);
  if (caller.ok() && !caller.value().May(scope)) {
    return PermissionDenied(caller.value().client, ScopeName(scope));
  }
  return caller;
}

std::string_view Unmapped(std::string_view address) {
  constexpr std::string_view kMapped = "::ffff:";
  const bool is_mapped = address.starts_with(kMapped) && address.find('.') != address.npos;
  return is_mapped ? address.substr(kMapped.size()) : address;
}

bool IsLoopback(std::string_view address) {
  address = Unmapped(address);
  return address.starts_with("127.") || address == "::1" || address == "unix";
}

}  // namespace triptych::server
