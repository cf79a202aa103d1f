// Fuzz target: a file of access tokens, and the authorization header of a call.
#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string>

#include "engine/base/error.h"
#include "server/core/access/tokens.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

// The SHA-256 of "secret".
constexpr char kSecret[] = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

void CheckList(const server::TokenList& list) {
  std::set<server::TokenList::Digest> digests;
  Promise(!list.tokens().empty(), "a list holds a token");
  for (const server::TokenList::Token& token : list.tokens()) {
    const server::Caller& caller = token.caller;
    Promise(!caller.client.empty() && caller.client.size() <= 64, "a token has a name");
    Promise(caller.inference || caller.statistics || caller.admin, "a token has a scope");
    Promise(digests.insert(token.digest).second, "a token is one client's");
  }
}

}  // namespace

void FuzzTokens(std::string_view bytes) {
  const std::string text(bytes);
  const std::optional<std::string_view> token = server::BearerToken(text);
  Promise(!token || (!token->empty() && text.ends_with(*token)), "a token is the header's end");
  try {
    const server::TokenList list(text, "tokens");
    CheckList(list);
    std::string lower = text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    const bool listed = lower.find(kSecret) != lower.npos;
    Promise(listed || !list.Find("secret"), "only a token of the list is known");
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 512);
  }
  try {
    const server::TokenList list(std::string("c inference ") + kSecret + "\n" + text, "tokens");
    CheckList(list);
    Promise(list.Find("secret").has_value(), "a token of the list is known");
    Promise(list.Find("secret")->client == "c", "a token is its client's");
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 512);
  }
}

}  // namespace triptych
