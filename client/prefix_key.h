#ifndef TRIPTYCH_CLIENT_PREFIX_KEY_H_
#define TRIPTYCH_CLIENT_PREFIX_KEY_H_

#include <string>

#include "triptych/v1/inference.pb.h"

namespace triptych::client {

// The metadata by which a proxy brings requests that begin alike to one server, whose prefix cache
// then holds what they share (docker/README.md#affinity). Servers take no notice of it.
inline constexpr char kPrefixKeyField[] = "triptych-prefix";

// The same for requests to one model whose prompts begin with the same 64 bytes of text or 64 token
// ids, or are shorter and the same: 16 hexadecimal digits, the first of the SHA-256 of the model's
// name, a zero byte and that beginning, a token id as four bytes, the lowest first.
std::string PrefixKey(const v1::GenerateRequest& request);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_PREFIX_KEY_H_
