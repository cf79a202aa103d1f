// Key by which proxies route requests with equal prompt prefixes.
#ifndef TRIPTYCH_CLIENT_PREFIX_KEY_H_
#define TRIPTYCH_CLIENT_PREFIX_KEY_H_

#include <string>

#include "triptych/v1/inference.pb.h"

namespace triptych::client {

// Metadata by which a proxy routes requests with equal beginnings to one server, for prefix hits
// there (docker/README.md#affinity). Servers ignore it.
inline constexpr char kPrefixKeyField[] = "triptych-prefix";

// Equal for requests to one model whose prompts have the same first 64 bytes of text or 64 token
// ids, or are shorter and equal. The key is the first 16 hexadecimal digits of the SHA-256 of
// the model's name, a zero byte and that beginning; a token id is four bytes, little-endian.
std::string PrefixKey(const v1::GenerateRequest& request);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_PREFIX_KEY_H_
