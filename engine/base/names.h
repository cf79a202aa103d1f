// Names of enumerators in files, flags and messages.
#ifndef TRIPTYCH_ENGINE_BASE_NAMES_H_
#define TRIPTYCH_ENGINE_BASE_NAMES_H_

#include <map>
#include <string>
#include <string_view>

namespace triptych {

// The values of an enumeration by name. REQUIRES: the values are 0, 1, 2, ..., and std::string_view
// Name(Enum) names them in a switch without a default and returns "" otherwise. That switch is the
// only list, and the compiler rejects one that misses a value.
template <typename Enum>
const std::map<std::string, Enum>& Names() {
  static const std::map<std::string, Enum> names = [] {
    std::map<std::string, Enum> all;
    for (int i = 0; !Name(static_cast<Enum>(i)).empty(); ++i) {
      all.emplace(Name(static_cast<Enum>(i)), static_cast<Enum>(i));
    }
    return all;
  }();
  return names;
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_NAMES_H_
