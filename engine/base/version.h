// Version of this build.
#ifndef TRIPTYCH_ENGINE_BASE_VERSION_H_
#define TRIPTYCH_ENGINE_BASE_VERSION_H_

#include <string_view>

namespace triptych {

// The project's version and, if known, the commit of the build: "0.1.0+1a2b3c4", or
// "0.1.0+1a2b3c4-dirty" with uncommitted changes.
std::string_view Version();

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_VERSION_H_
