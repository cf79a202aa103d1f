// Flags that environment variables set. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_ENVIRONMENT_H_
#define TRIPTYCH_ENGINE_BASE_ENVIRONMENT_H_

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace triptych {

// Puts --FLAG=VALUE before the arguments if `variable` is set, not empty, and no argument gives
// the flag; `flag` is with its dashes. CLI11's own reading of variables ignores bad values from
// version 2.4 on, and lets a config file go before them.
inline void AddFlagFromEnvironment(const std::string& flag, const std::string& variable,
                                   std::vector<std::string>& arguments) {
  const char* value = std::getenv(variable.c_str());
  const auto gives = [&](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + "=");
  };
  if (value == nullptr || *value == '\0' ||
      std::any_of(arguments.begin(), arguments.end(), gives)) {
    return;
  }
  arguments.insert(arguments.begin(), flag + "=" + value);
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_ENVIRONMENT_H_
