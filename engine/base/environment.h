// Command-line flags from environment variables.
#ifndef TRIPTYCH_ENGINE_BASE_ENVIRONMENT_H_
#define TRIPTYCH_ENGINE_BASE_ENVIRONMENT_H_

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace triptych {

// Prepends FLAG=VALUE to `arguments` if `variable` is set and not empty, and no argument gives the
// flag. `flag` includes its dashes. CLI11's own support for variables ignores bad values since
// version 2.4, and gives a config file precedence over them.
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
