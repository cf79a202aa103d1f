// Which build this is. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_VERSION_H_
#define TRIPTYCH_ENGINE_BASE_VERSION_H_

#include <string_view>

namespace triptych {

// The version of the project and the commit that it was built from, if that is known:
// "0.1.0+1a2b3c4", or "0.1.0+1a2b3c4-dirty" with changes on top.
std::string_view Version();

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_VERSION_H_
