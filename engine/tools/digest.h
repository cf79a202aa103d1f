// SHA-256 digests of the inputs of models.
#ifndef TRIPTYCH_ENGINE_TOOLS_DIGEST_H_
#define TRIPTYCH_ENGINE_TOOLS_DIGEST_H_

#include <filesystem>
#include <string>
#include <string_view>

namespace triptych::tools {

// 64 hexadecimal digits, as sha256sum(1) prints them.
std::string Sha256(std::string_view bytes);
// Throws LoadError.
std::string Sha256OfFile(const std::filesystem::path& file);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_DIGEST_H_
